//! Sockets that any thread may use: one lock for the context, which no thread holds while it
//! sleeps.
//!
//! ```text
//!   thread 1 (leads)   take ─ try ─ turn ─ arm ─ let go ═══ sleeps on the wire ═══ take ─ turn ─ …
//!   thread 2 (waits)   take ─ try ─ turn ─ rearm ─ let go ═══ sleeps on a futex ═══ take ─ try ─ …
//!   thread 3 (visits)  take ─ disarm ─ call ─ turn ─ rearm ─ let go
//! ```
//!
//! Of the threads that wait one leads: it sleeps on copies of the wire's descriptors and turns the
//! stack when it wakes. The others sleep until whoever turned the stack finds news of what they
//! wait for. A leader whose call is over calls the next one in its place. A call that waits holds
//! the description that it began with, as in Linux: `close` in another thread does not end it,
//! `dup2` over its descriptor does (`EBADF`).

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millstream::{Context, Runtime, Turn};
use ring::waiter::Waiter;
use rustix::io::Errno;

use crate::caged::Caged;
use crate::call::{Progress, Reply};
use crate::descriptors::Descriptors;
use crate::entry::{File, errno};
use crate::files::holding;
use crate::request::{EpollEvent, PollFd, Request};
use crate::sleep::{SignalMask, ppoll};
use crate::sockets::{Sockets, Step, is_over};

mod sleeping;
mod waiting;

pub use waiting::Awaited;
use waiting::{Leader, On, Waiting};

/// A thread that makes a call.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Its place to sleep. A signal's handler that runs in the thread leaves a
    /// [`Reason`](crate::Reason) there, so that a call which is about to sleep hears of it.
    pub waiter: &'a Arc<Waiter>,
    /// The signal mask while it sleeps, if the call has one.
    pub mask: Option<&'a SignalMask>,
}

/// See the module's documentation.
pub struct Shared {
    inner: Mutex<Inner>,
}

pub(crate) struct Inner {
    caged: Caged,
    /// Threads that sleep, or have not taken the lock again since they were called; the first one
    /// has waited longest.
    waiting: Vec<Waiting>,
    leader: Option<Leader>,
    tickets: u64,
}

/// The rules of a call that waits.
#[derive(Clone)]
pub(crate) struct Rules {
    /// The source that the call waits for.
    on: On,
    /// True if the call goes on after a signal: its handler lets calls go on, or left no word, and
    /// the call has no limit.
    restarts: bool,
    /// One waiter of several gets what comes.
    is_exclusive: bool,
    /// Its steps turn the stack themselves.
    turns: bool,
}

impl Shared {
    /// Takes context `index`. `numbers` numbers its descriptors.
    ///
    /// # Errors
    /// The errors of [`Runtime::context`].
    pub fn new(
        runtime: &Runtime,
        index: usize,
        numbers: Box<dyn Descriptors + Send>,
    ) -> Result<Self, millstream::Error> {
        let mut caged = Caged::new(runtime, index, numbers)?;
        caged.sockets().notes_replaced = true;
        let inner = Inner {
            caged,
            waiting: Vec::new(),
            leader: None,
            tickets: 0,
        };
        Ok(Self {
            inner: Mutex::new(inner),
        })
    }

    fn take(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the context; a leader that sleeps does not wake for what this thread does.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.take();
        if inner.leader.is_some() {
            inner.context().visit();
        }
        inner
    }

    /// Uses the sockets for something that never waits.
    fn visit<R>(&self, call: impl FnOnce(&mut Sockets) -> R) -> R {
        let mut inner = self.lock();
        let done = call(inner.caged.sockets());
        inner.settle();
        done
    }

    /// Whether `fd` is one of ours.
    #[must_use]
    pub fn has(&self, fd: i32) -> bool {
        self.take().caged.sockets().has(fd)
    }

    /// The numbers of the descriptors, in order.
    #[must_use]
    pub fn numbers(&self) -> Vec<i32> {
        self.take().caged.sockets().numbers().collect()
    }

    /// `FD_CLOEXEC` of a descriptor; false if there is none.
    #[must_use]
    pub fn is_close_on_exec(&self, fd: i32) -> bool {
        self.take().caged.sockets().is_close_on_exec(fd)
    }

    /// True for an IPv6 socket.
    #[must_use]
    pub fn is_v6(&self, fd: i32) -> bool {
        self.take().caged.sockets().is_v6(fd)
    }

    /// The stack's counters, and the tables and pools that it uses.
    ///
    /// # Errors
    /// `ENETDOWN` if the wire is gone.
    pub fn report(&self) -> Result<millstream::Report, Errno> {
        self.visit(|sockets| sockets.context().report())
            .map_err(|error| errno(&error))
    }

    /// Makes a call and waits until it is over.
    ///
    /// # Errors
    /// The call's errno.
    pub fn call(&self, caller: Caller<'_>, request: &Request) -> (Result<i64, Errno>, Reply) {
        self.call_with(caller, Progress::default(), request)
    }

