//! Waits without the lock: try, arm, unlock, sleep, lock, try again.
//!
//! One sleeper leads: it sleeps on the wire. The others sleep on their bells ([`sleepers`]). All of
//! them also sleep on the kernel descriptors of their call.
//!
//! [`sleepers`]: crate::sleepers
//!
//! A signal handler that interrupts a sleep may make a call that sleeps, too. The inner sleep
//! replaces the outer one, which looks again when the handler returns. If the handler leaves by
//! `longjmp`, the thread's next sleep replaces the abandoned one.

use std::os::fd::AsRawFd;

use libc::{pollfd, sigset_t};
use millstream::{Armed, Context, Turn};
use packetio::wait::monotonic_ns;
use posix::{Call, Errno, Outcome, Reply, Request};

use crate::engine::{self, Engine};
use crate::limits::UNANNOUNCED_NS;
use crate::memory_unsafe;
use crate::signals_unsafe::{self, Ran};
use crate::sleepers::{News, Sleeper};

/// The result of an attempt.
pub enum Attempt<T> {
    /// The call is over.
    Done(T),
    /// The call waits.
    Wait {
        /// Time at which the call gives up, on the monotonic clock, in ns.
        until_ns: Option<u64>,
        /// Kernel descriptors that it waits for, with events.
        kernel: Vec<(i32, i16)>,
        /// News of Millstream's sockets, read before they were tried.
        news: News,
    },
}

/// The effect of a signal handler on a wait.
#[derive(Clone, Copy)]
pub enum Signals {
    /// Any signal ends the call (`poll` and its relatives), with this mask during the sleep.
    End(Option<sigset_t>),
    /// A signal ends the call unless its handler was installed with `SA_RESTART`.
    Restart,
}

/// Repeats attempts until one is done.
///
/// # Errors
/// The attempt's error; `EINTR`.
pub fn until_done<T>(
    signals: Signals,
    mut attempt: impl FnMut(&mut Engine) -> Result<Attempt<T>, Errno>,
) -> Result<T, Errno> {
    let mut is_interrupted = false;
    signals_unsafe::begin();
    loop {
        let planned = engine::moving(|engine| match attempt(engine)? {
            Attempt::Done(value) => Ok(Plan::Done(value)),
            Attempt::Wait { .. } if is_interrupted => Err(Errno::INTR),
            Attempt::Wait {
                until_ns,
                kernel,
                news,
            } => {
                // A call with a time limit is never restarted after a signal, as in Linux.
                let is_ended_by_any = until_ns.is_some() || matches!(signals, Signals::End(_));
                plan(engine, until_ns, kernel, news, is_ended_by_any)
            }
        })?;
        let sleep = match planned {
            Plan::Done(value) => return Ok(value),
            Plan::Again => continue,
            Plan::Sleep(sleep) => sleep,
        };
        is_interrupted = sleep.sleep(signals)?;
    }
}

enum Plan<T> {
    Done(T),
    Again,
    Sleep(Sleep),
}

struct Sleep {
    bell: i32,
    fds: Vec<pollfd>,
    until_ns: Option<u64>,
    is_ended_by_any: bool,
}

fn plan<T>(
    engine: &mut Engine,
    until_ns: Option<u64>,
    kernel: Vec<(i32, i16)>,
    news: News,
    is_ended_by_any: bool,
) -> Result<Plan<T>, Errno> {
    let bell = memory_unsafe::bell()?;
    // The entry of a sleep in this thread that a signal handler has interrupted.
    engine.take_out(bell)?;
    let armed = match engine.sleepers.has_leader() {
        true => None,
        false => match arm(engine.open()?.sockets().context()) {
            Ok(Some(armed)) => Some(armed),
            Ok(None) => return Ok(Plan::Again),
            Err(error) => return Err(posix::errno(&error)),
        },
    };
    if news.has_news(engine.open()?.sockets()) {
        return Ok(Plan::Again);
    }
    let watched = |fd, events| pollfd {
        fd,
        events,
        revents: 0,
    };
    let mut fds = vec![watched(bell, libc::POLLIN)];
    fds.extend(kernel.into_iter().map(|(fd, events)| watched(fd, events)));
    let mut stack_ns = None;
    if let Some(armed) = &armed {
        let wire = armed.descriptors.iter();
        fds.extend(wire.map(|(fd, events)| watched(fd.as_raw_fd(), events.bits() as i16)));
        stack_ns = armed.due_ns;
    }
    engine.sleepers.enlist(Sleeper {
        bell,
        is_rung: false,
        armed,
        news,
    });
    Ok(Plan::Sleep(Sleep {
        bell,
        fds,
        until_ns: [until_ns, stack_ns].into_iter().flatten().min(),
        is_ended_by_any,
    }))
}

