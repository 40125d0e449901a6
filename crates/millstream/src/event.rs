//! The values of a [`Poll`](crate::Poll): a program's interests and the reported events.

use crate::limits::EVENTS_PER_WAIT_MAX;

/// The application's name for a registered source.
///
/// ```
/// use millstream::Token;
/// assert_eq!(Token(7).0, 7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub usize);

bitflags::bitflags! {
    /// The events that a registration asks for. Failures and hang-ups are always reported.
    ///
    /// ```
    /// use millstream::Interest;
    /// let both = Interest::READABLE | Interest::WRITABLE;
    /// assert!(both.contains(Interest::READABLE) && both.is_writable());
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Interest: u8 {
        /// Failures and hang-ups only.
        const NONE = 0;
        /// Something to read: bytes, the end of the peer's data, or a connection to accept.
        const READABLE = 1;
        /// Room to write, or the outcome of a connect.
        const WRITABLE = 2;
        /// The end of the peer's data, even while bytes before it are unread.
        const READ_CLOSED = 4;
        /// An urgent byte.
        const URGENT = 8;
    }

    /// The operations that a socket is ready for, and its state.
    ///
    /// ```
    /// use millstream::Readiness;
    /// let ready = Readiness::READABLE | Readiness::HANGUP;
    /// assert!(ready.contains(Readiness::HANGUP) && !ready.is_empty());
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Readiness: u8 {
        /// Nothing.
        const NONE = 0;
        /// Bytes, the end of the peer's data, a connection to accept, or an error that a read would
        /// return.
        const READABLE = 1;
        /// A third of the send buffer is free, or an error that a write would return.
        const WRITABLE = 1 << 1;
        /// The peer has closed its direction.
        const READ_CLOSED = 1 << 2;
        /// Both directions are closed.
        const HANGUP = 1 << 3;
        /// The connection failed.
        const ERROR = 1 << 4;
        /// An urgent byte has arrived: out of the stream, or ahead of the next reads.
        const URGENT = 1 << 5;
    }
}

impl Interest {
    /// The registration asks for something to read.
    ///
    /// ```
    /// assert!(millstream::Interest::READABLE.is_readable());
    /// ```
    #[must_use]
    pub const fn is_readable(self) -> bool {
        self.contains(Self::READABLE)
    }

    /// The registration asks for room to write.
    ///
    /// ```
    /// assert!(!millstream::Interest::READABLE.is_writable());
    /// ```
    #[must_use]
    pub const fn is_writable(self) -> bool {
        self.contains(Self::WRITABLE)
    }

    /// True if arriving things are of interest. Failures arrive, so an empty interest counts.
    pub(crate) const fn looks_in(self) -> bool {
        self.bits() != Self::WRITABLE.bits()
    }
}

impl Readiness {
    pub(crate) fn with(self, other: Self, when: bool) -> Self {
        if when { self.union(other) } else { self }
    }
}

/// The conditions for a poll to report a ready source.
///
/// ```
/// assert_eq!(millstream::Mode::default(), millstream::Mode::Level);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Reported at every wait while the source is ready.
    #[default]
    Level,
    /// Reported when something new has happened since the last report (`EPOLLET`).
    Edge,
}

/// A ready source.
///
/// ```
#[doc = include_str!("doc/connected.txt")]
/// let mut poll = Poll::new(&here);
/// poll.register(&client, Token(7), Interest::WRITABLE, Mode::Level)?;
/// let mut events = Events::with_capacity(8);
/// poll.wait(&mut events, None)?;
/// for event in &events {
///     assert_eq!(event.token(), Token(7));
///     assert!(event.is_writable());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    token: Token,
    ready: Readiness,
    /// The kernel's event bits; 0 for a socket.
    kernel: u32,
}

impl Event {
    pub(crate) const fn new(token: Token, ready: Readiness) -> Self {
        Self {
            token,
            ready,
            kernel: 0,
        }
    }

    pub(crate) const fn of_kernel(token: Token, ready: Readiness, kernel: u32) -> Self {
        Self {
            token,
            ready,
            kernel,
        }
    }

