//! Listening sockets.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use ring::socket_block::{Requests, SocketId, SocketState};
use rustix::io::Errno;
use stack::context::{AcceptCall, AcceptRings, Accepted, Backlog, Control, Listen, SocketOption};

use crate::app_socket::Kind;
use crate::context::{Context, Inner};
use crate::event::Readiness;
use crate::options::SocketOptions;
use crate::poll::{Source, sealed};
use crate::settings::Settings;
use crate::state::State;
use crate::stream::{TcpStream, would_block};

/// Accepts connections at an address and port of its context.
///
/// Each context listens for itself: a server on several cores binds the same address in each.
///
/// ```
#[doc = include_str!("doc/context.txt")]
/// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
/// assert_eq!(listener.local_addr().port(), 80);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TcpListener {
    pub(crate) inner: Rc<Inner>,
    pub(crate) id: SocketId,
    local: SocketAddr,
    nonblocking: std::cell::Cell<bool>,
    backlog: std::cell::Cell<usize>,
}

/// The options of a listener to be made.
///
/// ```
#[doc = include_str!("doc/context.txt")]
/// let builder = TcpListener::builder(&context).backlog(64).nodelay(true);
/// let listener = builder.bind("10.0.0.1:80".parse()?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ListenerBuilder {
    inner: Rc<Inner>,
    backlog: usize,
    options: Vec<SocketOption>,
    settings: Settings,
}

impl TcpListener {
    pub(crate) fn of(inner: Rc<Inner>, id: SocketId, local: SocketAddr, backlog: usize) -> Self {
        inner.lease.listens(local.port(), true);
        let listener = Self {
            inner,
            id,
            local,
            nonblocking: false.into(),
            backlog: backlog.into(),
        };
        let dual = local.is_ipv6() && listener.options().with_settings(|settings| settings.dual);
        let place = (local, dual);
        listener.inner.listening.borrow_mut().push(place);
        listener
    }