/// Turns the stack and, if there was nothing to do, prepares a sleep. `None`: look again.
fn arm(context: &Context) -> std::io::Result<Option<Armed>> {
    let armed = match context.turn_once() {
        Ok(Turn::Idle) => context.lead(),
        Ok(Turn::Moved | Turn::Looking) => Ok(None),
        Err(error) => Err(error),
    };
    // The next attempt may be the last one. Without this call the watchdog would rely on the caller
    // to turn the stack, and later writes of the program would not leave.
    if !matches!(armed, Ok(Some(_))) {
        context.go_away();
    }
    armed
}

impl Sleep {
    /// Sleeps. True: a signal ended the sleep; it ends the call unless the next attempt is done.
    fn sleep(mut self, signals: Signals) -> Result<bool, Errno> {
        let mask = match signals {
            Signals::End(mask) => mask,
            Signals::Restart => None,
        };
        // From here on a signal handler rings the bell.
        let before = signals_unsafe::sleep_begins(self.bell);
        let left_ns = match self.is_ended_by(before) {
            true => Some(0),
            false => self
                .until_ns
                .map(|at_ns| at_ns.saturating_sub(monotonic_ns())),
        };
        let slept = memory_unsafe::sleep(&mut self.fds, left_ns, mask);
        let ran = signals_unsafe::sleep_ended();
        let was_rung = self.fds[0].revents != 0;
        if was_rung {
            memory_unsafe::silence(self.bell);
        }
        engine::locked(|engine| engine.take_out(self.bell))?;
        match slept {
            _ if ran.any => Ok(self.is_ended_by(ran)),
            Err(Errno::INTR) => Ok(self.is_ended_by_any || signals_unsafe::strangers_end_calls()),
            Err(errno) => {
                // The call ends here, so another sleeper has to lead.
                engine::moving(|_| Ok(()))?;
                Err(errno)
            }
            Ok(_) => Ok(false),
        }
    }

    fn is_ended_by(&self, ran: Ran) -> bool {
        ran.ends || (ran.any && self.is_ended_by_any)
    }
}

/// Makes a call of `posix` and waits for its end.
///
/// # Errors
/// The error of the call.
pub fn call(request: Request) -> Result<(i64, Reply), Errno> {
    let is_unannounced = matches!(request, Request::Close { .. });
    let mut call = Call::start(request);
    let outcome = until_done(Signals::Restart, |engine| {
        let sockets = engine.open()?.sockets();
        let awaited = sockets.awaited_by_call(&call);
        let news = match call.request() {
            Request::Accept { .. } => News::begin_exclusive(sockets, awaited),
            _ => News::begin(sockets, awaited),
        };
        match call.poll(sockets) {
            Outcome::Done(outcome) => outcome.map(Attempt::Done),
            Outcome::Pending => {
                let soon_ns = is_unannounced.then(|| monotonic_ns() + UNANNOUNCED_NS);
                let until_ns = [call.deadline_ns(), soon_ns].into_iter().flatten().min();
                let kernel = Vec::new();
                Ok(Attempt::Wait {
                    until_ns,
                    kernel,
                    news,
                })
            }
        }
    });
    let value = match outcome {
        Err(Errno::INTR) if call.moved() > 0 => call.moved() as i64,
        outcome => outcome?,
    };
    Ok((value, call.into_reply()))
}
