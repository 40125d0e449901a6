//! The threads that wait, and the rules for waking them.

use std::sync::Arc;

use millstream::{AcceptCall, Armed};
use ring::waiter::{Reason, Waiter};

use super::Inner;
use crate::call::Call;
use crate::entry::File;
use crate::request::{PollFd, Request};
use crate::sockets::Sockets;

/// A waiting thread.
pub(crate) struct Waiting {
    /// Number of the wait, counted over all waits.
    pub ticket: u64,
    pub waiter: Arc<Waiter>,
    /// The descriptor of the call; -1: none, or several.
    pub fd: i32,
    pub on: On,
    /// [`Inner::news`] of `on` when the thread last looked.
    pub seen: u64,
    pub is_exclusive: bool,
    /// The thread was woken and has not taken the lock since.
    pub is_called: bool,
    /// `dup2` has replaced the descriptor of the call.
    pub is_replaced: bool,
}

/// The descriptions that a call waits for, for crates whose threads sleep apart from their calls
/// ([`Sockets::news`]).
#[derive(Clone, Debug)]
pub struct Awaited(On);

/// The descriptions that a call waits for.
#[derive(Clone, Debug)]
pub(crate) enum On {
    None,
    One(i32),
    Many {
        ours: Vec<i32>,
        /// Kernel descriptors by their numbers, each with the bits of `poll`.
        kernels: Vec<(i32, i16)>,
    },
}

impl Awaited {
    /// True for the same descriptions in the same order.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.descriptions() == other.0.descriptions()
    }
}

/// The thread that sleeps in the stack's place.
pub(crate) struct Leader {
    pub waiter: Arc<Waiter>,
    pub armed: Arc<Armed>,
}

impl On {
    /// The descriptions that a `poll` of `fds` waits for.
    pub fn of(sockets: &Sockets, fds: &[PollFd]) -> Self {
        let (mut ours, mut kernels) = (Vec::new(), Vec::new());
        for entry in fds.iter().filter(|entry| entry.fd >= 0) {
            match sockets.files.number_of(entry.fd) {
                Some(number) => ours.push(number),
                None => kernels.push((entry.fd, entry.events)),
            }
        }
        Self::Many { ours, kernels }
    }

    pub fn descriptions(&self) -> &[i32] {
        match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Many { ours, .. } => ours,
        }
    }

    pub fn kernels(&self) -> &[(i32, i16)] {
        match self {
            Self::Many { kernels, .. } => kernels,
            _ => &[],
        }
    }
}

impl Sockets {
    /// A number that changes when a call that waits for the description may get further.
    fn news_of(&self, number: i32) -> u64 {
        let Some(entry) = self.files.description(number) else {
            return 0;
        };
        let news = match &entry.file {
            File::Idle(socket) | File::Deferred(socket, _) => self.context.news(socket),
            File::Listener(listener) => self.context.news(listener),
            File::Stream(stream) => self.context.news(&stream.tcp),
            File::Epoll(epoll) => self.context.news_of_poll(&epoll.poll),
            File::Kernel(_) | File::Lost => 0,
        };
        news.wrapping_add(entry.changes << 17)
    }

    /// The description that a call on `fd` waits for; none if `fd` is not a descriptor here.
    #[must_use]
    pub fn awaited(&self, fd: i32) -> Awaited {
        Awaited(self.files.number_of(fd).map_or(On::None, On::One))
    }

    /// The descriptions that a `poll` of `fds` waits for.
    #[must_use]
    pub fn awaited_by_poll(&self, fds: &[PollFd]) -> Awaited {
        Awaited(On::of(self, fds))
    }

    /// The descriptions that a call waits for.
    #[must_use]
    pub fn awaited_by_call(&self, call: &Call) -> Awaited {
        match (&call.request, call.request.waiting_fd()) {
            (Request::Poll { fds, .. }, _) => self.awaited_by_poll(fds),
            (_, Some(fd)) => self.awaited(fd),
            _ => Awaited(On::None),
        }
    }

