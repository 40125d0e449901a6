//! Sockets that are neither connected nor listening. They take options and a local address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use ring::socket_block::{Requests, SocketId};
use rustix::io::Errno;
use stack::context::{AcceptRings, Bind, Connect, Control, FastOpenQuery, Listen};

use crate::app_socket::Kind;
use crate::context::{Context, Inner};
use crate::event::Readiness;
use crate::listener::TcpListener;
use crate::options::SocketOptions;
use crate::poll::{Source, sealed};
use crate::settings::Settings;
use crate::stream::TcpStream;

/// A TCP socket that becomes a [`TcpStream`] or a [`TcpListener`].
///
/// ```no_run
/// use millstream::TcpSocket;
/// # fn run(context: &millstream::Context) -> std::io::Result<()> {
/// let socket = TcpSocket::new_v4(context)?;
/// socket.options().set_reuse_addr(true);
/// socket.options().set_nodelay(true)?;
/// socket.bind("10.0.0.2:80".parse().unwrap())?;
/// let listener = socket.listen(1024).expect("nobody else listens there");
/// # Ok(()) }
/// ```
pub struct TcpSocket {
    inner: Rc<Inner>,
    id: SocketId,
    is_v6: bool,
    bound: std::cell::Cell<Option<SocketAddr>>,
    /// The local address of a connection, if the socket is not bound.
    source: std::cell::Cell<Option<IpAddr>>,
    /// A stream or listener has taken over the socket's id.
    is_spent: bool,
}

/// A socket whose change was refused, and the reason. The socket is unchanged.
///
/// ```
#[doc = include_str!("doc/context.txt")]
/// let socket = TcpSocket::new_v4(&context)?;
/// let Refused { socket, error } = socket.start_connect("192.0.2.1:80".parse()?).err().unwrap();
/// assert_eq!(error.kind(), std::io::ErrorKind::NetworkUnreachable);
/// socket.start_connect("10.0.0.2:80".parse()?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Refused {
    /// The socket, to try again with.
    pub socket: TcpSocket,
    /// The reason.
    pub error: io::Error,
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        refused.error
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.error, f)
    }
}

impl std::error::Error for Refused {}

impl std::fmt::Debug for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.error, f)
    }
}