    /// As [`call`](Self::call); the descriptor that it opens gets this number
    /// ([`Sockets::wait_for_at`]).
    pub fn call_at(
        &self,
        caller: Caller<'_>,
        number: i32,
        request: &Request,
    ) -> (Result<i64, Errno>, Reply) {
        let progress = Progress {
            number: Some(number),
            ..Progress::default()
        };
        self.call_with(caller, progress, request)
    }

    fn call_with(
        &self,
        caller: Caller<'_>,
        progress: Progress,
        request: &Request,
    ) -> (Result<i64, Errno>, Reply) {
        let mut reply = Reply::None;
        let fd = request.waiting_fd();
        let is_wait = matches!(request, Request::EpollWait { .. } | Request::Poll { .. });
        let on = match request {
            Request::Poll { fds, .. } => On::of(self.take().caged.sockets(), fds),
            _ => On::None,
        };
        let rules = Rules {
            on,
            restarts: !is_wait,
            is_exclusive: matches!(request, Request::Accept { .. } | Request::EpollWait { .. }),
            turns: false,
        };
        let mut held = None;
        let outcome = self.wait(caller, rules, fd, progress, &mut |sockets, at, progress| {
            let request = match fd.is_none_or(|fd| fd == at) {
                true => request,
                false => held.get_or_insert_with(|| request.on(at)),
            };
            let step = sockets.step(request, progress, &mut reply);
            if let Some(fd) = request.changed_fd()
                && let Ok(entry) = sockets.entry(fd)
            {
                entry.changes += 1;
            }
            step
        });
        (outcome, reply)
    }

