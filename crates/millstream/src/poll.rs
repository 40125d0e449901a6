//! Waiting for many sockets at once, with the semantics of Linux's epoll.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use ring::socket_block::SocketId;
use rustix::io::Errno;

use crate::context::{Context, Inner};
use crate::crank::Turn;
use crate::event::{Events, Interest, Mode, Readiness, Token};
use crate::interleaving::point;
use crate::limits::{
    ANSWERS_LEAVE_TURNS_MAX, EVENTS_PER_WAIT_MANY, FEW_SOCKETS_MAX, POLLER_AWAY_NS,
};
use crate::poll_set::{NestError, Wanted};

mod kernel;

use kernel::kernel_events;

fn ns_after(now_ns: u64, timeout: Duration) -> u64 {
    now_ns.saturating_add(timeout.as_nanos().min(u64::MAX.into()) as u64)
}

/// A socket that can be registered with a [`Poll`] of its own context.
///
/// ```
#[doc = include_str!("doc/context.txt")]
/// fn watch(poll: &mut Poll, source: &impl Source) -> std::io::Result<()> {
///     poll.register(source, Token(0), Interest::READABLE, Mode::Level)
/// }
/// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
/// watch(&mut Poll::new(&context), &listener)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Source: sealed::Sealed {}

pub(crate) mod sealed {
    use std::rc::Rc;

    use ring::socket_block::SocketId;

    use crate::context::Inner;

    pub trait Sealed {
        fn id(&self) -> SocketId;
        fn inner(&self) -> &Rc<Inner>;
    }
}

/// Waits for sockets of one context, and for descriptors of the kernel. A context may have any
/// number of them.
///
/// ```no_run
/// use millstream::{Events, Interest, Mode, Poll, TcpListener, Token};
/// # fn serve(context: &millstream::Context) -> std::io::Result<()> {
/// let listener = TcpListener::bind(context, "10.0.0.2:80".parse().unwrap())?;
/// listener.set_nonblocking(true);
/// let mut poll = Poll::new(context);
/// poll.register(&listener, Token(0), Interest::READABLE, Mode::Level)?;
/// let mut events = Events::with_capacity(256);
/// loop {
///     poll.wait(&mut events, None)?;
///     for event in &events {
///         println!("{:?} is ready", event.token());
///     }
/// #   return Ok(());
/// }
/// # }
/// ```
pub struct Poll {
    pub(crate) inner: Rc<Inner>,
    index: u32,
    /// Made when the first kernel descriptor is registered.
    pub(crate) kernel: Option<OwnedFd>,
    /// Kernel descriptors come before sockets in this wait. It alternates, so that neither kind
    /// always fills the room for events.
    kernel_first: bool,
    /// Time at which the kernel was last asked, in ns.
    pub(crate) kernel_asked_ns: u64,
    /// Time of the last wait, in ns.
    waited_ns: u64,
    /// A socket may be registered several times, under different tokens.
    names_by_token: bool,
}