    /// The listener's options, which accepted connections inherit.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
    /// listener.options().set_nodelay(true)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn options(&self) -> SocketOptions<'_> {
        SocketOptions::new(&self.inner, self.id)
    }

    /// Listens at `local`: one of our addresses, or an unspecified one for all of that family.
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable`; `ENOBUFS` at the limit of sockets or listeners.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let listener = TcpListener::bind(&context, "0.0.0.0:80".parse()?)?;
    /// assert!(TcpListener::bind(&context, "10.0.0.9:80".parse()?).is_err(), "not our address");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bind(context: &Context, local: SocketAddr) -> io::Result<Self> {
        Self::builder(context).bind(local)
    }

    /// Listens with settings other than the defaults.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let listener = TcpListener::builder(&context).bind("10.0.0.1:80".parse()?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn builder(context: &Context) -> ListenerBuilder {
        let backlog = context.inner.config().limits.backlog_max;
        ListenerBuilder {
            inner: context.inner.clone(),
            backlog,
            options: Vec::new(),
            settings: Settings::default(),
        }
    }

    /// The next connection and its peer's address.
    ///
    /// # Errors
    /// `WouldBlock` if no connection waits and the listener is non-blocking, or none arrives within
    /// its receive timeout.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let client = TcpStream::connect(&here, listener.local_addr())?;
    /// let (server, peer) = listener.accept()?;
    /// assert_eq!(Some(peer), client.local_addr());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let accepted = take_accepted(&mut self.inner.state(), self.id);
        let accepted = match accepted {
            Some(accepted) => accepted,
            None if self.nonblocking.get() => return Err(io::ErrorKind::WouldBlock.into()),
            None => {
                let until_ns = self.inner.until(self.options().recv_timeout());
                self.inner
                    .block_until(until_ns, |state| take_accepted(state, self.id).map(Ok))
                    .map_err(would_block)?
            }
        };
        let Accepted { socket, remote, .. } = accepted;
        let state = &mut *self.inner.state();
        state.sockets.open(socket, Kind::Stream);
        let settings = state.sockets.at(self.id).settings.clone();
        state.sockets.at(socket).settings = settings.map(Settings::of_accepted);
        Ok((
            TcpStream::accepted(self.inner.clone(), socket, remote),
            remote,
        ))
    }

    /// Sets whether `accept` returns at once when no connection waits.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
    /// listener.set_nonblocking(true);
    /// let error = listener.accept().map(|_| ()).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.set(nonblocking);
    }

    /// The backlog as given to `listen`. One more connection may wait to be accepted, as in Linux.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
    /// assert_eq!(listener.backlog(), context.limits().backlog_max);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.backlog.get()
    }

    /// Changes the backlog as a second `listen` does: `backlog` connections and one more may wait
    /// to be accepted. Waiting connections stay. Cut to [`Limits::backlog_max`](crate::Limits).
    ///
    /// # Errors
    /// Errors of asking the stack.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
    /// listener.set_backlog(16)?;
    /// assert_eq!(listener.backlog(), 16);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_backlog(&self, backlog: usize) -> io::Result<()> {
        let backlog = backlog.min(self.inner.config().limits.backlog_max);
        self.backlog.set(backlog);
        let mut longer = None;
        if let Some(queue) = &self.inner.state().sockets.at(self.id).queue
            && queue.capacity() <= backlog
        {
            let (accepted, ring) = ring::spsc::queue(backlog + 1);
            queue.add(ring);
            longer = Some(accepted);
        }
        self.inner.control(Control::Backlog(Backlog {
            socket: self.id,
            backlog: backlog as u32,
            longer,
        }))
    }

    /// The number of connections that wait to be accepted, and the [`backlog`](Self::backlog).
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
    /// let (waiting, backlog) = listener.queued();
    /// assert!(waiting == 0 && backlog == listener.backlog());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn queued(&self) -> (usize, usize) {
        let mut state = self.inner.state();
        let queue = state.sockets.at(self.id).queue.as_ref();
        let waiting = queue.map_or(0, |queue| queue.len());
        (waiting, self.backlog.get())
    }

    /// Notes that a call waits for a connection, until the note is dropped. Among the processes
    /// that share an address, connections that one of them does not accept go to one with such a
    /// call.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
    /// let call = listener.begin_call();
    /// assert!(call.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn begin_call(&self) -> Option<AcceptCall> {
        let state = &mut *self.inner.state();
        let queue = state.sockets.at(self.id).queue.as_ref()?;
        Some(queue.begin_call())
    }

    /// The listener's readiness: `READABLE` while a connection waits.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
    /// assert_eq!(listener.readiness(), Readiness::NONE);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.inner.state().readiness(self.id)
    }

    /// The address at which the socket listens.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
    /// assert_eq!(listener.local_addr(), "10.0.0.1:80".parse()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

impl ListenerBuilder {
    /// The length of the accept queue. While it is full, handshakes do not complete here and peers
    /// retransmit. Cut to [`Limits::backlog_max`](crate::Limits).
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let builder = TcpListener::builder(&context).backlog(64);
    /// assert_eq!(builder.bind("10.0.0.1:80".parse()?)?.backlog(), 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn backlog(mut self, backlog: usize) -> Self {
        self.backlog = backlog;
        self
    }

    /// Accepted connections begin with `TCP_NODELAY`.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let builder = TcpListener::builder(&context).nodelay(true);
    /// assert!(builder.bind("10.0.0.1:80".parse()?)?.options().nodelay());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn nodelay(mut self, on: bool) -> Self {
        self.options.push(SocketOption::NoDelay(on));
        self.settings.nodelay = on;
        self
    }

    /// Listens at `local`.
    ///
    /// # Errors
    /// The errors of [`TcpListener::bind`].
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let builder = TcpListener::builder(&context).backlog(64);
    /// let listener = builder.bind("10.0.0.1:80".parse()?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bind(self, local: SocketAddr) -> io::Result<TcpListener> {
        let Self {
            inner,
            backlog,
            options,
            settings,
        } = self;
        if local.port() == 0 {
            return Err(Errno::ADDRNOTAVAIL.into());
        }
        inner.lease.reserve(local, false)?;
        let id = inner
            .socket()
            .inspect_err(|_| inner.lease.release(local, false))?;
        let capacity = backlog.clamp(1, inner.config().limits.backlog_max);
        let (accepted, queue) = ring::spsc::queue(capacity + 1);
        let rings = AcceptRings::new(queue);
        inner.state().sockets.open(id, Kind::Listener);
        {
            let state = &mut *inner.state();
            let socket = state.sockets.at(id);
            socket.queue = Some(Arc::clone(&rings));
            socket.settings = Some(Rc::new(settings));
        }
        let listener = TcpListener::of(inner, id, local, backlog);
        listener.inner.control(Control::Listen(Listen {
            socket: id,
            local,
            accepted,
            rings,
            backlog: capacity as u32,
            options,
            answer: None,
        }))?;
        let outcome = listener.inner.block_unannounced(|state| {
            let said = state.block(id).state();
            if said.contains(SocketState::FAILED) {
                return Some(Err(io::Error::from_raw_os_error(said.errno().into())));
            }
            said.contains(SocketState::LISTENING).then_some(Ok(()))
        });
        match outcome {
            Ok(()) => {
                listener.inner.lease.joins_listeners(local, false)?;
                Ok(listener)
            }
            Err(error) => {
                listener.inner.lease.release(local, false);
                Err(error)
            }
        }
    }
}

fn take_accepted(state: &mut State, id: SocketId) -> Option<Accepted> {
    state.sockets.at(id).queue.as_ref()?.pop()
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.inner.lease.listens(self.local.port(), false);
        let mut listening = self.inner.listening.borrow_mut();
        if let Some(at) = listening.iter().position(|(local, _)| *local == self.local) {
            listening.swap_remove(at);
        }
        drop(listening);
        // The stack resets connections that were not accepted, or hands them to another process.
        self.inner.state().close(self.id, Requests::CLOSE);
    }
}

impl sealed::Sealed for TcpListener {
    fn id(&self) -> SocketId {
        self.id
    }

    fn inner(&self) -> &Rc<Inner> {
        &self.inner
    }
}

impl Source for TcpListener {}