    /// `recv`, `recvmsg`, `read` and `readv`.
    ///
    /// # Errors
    /// The call's errno.
    pub fn recv(
        &self,
        caller: Caller<'_>,
        fd: i32,
        pieces: &mut [IoSliceMut<'_>],
        flags: i32,
    ) -> Result<usize, Errno> {
        let mut reply = Reply::None;
        let step = &mut |sockets: &mut Sockets, fd: i32, progress: &mut Progress| {
            sockets.recv_step(fd, pieces, flags, progress, &mut reply)
        };
        let received = self.wait(caller, Rules::MOVES, Some(fd), Progress::default(), step);
        received.map(|count| count as usize)
    }

    /// `send`, `sendmsg`, `write` and `writev`. `EPIPE` is due together with `SIGPIPE`, unless
    /// `MSG_NOSIGNAL` is among the flags ([`owes_sigpipe`](crate::owes_sigpipe)).
    ///
    /// # Errors
    /// The call's errno.
    pub fn send(
        &self,
        caller: Caller<'_>,
        fd: i32,
        pieces: &[IoSlice<'_>],
        flags: i32,
    ) -> Result<usize, Errno> {
        let mut at = 0;
        let step = &mut |sockets: &mut Sockets, at_fd: i32, progress: &mut Progress| {
            let step = sockets.send_step(at_fd, pieces, flags, &mut at, progress);
            if fd == sockets.polled_last {
                // As in `Sockets::send_from`: the answers of a program that polls leave at once.
                let _ = sockets.context.turn();
            }
            sockets.deliver_sent(at_fd);
            step
        };
        let sent = self.wait(caller, Rules::MOVES, Some(fd), Progress::default(), step);
        sent.map(|count| count as usize)
    }

    /// `epoll_wait`, `epoll_pwait` and `epoll_pwait2`: events of what is ready, in place of what
    /// `found` held, `max` at most. `None`: without a limit.
    ///
    /// # Errors
    /// The call's errno.
    pub fn epoll_wait(
        &self,
        caller: Caller<'_>,
        epfd: i32,
        max: usize,
        timeout: Option<Duration>,
        found: &mut Vec<EpollEvent>,
    ) -> Result<usize, Errno> {
        let rules = Rules {
            on: On::None,
            restarts: false,
            is_exclusive: true,
            turns: true,
        };
        let step = &mut |sockets: &mut Sockets, epfd: i32, progress: &mut Progress| {
            found.clear();
            sockets.epoll_found(epfd, max, Some(Duration::ZERO), found)?;
            let now_ns = sockets.context.now_ns();
            if found.is_empty() && !is_over(progress, now_ns, timeout) {
                progress.is_unannounced = sockets.has_notifications;
                return Ok(None);
            }
            if timeout != Some(Duration::ZERO) {
                sockets.polled_last = -1;
            }
            Ok(Some(found.len() as i64))
        };
        let count = self.wait(caller, rules, Some(epfd), Progress::default(), step)?;
        Ok(count as usize)
    }

    /// `poll` and `ppoll`: the `revents` of each entry; how many are not zero. Descriptors that are
    /// not ours are the kernel's of the same number. `None`: without a limit.
    ///
    /// # Errors
    /// `EINTR`; `ENETDOWN` if the wire is gone.
    pub fn poll(
        &self,
        caller: Caller<'_>,
        fds: &mut [PollFd],
        timeout: Option<Duration>,
    ) -> Result<usize, Errno> {
        let on = {
            let mut inner = self.take();
            let sockets = inner.caged.sockets();
            On::of(sockets, fds)
        };
        let rules = Rules {
            on,
            restarts: false,
            is_exclusive: false,
            turns: true,
        };
        let step = &mut |sockets: &mut Sockets, _, progress: &mut Progress| {
            // Even a call that does not wait sees everything that has happened so far.
            sockets.context.turn().map_err(|error| errno(&error))?;
            let count = sockets.poll_all(fds)?;
            let now_ns = sockets.context.now_ns();
            if count == 0 && !is_over(progress, now_ns, timeout) {
                progress.is_unannounced = sockets.has_notifications;
                return Ok(None);
            }
            Ok(Some(count as i64))
        };
        let count = self.wait(caller, rules, None, Progress::default(), step)?;
        Ok(count as usize)
    }

    /// Tries a step again and again, asleep in between, until the call is over.
    fn wait(
        &self,
        caller: Caller<'_>,
        mut rules: Rules,
        fd: Option<i32>,
        mut progress: Progress,
        step: &mut dyn FnMut(&mut Sockets, i32, &mut Progress) -> Step,
    ) -> Result<i64, Errno> {
        let mut inner = self.lock();
        match step(inner.caged.sockets(), fd.unwrap_or(-1), &mut progress) {
            Ok(None) => {}
            done => {
                let done = inner.caged.sockets().told(done);
                inner.settle();
                return done.map(|value| value.unwrap_or(0));
            }
        }
        caller.waiter.begin();
        let held = fd.and_then(|fd| inner.caged.sockets().files.number_of(fd));
        if let Some(description) = held {
            inner.caged.sockets().files.begin_wait(description);
            rules.on = On::One(description);
        }
        let at = held.map_or(-1, holding);
        let outcome = loop {
            let seen = inner.news(&rules.on);
            match step(inner.caged.sockets(), at, &mut progress) {
                Ok(None) if progress.is_interrupted => break inner.interrupted(&progress),
                Ok(None) => {}
                done => break done.map(|value| value.unwrap_or(0)),
            }
            if !rules.turns {
                match inner.context().turn_once() {
                    Ok(Turn::Idle) => {}
                    // Threads that sleep want the lock more than this one wants to look.
                    Ok(Turn::Looking) if inner.is_crowded() => {}
                    Ok(_) => {
                        inner.call_waiting();
                        continue;
                    }
                    Err(error) => break Err(errno(&error)),
                }
            }
            inner.call_waiting();
            let slept = self.sleep(inner, caller, &rules, fd, seen, &progress);
            inner = slept.inner;
            match slept.outcome {
                Ok(true) => progress.is_interrupted = true,
                Ok(false) => {}
                Err(errno) => break Err(errno),
            }
        };
        if let (Some(fd), Some(description)) = (fd, held) {
            let sockets = inner.caged.sockets();
            sockets.files.end_wait(description);
            sockets.drop_reference(fd, description);
        }
        inner.context().go_away();
        inner.settle();
        outcome
    }
}

impl Rules {
    /// Those of calls that move bytes.
    const MOVES: Self = Self {
        on: On::None,
        restarts: true,
        is_exclusive: false,
        turns: false,
    };
}

impl Inner {
    fn context(&mut self) -> &Context {
        &self.caged.sockets().context
    }

    /// Somebody else waits.
    fn is_crowded(&self) -> bool {
        self.leader.is_some() || !self.waiting.is_empty()
    }

    /// The outcome of a call that a signal ended, and that has found nothing after it.
    fn interrupted(&self, progress: &Progress) -> Result<i64, Errno> {
        match progress.before + progress.done {
            0 => Err(Errno::INTR),
            moved => Ok(moved as i64),
        }
    }
}

impl Sockets {
    /// The `revents` of ours and of the kernel's; how many are not zero.
    fn poll_all(&mut self, fds: &mut [PollFd]) -> Result<usize, Errno> {
        let mut kernels = Vec::new();
        for (place, entry) in fds.iter_mut().enumerate() {
            match self.has(entry.fd) || entry.fd < 0 {
                true => entry.revents = self.poll_one(entry.fd, entry.events),
                false => kernels.push((place, pollfd(entry.fd, entry.events))),
            }
        }
        if !kernels.is_empty() {
            let mut polled: Vec<_> = kernels.iter().map(|(_, fd)| *fd).collect();
            ppoll(&mut polled, Some(Duration::ZERO), None)?;
            for ((place, _), fd) in kernels.iter().zip(polled) {
                fds[*place].revents = fd.revents;
            }
        }
        Ok(fds.iter().filter(|entry| entry.revents != 0).count())
    }

    /// Copies of the kernel's descriptors behind what a call waits for.
    fn kernels_behind(&self, on: &On) -> Vec<OwnedFd> {
        let behind = |number: &i32| match &self.files.description(*number)?.file {
            File::Kernel(kernel) => kernel.try_clone().ok(),
            File::Epoll(epoll) => epoll.kernel_fd()?.as_fd().try_clone_to_owned().ok(),
            _ => None,
        };
        on.descriptions().iter().filter_map(behind).collect()
    }
}

fn pollfd(fd: i32, events: i16) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}