impl Poll {
    /// A poll that watches nothing yet.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let poll = Poll::new(&context);
    /// assert_eq!(poll.readiness(), Readiness::NONE);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn new(context: &Context) -> Self {
        let index = context.inner.state().polls.open_poll();
        Self {
            inner: context.inner.clone(),
            index,
            kernel: None,
            kernel_first: false,
            kernel_asked_ns: 0,
            waited_ns: 0,
            names_by_token: false,
        }
    }

    /// A poll that identifies a registration by socket and token, as Linux's epoll does by
    /// descriptor. [`register`](Self::register) refuses a socket only if the poll already watches
    /// it under the same token. [`deregister_as`](Self::deregister_as) ends one registration.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
    /// let mut poll = Poll::naming_by_token(&context);
    /// poll.register(&listener, Token(1), Interest::READABLE, Mode::Level)?;
    /// poll.register(&listener, Token(2), Interest::READABLE, Mode::Edge)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn naming_by_token(context: &Context) -> Self {
        let mut poll = Self::new(context);
        poll.names_by_token = true;
        poll
    }

    /// The poll's number in the context.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The token that identifies a registration; `None`: the socket alone does.
    fn name(&self, token: Token) -> Option<Token> {
        self.names_by_token.then_some(token)
    }

    /// Begins to watch a socket.
    ///
    /// # Errors
    /// `AlreadyExists` if this poll watches it; `InvalidInput` if it belongs to another context.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let mut poll = Poll::new(&here);
    /// poll.register(&client, Token(1), Interest::READABLE | Interest::WRITABLE, Mode::Edge)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register(
        &mut self,
        source: &impl Source,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        let wanted = Wanted::new(token, interest, mode, false);
        self.add(source.inner(), source.id(), wanted)
    }

    /// Begins to watch a socket for one report (`EPOLLONESHOT`). [`reregister`](Self::reregister)
    /// arms the registration again.
    ///
    /// # Errors
    /// The errors of [`register`](Self::register).
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let mut poll = Poll::new(&here);
    /// poll.register_once(&client, Token(1), Interest::WRITABLE, Mode::Level)?;
    /// let mut events = Events::with_capacity(8);
    /// assert_eq!(poll.wait(&mut events, None)?, 1);
    /// let timeout = std::time::Duration::from_millis(1);
    /// assert_eq!(poll.wait(&mut events, Some(timeout))?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register_once(
        &mut self,
        source: &impl Source,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        let wanted = Wanted::new(token, interest, mode, true);
        self.add(source.inner(), source.id(), wanted)
    }

    /// Changes the interest in a watched socket. If the socket is ready, the next wait reports it
    /// as news.
    ///
    /// # Errors
    /// `NotFound` if this poll does not watch it.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let mut poll = Poll::new(&here);
    /// poll.register(&client, Token(1), Interest::READABLE, Mode::Level)?;
    /// poll.reregister(&client, Token(1), Interest::WRITABLE, Mode::Level)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reregister(
        &mut self,
        source: &impl Source,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        let wanted = Wanted::new(token, interest, mode, false);
        self.change(source.inner(), source.id(), wanted)
    }

    /// Like [`reregister`](Self::reregister), for one report.
    ///
    /// # Errors
    /// The errors of [`reregister`](Self::reregister).
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let mut poll = Poll::new(&here);
    /// poll.register_once(&client, Token(1), Interest::WRITABLE, Mode::Level)?;
    /// let mut events = Events::with_capacity(8);
    /// poll.wait(&mut events, None)?;
    /// poll.reregister_once(&client, Token(1), Interest::WRITABLE, Mode::Level)?;
    /// assert_eq!(poll.wait(&mut events, None)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reregister_once(
        &mut self,
        source: &impl Source,
        token: Token,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        let wanted = Wanted::new(token, interest, mode, true);
        self.change(source.inner(), source.id(), wanted)
    }

    /// Stops watching a socket. Closing the socket has the same effect.
    ///
    /// # Errors
    /// `NotFound` if this poll does not watch it.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let mut poll = Poll::new(&here);
    /// poll.register(&client, Token(1), Interest::READABLE, Mode::Level)?;
    /// poll.deregister(&client)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deregister(&mut self, source: &impl Source) -> io::Result<()> {
        self.remove(source, None)
    }

    /// Ends the registration of a socket that has this token.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let mut poll = Poll::naming_by_token(&here);
    /// poll.register(&client, Token(1), Interest::READABLE, Mode::Level)?;
    /// poll.deregister_as(&client, Token(1))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deregister_as(&mut self, source: &impl Source, token: Token) -> io::Result<()> {
        self.remove(source, Some(token))
    }

    fn remove(&mut self, source: &impl Source, name: Option<Token>) -> io::Result<()> {
        self.may_watch(source.inner())?;
        let state = &mut *self.inner.state();
        let found = state
            .polls
            .remove(self.index, source.id(), name, &mut state.sockets);
        match found {
            true => Ok(()),
            false => Err(Errno::NOENT.into()),
        }
    }

    /// Begins to watch another poll of this context. That poll is readable while a wait on it would
    /// find an event.
    ///
    /// # Errors
    /// `AlreadyExists`; `InvalidInput` for a poll of another context, or polls nested too deeply;
    /// `ELOOP` for a poll that watches this one.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let (mut outer, mut inner) = (Poll::new(&context), Poll::new(&context));
    /// outer.register_poll(&mut inner, Token(9), Interest::READABLE, Mode::Level, false)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register_poll(
        &mut self,
        other: &mut Poll,
        token: Token,
        interest: Interest,
        mode: Mode,
        one_shot: bool,
    ) -> io::Result<()> {
        if !Rc::ptr_eq(&other.inner, &self.inner) {
            return Err(Errno::INVAL.into());
        }
        let wanted = Wanted::new(token, interest, mode, one_shot);
        let nested = self
            .inner
            .state()
            .polls
            .nest(self.index, other.index, wanted);
        nested.map_err(|error| match error {
            NestError::Exists => Errno::EXIST,
            NestError::Loop => Errno::LOOP,
            NestError::TooDeep => Errno::INVAL,
        })?;
        // The kernel watches the other poll's kernel descriptors, also those that it adds later.
        let events = kernel_events(wanted);
        let watched = other
            .kernel()
            .and_then(|kernel| self.register_fd_with(kernel, token, events));
        if watched.is_err() {
            self.inner.state().polls.unnest(self.index, other.index);
        }
        watched
    }

    /// Changes the interest in a watched poll.
    ///
    /// # Errors
    /// `NotFound` if this poll does not watch it.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let (mut outer, mut inner) = (Poll::new(&context), Poll::new(&context));
    /// outer.register_poll(&mut inner, Token(9), Interest::READABLE, Mode::Level, false)?;
    /// outer.reregister_poll(&mut inner, Token(9), Interest::READABLE, Mode::Edge, false)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reregister_poll(
        &mut self,
        other: &mut Poll,
        token: Token,
        interest: Interest,
        mode: Mode,
        one_shot: bool,
    ) -> io::Result<()> {
        self.may_watch(&other.inner)?;
        let wanted = Wanted::new(token, interest, mode, one_shot);
        let found = self
            .inner
            .state()
            .polls
            .renest(self.index, other.index, wanted);
        if !found {
            return Err(Errno::NOENT.into());
        }
        self.reregister_fd_with(other.kernel()?, token, kernel_events(wanted))
    }

    /// Stops watching a poll. Dropping the watched poll has the same effect.
    ///
    /// # Errors
    /// `NotFound` if this poll does not watch it.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let (mut outer, mut inner) = (Poll::new(&context), Poll::new(&context));
    /// outer.register_poll(&mut inner, Token(9), Interest::READABLE, Mode::Level, false)?;
    /// outer.deregister_poll(&mut inner)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deregister_poll(&mut self, other: &mut Poll) -> io::Result<()> {
        self.may_watch(&other.inner)?;
        if !self.inner.state().polls.unnest(self.index, other.index) {
            return Err(Errno::NOENT.into());
        }
        self.deregister_fd(other.kernel()?)
    }

    /// `READABLE` while a wait on this poll would find an event.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let mut poll = Poll::new(&here);
    /// poll.register(&client, Token(1), Interest::WRITABLE, Mode::Level)?;
    /// assert_eq!(poll.readiness(), Readiness::READABLE);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        let is_ready = self.inner.state().has_something(self.index) || self.has_kernel_events();
        match is_ready {
            true => Readiness::READABLE,
            false => Readiness::NONE,
        }
    }

    /// Waits until a watched source is ready or `timeout` has passed, and returns the number of
    /// events. The wait turns the stack: it first sends what the application has written, closed
    /// and connected since the last wait. While the stack is busy, the wait asks the kernel for its
    /// descriptors every [`KERNEL_ASKED_EVERY_NS`](crate::limits::KERNEL_ASKED_EVERY_NS); otherwise
    /// each time.
    ///
    /// A wait may report a part of the ready sources and leave the others to the next wait. With a
    /// `timeout` of zero it reports all of them to a program that was away for
    /// [`POLLER_AWAY_NS`](crate::limits::POLLER_AWAY_NS). If it finds none and a helper thread
    /// needs this CPU to move frames, the wait yields to that thread once.
    ///
    /// # Errors
    /// The kernel's error from the sleep; `Interrupted` if the context has an
    /// [`Interrupter`](crate::Interrupter); `NetworkDown` when the wire is gone for good;
    /// `WouldBlock` on a virtual clock, which does not move while a call waits.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// server.write_all(b"hello")?;
    /// there.turn_until_idle()?;
    /// let mut poll = Poll::new(&here);
    /// poll.register(&client, Token(1), Interest::READABLE, Mode::Level)?;
    /// let mut events = Events::with_capacity(8);
    /// assert_eq!(poll.wait(&mut events, None)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<usize> {
        events.events.clear();
        self.kernel_first = !self.kernel_first;
        let inner = self.inner.clone();
        let mut crank = inner.crank();
        crank.enter();
        let mut is_whole = false;
        let mut until_ns = None;
        let mut is_fresh = true;
        let mut gave_way = false;
        let mut turns = 0;
        let outcome = loop {
            let turn = match crank.turn_before_answers() {
                Ok(turn) => turn,
                Err(error) => break Err(error),
            };
            let has_news = inner.drain_events() || turn == Turn::Moved;
            let now_ns = crank.turned_ns();
            is_whole |= self.hands_over_all(now_ns, timeout);
            if until_ns.is_none() {
                until_ns = timeout.map(|timeout| ns_after(now_ns, timeout));
            }
            turns += 1;
            if crank.is_behind() && turns < ANSWERS_LEAVE_TURNS_MAX && self.is_crowded() {
                continue;
            }
            let is_over = until_ns.is_some_and(|until_ns| now_ns >= until_ns);
            // Ask the kernel at once if the stack has no news, and after a sleep, which a
            // descriptor may have ended. Otherwise ask only when due, even while the stack finds no
            // work: the system call takes several times as long as a look.
            let asks_kernel = (is_fresh && !has_news) || self.is_kernel_due(now_ns);
            is_fresh = false;
            if let Err(error) = self.collect(events, is_whole || turn != Turn::Moved, asks_kernel) {
                break Err(error);
            }
            // Before it reports nothing, a wait has looked at all sources.
            if events.is_empty()
                && is_over
                && !asks_kernel
                && let Err(error) = self.collect_kernel(events)
            {
                break Err(error);
            }
            // A program that never sleeps would keep the helper thread waiting for a whole time
            // slice.
            if events.is_empty() && is_over && !gave_way && crank.give_way_to_helper() {
                gave_way = true;
                continue;
            }
            if !events.is_empty() || is_over {
                break Ok(events.events.len());
            }
            if turn == Turn::Idle || inner.is_interrupted() {
                is_fresh = true;
                let extra = self.kernel.as_ref().map(AsFd::as_fd);
                match inner.sleep(&mut crank, until_ns, extra.as_slice()) {
                    Ok(false) => {}
                    Ok(true) => break Err(Errno::INTR.into()),
                    Err(error) => break Err(error),
                }
            }
        };
        crank.leave();
        outcome
    }

    /// True if many of a large number of sockets are ready. The previous answers then leave before
    /// these events are reported, or answers would pile up between application and wire.
    fn is_crowded(&self) -> bool {
        let state = self.inner.state();
        state.polls.listed(self.index) >= EVENTS_PER_WAIT_MANY
            && state.sockets.open_count() > FEW_SOCKETS_MAX
    }

    /// True if a wait at `now_ns` reports all ready sources. A program that polls and does other
    /// things in between may be away for long after this wait, so it gets all events, as in Linux.
    fn hands_over_all(&mut self, now_ns: u64, timeout: Option<Duration>) -> bool {
        let before_ns = std::mem::replace(&mut self.waited_ns, now_ns);
        timeout == Some(Duration::ZERO) && now_ns.saturating_sub(before_ns) >= POLLER_AWAY_NS
    }

    /// Appends events of ready sources to `events`: sockets up to one wait's share, and kernel
    /// descriptors if `asks_kernel`.
    fn collect(
        &mut self,
        events: &mut Events,
        is_whole: bool,
        asks_kernel: bool,
    ) -> io::Result<()> {
        let asks_kernel = asks_kernel && self.kernel.is_some();
        if asks_kernel && self.kernel_first {
            self.collect_kernel(events)?;
        }
        point();
        let inner = self.inner.clone();
        let state = &mut *inner.state();
        let share = state.share_of_events(self.index, is_whole);
        let room = events.capacity.min(events.events.len() + share);
        state.collect(self.index, &mut events.events, room);
        if state.polls.has_nested(self.index) {
            state.collect_nested(self.index, &mut events.events, events.capacity);
        }
        point();
        if asks_kernel && !self.kernel_first {
            self.collect_kernel(events)?;
        }
        Ok(())
    }

    fn add(&mut self, inner: &Rc<Inner>, id: SocketId, wanted: Wanted) -> io::Result<()> {
        if !Rc::ptr_eq(inner, &self.inner) {
            return Err(Errno::INVAL.into());
        }
        let name = self.name(wanted.token);
        let state = &mut *self.inner.state();
        let added = state
            .polls
            .add(self.index, id, name, wanted, &mut state.sockets);
        if added {
            Ok(())
        } else {
            Err(Errno::EXIST.into())
        }
    }

    /// Refuses a source of another context, whose number may be that of a socket here.
    fn may_watch(&self, inner: &Rc<Inner>) -> io::Result<()> {
        match Rc::ptr_eq(inner, &self.inner) {
            true => Ok(()),
            false => Err(Errno::NOENT.into()),
        }
    }

    fn change(&mut self, inner: &Rc<Inner>, id: SocketId, wanted: Wanted) -> io::Result<()> {
        self.may_watch(inner)?;
        let name = self.name(wanted.token);
        let state = &mut *self.inner.state();
        let found = state
            .polls
            .change(self.index, id, name, wanted, &mut state.sockets);
        if found {
            Ok(())
        } else {
            Err(Errno::NOENT.into())
        }
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        let state = &mut *self.inner.state();
        state.polls.close_poll(self.index, &mut state.sockets);
    }
}