    /// The source's token.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// # let mut poll = Poll::new(&here);
    /// # poll.register(&client, Token(7), Interest::WRITABLE, Mode::Level)?;
    /// # let mut events = Events::with_capacity(8);
    /// # poll.wait(&mut events, None)?;
    /// # let event = events.iter().next().unwrap();
    /// assert_eq!(event.token(), Token(7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// The readiness that the following functions read, as one value.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// # let mut poll = Poll::new(&here);
    /// # poll.register(&client, Token(7), Interest::WRITABLE, Mode::Level)?;
    /// # let mut events = Events::with_capacity(8);
    /// # poll.wait(&mut events, None)?;
    /// # let event = events.iter().next().unwrap();
    /// assert_eq!(event.readiness(), Readiness::WRITABLE);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn readiness(&self) -> Readiness {
        self.ready
    }

    /// The events of a kernel descriptor in the kernel's own bits; `None` for a socket.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// # let mut poll = Poll::new(&here);
    /// # let (reader, mut writer) = std::io::pipe()?;
    /// # writer.write_all(b"x")?;
    /// # poll.register_fd(&reader, Token(1), Interest::READABLE)?;
    /// # let mut events = Events::with_capacity(8);
    /// # poll.wait(&mut events, None)?;
    /// # let event = events.iter().next().unwrap();
    /// const EPOLLIN: u32 = 1;
    /// assert!(event.kernel_events().is_some_and(|bits| bits & EPOLLIN != 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn kernel_events(&self) -> Option<u32> {
        match self.kernel {
            0 => None,
            bits => Some(bits),
        }
    }

    /// Reading makes progress: bytes, the end of the peer's data, an error, or a connection
    /// (`EPOLLIN`).
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// # server.write_all(b"x")?;
    /// # there.turn_until_idle()?;
    /// # let mut poll = Poll::new(&here);
    /// # poll.register(&client, Token(7), Interest::READABLE, Mode::Level)?;
    /// # let mut events = Events::with_capacity(8);
    /// # poll.wait(&mut events, None)?;
    /// # let event = events.iter().next().unwrap();
    /// assert!(event.is_readable());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn is_readable(&self) -> bool {
        self.ready.contains(Readiness::READABLE)
    }

    /// Writing makes progress (`EPOLLOUT`).
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// # let mut poll = Poll::new(&here);
    /// # poll.register(&client, Token(7), Interest::WRITABLE, Mode::Level)?;
    /// # let mut events = Events::with_capacity(8);
    /// # poll.wait(&mut events, None)?;
    /// # let event = events.iter().next().unwrap();
    /// assert!(event.is_writable());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn is_writable(&self) -> bool {
        self.ready.contains(Readiness::WRITABLE)
    }

    /// The peer closed its direction (`EPOLLRDHUP`).
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// # drop(server);
    /// # there.turn_until_idle()?;
    /// # let mut poll = Poll::new(&here);
    /// # poll.register(&client, Token(7), Interest::READ_CLOSED, Mode::Level)?;
    /// # let mut events = Events::with_capacity(8);
    /// # poll.wait(&mut events, None)?;
    /// # let event = events.iter().next().unwrap();
    /// // The server has closed its end.
    /// assert!(event.is_read_closed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn is_read_closed(&self) -> bool {
        self.ready.contains(Readiness::READ_CLOSED)
    }

    /// Both directions are closed (`EPOLLHUP`).
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// # server.abort();
    /// # there.turn_until_idle()?;
    /// # let mut poll = Poll::new(&here);
    /// # poll.register(&client, Token(7), Interest::READABLE, Mode::Level)?;
    /// # let mut events = Events::with_capacity(8);
    /// # poll.wait(&mut events, None)?;
    /// # let event = events.iter().next().unwrap();
    /// // The server has reset the connection.
    /// assert!(event.is_hangup());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn is_hangup(&self) -> bool {
        self.ready.contains(Readiness::HANGUP)
    }

    /// The connection failed (`EPOLLERR`); `take_error` returns the reason.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// # server.abort();
    /// # there.turn_until_idle()?;
    /// # let mut poll = Poll::new(&here);
    /// # poll.register(&client, Token(7), Interest::READABLE, Mode::Level)?;
    /// # let mut events = Events::with_capacity(8);
    /// # poll.wait(&mut events, None)?;
    /// # let event = events.iter().next().unwrap();
    /// // The server has reset the connection.
    /// assert!(event.is_error());
    /// assert_eq!(client.take_error().unwrap().kind(), std::io::ErrorKind::ConnectionReset);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn is_error(&self) -> bool {
        self.ready.contains(Readiness::ERROR)
    }
}

/// A buffer for the events of one wait.
///
/// ```
#[doc = include_str!("doc/context.txt")]
/// let mut events = Events::with_capacity(64);
/// let timeout = std::time::Duration::from_millis(1);
/// Poll::new(&context).wait(&mut events, Some(timeout))?;
/// assert!(events.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Events {
    pub(crate) events: Vec<Event>,
    pub(crate) capacity: usize,
}

impl Events {
    /// Room for `capacity` events, at least one and at most
    /// [`EVENTS_PER_WAIT_MAX`](crate::limits::EVENTS_PER_WAIT_MAX).
    ///
    /// ```
    /// let events = millstream::Events::with_capacity(256);
    /// assert!(events.is_empty());
    /// ```
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, EVENTS_PER_WAIT_MAX);
        Self {
            events: Vec::with_capacity(capacity),
            capacity,
        }
    }

    /// Makes room for `capacity` events from the next wait on, like
    /// [`with_capacity`](Self::with_capacity).
    ///
    /// ```
    /// let mut events = millstream::Events::with_capacity(256);
    /// events.set_capacity(16);
    /// ```
    pub fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity.clamp(1, EVENTS_PER_WAIT_MAX);
        self.events.clear();
        self.events.reserve(self.capacity);
    }

    /// The events of the last wait.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// # let mut poll = Poll::new(&here);
    /// # poll.register(&client, Token(7), Interest::WRITABLE, Mode::Level)?;
    /// # let mut events = Events::with_capacity(8);
    /// poll.wait(&mut events, None)?;
    /// assert_eq!(events.iter().count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iter(&self) -> std::slice::Iter<'_, Event> {
        self.events.iter()
    }

    /// True if the last wait timed out.
    ///
    /// ```
    /// let events = millstream::Events::with_capacity(256);
    /// assert!(events.is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = std::slice::Iter<'a, Event>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