impl TcpSocket {
    /// A socket for IPv4.
    ///
    /// # Errors
    /// `ENOBUFS` at the limit of sockets.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// assert!(!TcpSocket::new_v4(&context)?.is_v6());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new_v4(context: &Context) -> io::Result<Self> {
        Self::new(context.inner.clone(), false)
    }

    /// A socket for IPv6. When bound to `::` it listens for IPv4 too, unless `IPV6_V6ONLY` is set.
    ///
    /// # Errors
    /// `ENOBUFS` at the limit of sockets.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// assert!(TcpSocket::new_v6(&context)?.is_v6());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new_v6(context: &Context) -> io::Result<Self> {
        let socket = Self::new(context.inner.clone(), true)?;
        socket.options().change(|settings| settings.dual = true);
        Ok(socket)
    }

    fn new(inner: Rc<Inner>, is_v6: bool) -> io::Result<Self> {
        let id = inner.socket()?;
        inner.state().sockets.open(id, Kind::Idle);
        Ok(Self {
            inner,
            id,
            is_v6,
            bound: None.into(),
            source: None.into(),
            is_spent: false,
        })
    }

    /// A new socket with the given settings, bound to the address of a socket that is gone.
    pub(crate) fn like(
        inner: Rc<Inner>,
        is_v6: bool,
        bound: Option<SocketAddr>,
        settings: Option<Rc<Settings>>,
    ) -> io::Result<Self> {
        let socket = Self::new(inner, is_v6)?;
        socket.inner.state().sockets.at(socket.id).settings = settings.map(Settings::survivors);
        if let Some(local) = bound {
            socket.bind_as(local, true)?;
        }
        Ok(socket)
    }

    /// The socket's options.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let socket = TcpSocket::new_v4(&context)?;
    /// socket.options().set_reuse_addr(true);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn options(&self) -> SocketOptions<'_> {
        SocketOptions::new(&self.inner, self.id)
    }

    /// The socket's readiness: `WRITABLE` and `HANGUP`, as in Linux.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let socket = TcpSocket::new_v4(&context)?;
    /// assert!(socket.readiness().contains(Readiness::HANGUP));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.inner.state().readiness(self.id)
    }

    /// The address to which the socket is bound.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let socket = TcpSocket::new_v4(&context)?;
    /// assert_eq!(socket.local_addr(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.bound.get()
    }

    /// True for an IPv6 socket.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// assert!(!TcpSocket::new_v4(&context)?.is_v6());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_v6(&self) -> bool {
        self.is_v6
    }

    /// Binds to a local address: one of ours or an unspecified one. With port 0 the stack chooses.
    ///
    /// # Errors
    /// `AddrInUse`, `AddrNotAvailable`; `InvalidInput` if it is bound already.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let socket = TcpSocket::new_v4(&context)?;
    /// let local = socket.bind("10.0.0.1:0".parse()?)?;
    /// assert_ne!(local.port(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn bind(&self, local: SocketAddr) -> io::Result<SocketAddr> {
        self.bind_as(local, false)
    }

    /// Binds; `again`: takes over the place of another socket, which was bound there until now.
    fn bind_as(&self, local: SocketAddr, again: bool) -> io::Result<SocketAddr> {
        if self.bound.get().is_some() {
            return Err(Errno::INVAL.into());
        }
        let dual = self.is_v6 && self.options().with_settings(|settings| settings.dual);
        self.inner.lease.reserve(local, dual)?;
        let asked = self.inner.ask(|answer| {
            Control::Bind(self.options().with_settings(|settings| Bind {
                socket: self.id,
                local,
                dual: settings.dual && self.is_v6,
                reuse_addr: settings.reuse_addr,
                reuse_port: settings.reuse_port,
                free: settings.free_bind,
                again,
                answer,
            }))
        });
        let said = asked
            .and_then(|said| Ok(said?))
            .inspect_err(|_| self.inner.lease.release(local, dual))?;
        self.bound.set(Some(said));
        if said.is_ipv6() && !said.ip().is_unspecified() {
            // Linux reports `IPV6_V6ONLY` too: no IPv4 peer can be reached from there.
            self.options().set_dual(false)?;
        }
        Ok(said)
    }

    /// Sets the local address of a connection, unless the socket is bound. The port is chosen at
    /// connect and unique for that peer only (`IP_BIND_ADDRESS_NO_PORT`). If the address is not
    /// ours, the attempt to connect fails with `AddrNotAvailable`.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let socket = TcpSocket::new_v4(&context)?;
    /// socket.set_source("10.0.0.1".parse()?);
    /// let stream = socket.start_connect("10.0.0.2:80".parse()?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_source(&self, source: IpAddr) {
        self.source.set(Some(source));
    }

    /// The address that [`set_source`](Self::set_source) gave.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// assert_eq!(TcpSocket::new_v4(&context)?.source(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn source(&self) -> Option<IpAddr> {
        self.source.get()
    }

    /// The unspecified address, at which an unbound socket listens.
    fn any(&self) -> SocketAddr {
        let any: IpAddr = match self.is_v6 {
            true => Ipv6Addr::UNSPECIFIED.into(),
            false => Ipv4Addr::UNSPECIFIED.into(),
        };
        SocketAddr::new(self.source.get().unwrap_or(any), 0)
    }

    /// Listens where the socket is bound, or at a port of the stack's choice. `backlog` is as for
    /// Linux's `listen`: the accept queue holds one more. While it is full, handshakes do not
    /// complete. `backlog` is cut to [`Limits::backlog_max`](crate::Limits).
    ///
    /// # Errors
    /// `AddrInUse`; `ENOBUFS` at the limit of listeners.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let socket = TcpSocket::new_v4(&context)?;
    /// socket.bind("10.0.0.1:80".parse()?)?;
    /// let listener = socket.listen(128)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn listen(mut self, backlog: usize) -> Result<TcpListener, Refused> {
        if self.bound.get().is_none()
            && let Err(error) = self.bind(self.any())
        {
            return Err(Refused {
                socket: self,
                error,
            });
        }
        match self.try_listen(backlog) {
            Ok(listener) => Ok(listener),
            Err(error) => Err(Refused {
                socket: self,
                error,
            }),
        }
    }

    fn try_listen(&mut self, backlog: usize) -> io::Result<TcpListener> {
        let Some(local) = self.bound.get() else {
            return Err(Errno::INVAL.into());
        };
        let dual = self.is_v6 && self.options().with_settings(|settings| settings.dual);
        let (config, tcp) = (self.inner.config(), self.inner.tcp_config());
        let backlog = backlog.min(config.limits.backlog_max);
        let (accepted, queue) = ring::spsc::queue(backlog + 1);
        let rings = AcceptRings::new(queue);
        // A listener forgets `TCP_QUICKACK`, as in Linux.
        self.options().change(|settings| settings.quick_ack = None);
        let options = self
            .options()
            .with_settings(|settings| settings.for_stack(&tcp));
        self.inner.ask(|answer| {
            Control::Listen(Listen {
                socket: self.id,
                local,
                accepted,
                rings: Arc::clone(&rings),
                backlog: backlog as u32,
                options,
                answer: Some(answer),
            })
        })??;
        let id = self.id;
        self.inner.state().sockets.at(id).queue = Some(rings);
        self.inner.state().become_kind(id, Kind::Listener);
        self.is_spent = true;
        let listener = TcpListener::of(self.inner.clone(), id, local, backlog);
        self.inner.lease.joins_listeners(local, dual)?;
        Ok(listener)
    }

    /// Begins to connect and returns a non-blocking stream at once. The stream becomes writable in
    /// a [`Poll`](crate::Poll) when the outcome is known; [`TcpStream::take_error`] then returns
    /// it.
    ///
    /// # Errors
    /// The errors that are known at once: `NetworkUnreachable`, `AddrInUse`, `AddrNotAvailable`,
    /// `ENOBUFS`.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let socket = TcpSocket::new_v4(&context)?;
    /// let stream = socket.start_connect("10.0.0.2:80".parse()?)?;
    /// assert!(stream.is_connecting());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_connect(self, remote: SocketAddr) -> Result<TcpStream, Refused> {
        self.connect_with(remote, false)
    }

    /// Number of bytes that a SYN to `remote` could carry now (RFC 7413); `None` without a cookie
    /// of that peer.
    ///
    /// # Errors
    /// Errors of waiting for the stack's answer.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let socket = TcpSocket::new_v4(&context)?;
    /// let room = socket.fast_open_room("10.0.0.2:80".parse()?)?;
    /// assert_eq!(room, None, "no cookie yet");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fast_open_room(&self, remote: SocketAddr) -> io::Result<Option<usize>> {
        let said = self.inner.ask(|answer| {
            Control::FastOpenQuery(self.options().with_settings(|settings| FastOpenQuery {
                socket: self.id,
                remote: SocketAddr::new(remote.ip().to_canonical(), remote.port()),
                mss_max: settings.max_segment,
                no_cookie: settings.fast_open_no_cookie,
                answer,
            }))
        })?;
        Ok(said.has_cookie.then_some(said.syn_bytes_max as usize))
    }

    /// Like [`start_connect`](Self::start_connect), with Fast Open (RFC 7413). The SYN carries as
    /// many of `bytes` as it has room for, and the call returns their number. Without a cookie the
    /// SYN asks for one and carries none. `waits`: the caller waits for the handshake, so the send
    /// buffer takes all that it has room for; the handshake's last ACK carries what the SYN could
    /// not.
    ///
    /// # Errors
    /// The errors of [`start_connect`](Self::start_connect).
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let socket = TcpSocket::new_v4(&context)?;
    /// let peer = "10.0.0.2:80".parse()?;
    /// let (stream, taken) = socket.start_connect_fast(peer, b"GET / HTTP/1.0\r\n\r\n", false)?;
    /// assert_eq!(taken, 0, "no cookie yet");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_connect_fast(
        self,
        remote: SocketAddr,
        bytes: &[u8],
        waits: bool,
    ) -> Result<(TcpStream, usize), Refused> {
        let room = match self.fast_open_room(remote) {
            Ok(room) => room.unwrap_or(0),
            Err(error) => {
                return Err(Refused {
                    socket: self,
                    error,
                });
            }
        };
        let wanted = match waits {
            true => bytes,
            false => &bytes[..room.min(bytes.len())],
        };
        let written = self.inner.state().write_ahead(self.id, wanted);
        let stream = self.connect_with(remote, true)?;
        Ok((stream, written))
    }

    /// Makes the socket connect with the first write (`TCP_FASTOPEN_CONNECT`). Until then it is
    /// writable and not hung up. The caller has to connect at that write.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let socket = TcpSocket::new_v4(&context)?;
    /// socket.defer_connect(true);
    /// assert!(!socket.readiness().contains(Readiness::HANGUP));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn defer_connect(&self, on: bool) {
        let kind = if on { Kind::Deferred } else { Kind::Idle };
        self.inner.state().become_kind(self.id, kind);
    }

    fn connect_with(mut self, remote: SocketAddr, fast_open: bool) -> Result<TcpStream, Refused> {
        if let Err(error) = self.try_connect(remote, fast_open) {
            return Err(Refused {
                socket: self,
                error,
            });
        }
        self.is_spent = true;
        self.inner.state().become_kind(self.id, Kind::Stream);
        let stream = TcpStream::begun(self.inner.clone(), self.id, self.bound.get(), remote);
        Ok(stream)
    }

    fn try_connect(&self, remote: SocketAddr, fast_open: bool) -> io::Result<()> {
        let tcp = self.inner.tcp_config();
        let options = self
            .options()
            .with_settings(|settings| settings.for_stack(&tcp));
        self.inner.state().name_peer(self.id, remote);
        let source = || self.source.get().map(|ip| SocketAddr::new(ip, 0));
        self.inner.ask(|answer| {
            Control::Connect(Connect {
                socket: self.id,
                local: self.bound.get().or_else(source),
                remote: SocketAddr::new(remote.ip().to_canonical(), remote.port()),
                options,
                fast_open,
                answer: Some(answer),
            })
        })??;
        if self.inner.state().is_to_itself(self.id) {
            self.inner.note_talk_to_itself();
        }
        Ok(())
    }
}