    /// Notes that a call waits for connections of a listener, until the note is dropped. `None`:
    /// `fd` is not a listener here.
    #[must_use]
    pub fn begin_accept_call(&self, fd: i32) -> Option<AcceptCall> {
        let number = self.files.number_of(fd)?;
        match &self.files.description(number)?.file {
            File::Listener(listener) => listener.begin_call(),
            _ => None,
        }
    }

    /// A number that changes when a call that waits for these may get further, or when one of them
    /// is closed. A thread that reads it before its call and again before its sleep misses nothing.
    #[must_use]
    pub fn news(&self, awaited: &Awaited) -> u64 {
        let is_closed = |number: &i32| self.files.description(*number).is_none();
        match awaited.0.descriptions().iter().any(is_closed) {
            true => u64::MAX,
            false => self.news_of_all(&awaited.0),
        }
    }

    pub(crate) fn news_of_all(&self, on: &On) -> u64 {
        let all = on.descriptions().iter();
        all.fold(0, |sum, number| sum.wrapping_add(self.news_of(*number)))
    }
}

impl Inner {
    pub fn news(&mut self, on: &On) -> u64 {
        self.caged.sockets().news_of_all(on)
    }

    /// Wakes the threads for which there is news. Of exclusive waiters on the same descriptions it
    /// wakes one at a time.
    pub fn call_waiting(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.call_replaced();
        let sockets = self.caged.sockets();
        for at in 0..self.waiting.len() {
            let (before, rest) = self.waiting.split_at_mut(at);
            let (one, after) = match rest.split_first_mut() {
                Some((one, after)) => (one, &*after),
                None => return,
            };
            if one.is_called || sockets.news_of_all(&one.on) == one.seen {
                continue;
            }
            let mut others = before.iter().chain(after);
            let is_for_another = one.is_exclusive
                && others.any(|other| {
                    let is_same = other.on.descriptions() == one.on.descriptions();
                    is_same && other.is_exclusive && other.is_called
                });
            if !is_for_another {
                one.call();
            }
        }
    }

    /// Wakes the calls whose descriptor `dup2` has replaced, which end with `EBADF`.
    fn call_replaced(&mut self) {
        let replaced = std::mem::take(&mut self.caged.sockets().replaced);
        for one in &mut self.waiting {
            if replaced.contains(&one.fd) {
                one.is_replaced = true;
                one.call();
            }
        }
    }

    /// Notes that an exclusive waiter was woken and found nothing. There is then nothing for the
    /// others on the same descriptions.
    pub fn found_nothing(&mut self, on: &On, seen: u64) {
        for one in &mut self.waiting {
            let is_same = one.on.descriptions() == on.descriptions();
            if is_same && one.is_exclusive && !one.is_called {
                one.seen = seen;
            }
        }
    }

    /// Prepares the release of the lock: requests leave, threads with news are woken, and a thread
    /// becomes leader if any waits.
    pub fn before_unlock(&mut self) {
        if self.leader.is_some() {
            for _ in 0..VISITOR_TURNS_MAX {
                let context = self.context();
                // Calls that wait report a wire that is gone.
                if !context.has_requests() || context.turn_once().is_err() {
                    break;
                }
            }
        }
        self.call_waiting();
        self.caged.sockets().replaced.clear();
        let Self { caged, leader, .. } = self;
        match leader {
            Some(leader) => {
                if !caged.sockets().context.rearm(&leader.armed) {
                    leader.waiter.leave(Reason::Called);
                }
            }
            None if self.waiting.iter().any(|one| one.is_called) => {}
            None => {
                if let Some(first) = self.waiting.first_mut() {
                    first.call();
                }
            }
        }
    }
}

/// Turns that a visitor takes for its own requests. The leader does the rest.
const VISITOR_TURNS_MAX: usize = 4;

impl Waiting {
    fn call(&mut self) {
        self.is_called = true;
        self.waiter.leave(Reason::Called);
    }
}
