//! Sockets that any thread may use. One lock guards the context; no thread holds it while it
//! sleeps.
//!
//! ```text
//!   thread 1 (leads)   take ─ try ─ turn ─ arm ─ let go ═══ sleeps on the wire ═══ take ─ turn ─ …
//!   thread 2 (waits)   take ─ try ─ turn ─ rearm ─ let go ═══ sleeps on a futex ═══ take ─ try ─ …
//!   thread 3 (visits)  take ─ disarm ─ call ─ turn ─ rearm ─ let go
//! ```
//!
//! Of the waiting threads one leads: it sleeps on copies of the wire's descriptors and turns the
//! stack when it wakes. The others sleep until a thread that turned the stack finds news for them.
//! A leader whose call is over wakes the next one. As in Linux, a waiting call keeps the
//! description that it began with: `close` in another thread does not end the call, `dup2` over its
//! descriptor does (`EBADF`).

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
    /// The thread's place to sleep. A signal handler in that thread leaves a
    /// [`Reason`](crate::Reason) there, which a call about to sleep will find.
    pub waiter: &'a Arc<Waiter>,
    /// The signal mask during sleeps, if the call has one.
    pub mask: Option<&'a SignalMask>,
}

/// See the module's documentation.
pub struct Shared {
    inner: Mutex<Inner>,
}

pub(crate) struct Inner {
    caged: Caged,
    /// Threads that sleep, or have not taken the lock again since they were woken. The first one
    /// has waited longest.
    waiting: Vec<Waiting>,
    leader: Option<Leader>,
    tickets: u64,
}

/// The rules of a waiting call.
#[derive(Clone)]
pub(crate) struct Rules {
    /// The descriptions that the call waits for.
    on: On,
    /// The call continues after a signal whose handler has `SA_RESTART`, provided that it has no
    /// time limit.
    restarts: bool,
    /// Each event wakes one of several such waiters.
    is_exclusive: bool,
    /// The steps turn the stack themselves.
    turns: bool,
}

impl Shared {
    /// Takes context `index`. `numbers` allocates its descriptors.
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

    /// Takes the lock. A leader that sleeps need not wake for what this thread does.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.take();
        if inner.leader.is_some() {
            inner.context().visit();
        }
        inner
    }

    /// Calls a function that never waits.
    fn visit<R>(&self, call: impl FnOnce(&mut Sockets) -> R) -> R {
        let mut inner = self.lock();
        let done = call(inner.caged.sockets());
        inner.before_unlock();
        done
    }

    /// True if `fd` is a descriptor of these sockets.
    #[must_use]
    pub fn has(&self, fd: i32) -> bool {
        self.take().caged.sockets().has(fd)
    }

    /// The numbers of open descriptors in ascending order.
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

    /// Like [`call`](Self::call), but the descriptor that the call opens gets `number`
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

    /// `send`, `sendmsg`, `write` and `writev`. With `EPIPE` the caller has to raise `SIGPIPE`,
    /// unless the flags have `MSG_NOSIGNAL` ([`owes_sigpipe`](crate::owes_sigpipe)).
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
                // As in `Sockets::send_from`, a program that polls has its answers leave at once.
                let _ = sockets.context.turn();
            }
            sockets.deliver_sent(at_fd);
            step
        };
        let sent = self.wait(caller, Rules::MOVES, Some(fd), Progress::default(), step);
        sent.map(|count| count as usize)
    }

    /// `epoll_wait`, `epoll_pwait` and `epoll_pwait2`: replaces the contents of `found` by up to
    /// `max` events. A timeout of `None` means no limit.
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
                sockets.end_sleeping_wait();
            }
            Ok(Some(found.len() as i64))
        };
        let count = self.wait(caller, rules, Some(epfd), Progress::default(), step)?;
        Ok(count as usize)
    }

    /// `poll` and `ppoll`: sets `revents` of each entry and returns the number of entries that have
    /// some. Numbers without a descriptor here are kernel descriptors. A timeout of `None` means no
    /// limit.
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
            // A call that does not wait still sees everything that has happened so far.
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

    /// Repeats a step, sleeping in between, until the call is over.
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
                let done = inner.caged.sockets().note_outcome(done);
                inner.before_unlock();
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
                    // Sleeping threads need the lock more than this one needs another look.
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
        inner.before_unlock();
        outcome
    }
}

impl Rules {
    /// The rules of calls that move bytes.
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

    /// True if another thread waits.
    fn is_crowded(&self) -> bool {
        self.leader.is_some() || !self.waiting.is_empty()
    }

    /// The result of a call that a signal ended and whose last step found nothing.
    fn interrupted(&self, progress: &Progress) -> Result<i64, Errno> {
        match progress.before + progress.done {
            0 => Err(Errno::INTR),
            moved => Ok(moved as i64),
        }
    }
}

impl Sockets {
    /// Sets `revents` for descriptors here and for kernel descriptors; returns the number that have
    /// some.
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

    /// Copies of the kernel descriptors behind the descriptions that a call waits for.
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