impl TcpListener {
    /// Stops listening and returns a socket with the same options, bound to the same address.
    /// Resets connections that were not accepted.
    ///
    /// # Errors
    /// `ENOBUFS` at the limit of sockets; `AddrInUse` if another socket has taken the address.
    ///
    /// ```
    #[doc = include_str!("doc/context.txt")]
    /// let listener = TcpListener::bind(&context, "10.0.0.1:80".parse()?)?;
    /// let socket = listener.into_socket()?;
    /// assert_eq!(socket.local_addr(), Some("10.0.0.1:80".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_socket(self) -> io::Result<TcpSocket> {
        let (inner, local) = (self.inner.clone(), self.local_addr());
        let settings = self.inner.state().sockets.at(self.id).settings.clone();
        drop(self);
        TcpSocket::like(inner, local.is_ipv6(), Some(local), settings)
    }
}

impl TcpStream {
    /// Dissolves the connection (`connect` to `AF_UNSPEC`) and resets it if it is open. Returns a
    /// socket with the same options, bound to the same address. As in Linux, `TCP_MAXSEG`,
    /// `TCP_WINDOW_CLAMP` and `TCP_QUICKACK` are lost.
    ///
    /// # Errors
    /// `ENOBUFS` at the limit of sockets; `AddrInUse` if another socket has taken the address.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let socket = client.into_socket()?;
    /// let stream = socket.start_connect("10.0.0.2:80".parse()?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_socket(self) -> io::Result<TcpSocket> {
        let (inner, is_v6) = (self.inner.clone(), self.is_v6);
        let bound = self.bound();
        let settings = self.inner.state().sockets.at(self.id).settings.clone();
        self.abort();
        TcpSocket::like(inner, is_v6, bound, settings)
    }
}

impl Drop for TcpSocket {
    fn drop(&mut self) {
        if !self.is_spent {
            self.inner.state().close(self.id, Requests::CLOSE);
        }
    }
}

impl sealed::Sealed for TcpSocket {
    fn id(&self) -> SocketId {
        self.id
    }

    fn inner(&self) -> &Rc<Inner> {
        &self.inner
    }
}

impl Source for TcpSocket {}
