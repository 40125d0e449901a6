//! One sleep of a waiting call, without the lock.

use std::os::fd::AsRawFd;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use ring::waiter::{Reason, Reasons};
use rustix::io::Errno;

use super::waiting::{Leader, Waiting};
use super::{Caller, Inner, Rules, Shared, pollfd};
use crate::call::Progress;
use crate::entry::errno;
use crate::number::POLLIN;
use crate::sleep::ppoll;

/// Longest sleep of a leader, in ns. A wire that is reopened has other descriptors.
const LEADER_SLEEP_NS_MAX: u64 = 100_000_000;
/// Longest sleep of other threads, in ns. Only a futex wait with a timeout returns `EINTR` for
/// every signal.
const SLEEP_NS_MAX: u64 = 3_600_000_000_000;
/// Longest sleep of a wait for something without an event, in ns.
const SLICE_NS: u64 = 5_000_000;

/// The state after a sleep.
pub(super) struct Slept<'a> {
    pub inner: MutexGuard<'a, Inner>,
    /// True if a signal ends the call.
    pub outcome: Result<bool, Errno>,
}

impl Shared {
    /// Sleeps until the call may get further than when [`Inner::news`] was `seen`.
    pub(super) fn sleep<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        caller: Caller<'_>,
        rules: &Rules,
        fd: Option<i32>,
        seen: u64,
        progress: &Progress,
    ) -> Slept<'a> {
        if inner.news(&rules.on) != seen {
            let outcome = Ok(false);
            return Slept { inner, outcome };
        }
        if rules.is_exclusive {
            inner.found_nothing(&rules.on, seen);
        }
        let leads = inner.leader.is_none();
        if leads {
            match inner.lead(caller) {
                Ok(true) => {}
                Ok(false) => {
                    let outcome = Ok(false);
                    return Slept { inner, outcome };
                }
                Err(errno) => {
                    let outcome = Err(errno);
                    return Slept { inner, outcome };
                }
            }
        }
        let ticket = inner.enlist(caller, rules, fd, seen);
        let fds = inner.watched(leads, rules);
        let limit = inner.limit(leads, progress);
        if !leads {
            inner.before_unlock();
        }
        // The leader holds its copies of descriptors while it leads.
        let armed = inner.leader.as_ref().filter(|_| leads);
        let armed = armed.map(|leader| leader.armed.clone());
        drop(inner);
        let slept = rest(caller, &fds, limit);
        drop(armed);
        let mut inner = self.take();
        let waited = inner.strike_off(ticket);
        if leads {
            inner.leader = None;
            inner.context().stop_leading();
        } else if inner.leader.is_some() {
            inner.context().visit();
        }
        let outcome = match slept {
            _ if waited.is_some_and(|waited| waited.is_replaced) => Err(Errno::BADF),
            Ok(reasons) => Ok(is_ended(reasons, rules, progress)),
            Err((Errno::INTR, reasons)) => {
                let goes_on = rules.restarts && progress.deadline_ns.is_none();
                Ok(!goes_on || reasons.has(Reason::Signal))
            }
            Err((errno, _)) => Err(errno),
        };
        Slept { inner, outcome }
    }
}

/// True if a signal handler has left a reason that ends the call.
fn is_ended(reasons: Reasons, rules: &Rules, progress: &Progress) -> bool {
    let goes_on = rules.restarts && progress.deadline_ns.is_none();
    reasons.has(Reason::Signal) || (reasons.has(Reason::Restart) && !goes_on)
}

/// The descriptors that a sleep watches.
struct WatchedFds {
    polled: Vec<libc::pollfd>,
    /// Copies among `polled`, closed after the sleep.
    _copies: Vec<std::os::fd::OwnedFd>,
}

/// Sleeps on descriptors, or on the futex if there are none.
fn rest(
    caller: Caller<'_>,
    fds: &WatchedFds,
    limit: Duration,
) -> Result<Reasons, (Errno, Reasons)> {
    if fds.polled.is_empty() && caller.mask.is_none() {
        let (slept, reasons) = caller.waiter.sleep(limit);
        return slept.map(|()| reasons).map_err(|errno| (errno, reasons));
    }
    let slept = caller.waiter.sleep_in(|bell| {
        let mut polled = fds.polled.clone();
        polled.push(pollfd(bell.as_raw_fd(), POLLIN));
        ppoll(&mut polled, Some(limit), caller.mask)
    });
    match slept {
        Ok((Some(Err(errno)), reasons)) => Err((errno, reasons)),
        Ok((_, reasons)) => Ok(reasons),
        Err(errno) => Err((errno, Reasons::default())),
    }
}

impl Inner {
    /// Makes the caller the leader. False: there is work, so look again.
    fn lead(&mut self, caller: Caller<'_>) -> Result<bool, Errno> {
        let armed = self.context().lead().map_err(|error| errno(&error))?;
        let Some(armed) = armed else {
            return Ok(false);
        };
        self.leader = Some(Leader {
            waiter: caller.waiter.clone(),
            armed: Arc::new(armed),
        });
        Ok(true)
    }

    fn enlist(&mut self, caller: Caller<'_>, rules: &Rules, fd: Option<i32>, seen: u64) -> u64 {
        self.tickets += 1;
        self.waiting.push(Waiting {
            ticket: self.tickets,
            waiter: caller.waiter.clone(),
            fd: fd.unwrap_or(-1),
            on: rules.on.clone(),
            seen,
            is_exclusive: rules.is_exclusive,
            is_called: false,
            is_replaced: false,
        });
        self.tickets
    }

    fn strike_off(&mut self, ticket: u64) -> Option<Waiting> {
        let at = self.waiting.iter().position(|one| one.ticket == ticket)?;
        Some(self.waiting.remove(at))
    }

    fn watched(&mut self, leads: bool, rules: &Rules) -> WatchedFds {
        let copies = self.caged.sockets().kernels_behind(&rules.on);
        let kernels = rules.on.kernels().iter();
        let mut polled: Vec<_> = kernels.map(|(fd, events)| pollfd(*fd, *events)).collect();
        polled.extend(copies.iter().map(|fd| pollfd(fd.as_raw_fd(), POLLIN)));
        if let Some(leader) = self.leader.as_ref().filter(|_| leads) {
            let wire = leader.armed.descriptors.iter();
            polled.extend(wire.map(|(fd, flags)| pollfd(fd.as_raw_fd(), flags.bits() as i16)));
        }
        WatchedFds {
            polled,
            _copies: copies,
        }
    }

    /// Longest time that the sleep may take.
    fn limit(&mut self, leads: bool, progress: &Progress) -> Duration {
        let now_ns = self.context().now_ns();
        let due_ns = match &self.leader {
            Some(leader) if leads => leader.armed.due_ns,
            _ => None,
        };
        let most_ns = match leads {
            _ if progress.is_unannounced => SLICE_NS,
            true => LEADER_SLEEP_NS_MAX,
            false => SLEEP_NS_MAX,
        };
        let until = [progress.deadline_ns, due_ns, Some(now_ns + most_ns)];
        let until_ns = until.into_iter().flatten().min().unwrap_or(now_ns);
        Duration::from_nanos(until_ns.saturating_sub(now_ns))
    }
}
