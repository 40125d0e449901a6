//! Connected sockets.

use std::cell::Cell;
use std::io::{self, IoSlice, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use ring::socket_block::{Name, Requests, SocketId, SocketState};
use rustix::io::Errno;
use stack::context::{
    AppSide, Connect, Control, IcmpNote, SocketOption, SoftErrorQuery, StampAnswer, StampKinds,
};

use crate::app_socket::Kind;
use crate::context::{Context, Inner};
use crate::event::Readiness;
use crate::options::SocketOptions;
use crate::poll::{Source, sealed};
use crate::settings::Linger;
use crate::state::{State, ask};
use crate::urgent::UrgentMark;

mod names;
mod read;
#[cfg(test)]
mod tests;
mod write;

/// A TCP connection. Dropping it closes it, and written data is still sent. If received bytes were
/// left unread, the connection is reset (RFC 2525 2.17).
///
/// A write on an empty send buffer is taken whole up to
/// [`WHOLE_WRITE_BYTES_MAX`](crate::limits::WHOLE_WRITE_BYTES_MAX), as by the kernel. It is cut
/// short if the buffer is smaller, by setting or because memory is short. It is also cut short if
/// the context had no chunk left at the stack's last look. For such a write even a non-blocking
/// socket lets the stack refill the chunks, and waits for the stack's thread if there is one
/// ([`CHUNKS_WAIT_NS_MAX`](crate::limits::CHUNKS_WAIT_NS_MAX) at most). On a virtual clock any lack
/// of chunks cuts the write short.
///
/// ```
#[doc = include_str!("doc/connected.txt")]
/// client.write_all(b"hello")?;
/// drop(client);
/// let mut text = String::new();
/// server.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TcpStream {
    pub(crate) inner: Rc<Inner>,
    pub(crate) id: SocketId,
    nonblocking: Cell<bool>,
    /// The connection was made to an IPv6 address, which may be an IPv4-mapped one.
    pub(crate) is_v6: bool,
    /// The parts of the addresses that do not fit the socket's block.
    opened: Option<Box<Opened>>,
}

/// See [`TcpStream::opened`].
#[derive(Clone, Copy)]
struct Opened {
    /// The remote address, with its scope and the flow label that the application gave.
    remote: SocketAddr,
    /// The address to which the socket was bound before it was connected.
    bound: Option<SocketAddr>,
}

const _: () = assert!(size_of::<TcpStream>() == 32);

impl TcpStream {
    /// Connects to `remote` and waits for the outcome.
    ///
    /// # Errors
    /// `ConnectionRefused`, `TimedOut`, unreachable, `AddrNotAvailable`, `ENOBUFS`.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let client = TcpStream::connect(&here, listener.local_addr())?;
    /// assert_eq!(client.peer_addr(), listener.local_addr());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect(context: &Context, remote: SocketAddr) -> io::Result<Self> {
        Self::connect_until(context, remote, None)
    }

    /// Like [`connect`](Self::connect), for at most `timeout`.
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect); `TimedOut` also when the time is over.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let timeout = std::time::Duration::from_secs(5);
    /// let client = TcpStream::connect_timeout(&here, listener.local_addr(), timeout)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect_timeout(
        context: &Context,
        remote: SocketAddr,
        timeout: Duration,
    ) -> io::Result<Self> {
        Self::connect_until(context, remote, Some(timeout))
    }

    fn connect_until(
        context: &Context,
        remote: SocketAddr,
        timeout: Option<Duration>,
    ) -> io::Result<Self> {
        let stream = Self::begin(context, None, remote)?;
        let id = stream.id;
        stream
            .inner
            .block_until(stream.inner.until(timeout), |state| {
                match state.connect_outcome(id)? {
                    Ok(()) => Some(Ok(())),
                    Err(errno) => Some(Err(errno)),
                }
            })?;
        Ok(stream)
    }

    /// Begins to connect and returns a non-blocking stream at once. The stream becomes writable in
    /// a [`Poll`](crate::Poll) when the outcome is known; [`take_error`](Self::take_error) then
    /// returns it.
    ///
    /// # Errors
    /// `ENOBUFS` at the limit of sockets.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let stream = TcpStream::start_connect(&here, listener.local_addr())?;
    /// let mut poll = Poll::new(&here);
    /// poll.register(&stream, Token(0), Interest::WRITABLE, Mode::Level)?;
    /// poll.wait(&mut Events::with_capacity(1), None)?;
    /// assert!(stream.take_error().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_connect(context: &Context, remote: SocketAddr) -> io::Result<Self> {
        Self::start_connect_from(context, None, remote)
    }

    /// Like [`start_connect`](Self::start_connect), from a chosen local address and port. With port
    /// 0 the stack chooses the port.
    ///
    /// # Errors
    /// The errors of [`start_connect`](Self::start_connect).
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let local = "10.0.0.1:5000".parse()?;
    /// let stream = TcpStream::start_connect_from(&here, Some(local), listener.local_addr())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_connect_from(
        context: &Context,
        local: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> io::Result<Self> {
        let stream = Self::begin(context, local, remote)?;
        stream.nonblocking.set(true);
        Ok(stream)
    }

    fn begin(context: &Context, local: Option<SocketAddr>, remote: SocketAddr) -> io::Result<Self> {
        let inner = context.inner.clone();
        let id = inner.socket()?;
        inner.state().sockets.open(id, Kind::Stream);
        inner.state().name_peer(id, remote);
        let stream = Self::new(inner, id, None, remote);
        // A `CONNECT` request reads the address from the block, which has no scope. A scope needs a
        // message.
        let has_scope = matches!(remote, SocketAddr::V6(v6) if v6.scope_id() != 0);
        if local.is_none() && !has_scope {
            stream.inner.state().request(id, Requests::CONNECT);
            return Ok(stream);
        }
        stream.inner.control(Control::Connect(Connect {
            socket: id,
            local,
            remote,
            options: Vec::new(),
            fast_open: false,
            answer: None,
        }))?;
        Ok(stream)
    }

    fn new(inner: Rc<Inner>, id: SocketId, bound: Option<SocketAddr>, remote: SocketAddr) -> Self {
        let has_more = match remote {
            SocketAddr::V4(_) => false,
            SocketAddr::V6(remote) => remote.scope_id() != 0 || remote.flowinfo() != 0,
        };
        let opened = (has_more || bound.is_some()).then(|| Box::new(Opened { remote, bound }));
        Self {
            inner,
            id,
            nonblocking: Cell::new(false),
            is_v6: remote.is_ipv6(),
            opened,
        }
    }

    /// A stream that has begun to connect.
    pub(crate) fn begun(
        inner: Rc<Inner>,
        id: SocketId,
        bound: Option<SocketAddr>,
        remote: SocketAddr,
    ) -> Self {
        let stream = Self::new(inner, id, bound, remote);
        stream.nonblocking.set(true);
        stream
    }

    pub(crate) fn accepted(inner: Rc<Inner>, id: SocketId, remote: SocketAddr) -> Self {
        Self::new(inner, id, None, remote)
    }

    /// The address to which the socket was bound before it was connected.
    pub(crate) fn bound(&self) -> Option<SocketAddr> {
        self.opened.as_ref().and_then(|opened| opened.bound)
    }

    /// The outcome of an attempt to connect; `None` while it is under way.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert!(client.connect_outcome().is_some_and(|outcome| outcome.is_ok()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn connect_outcome(&self) -> Option<io::Result<()>> {
        self.inner.state().connect_outcome(self.id)
    }

    /// True while the attempt to connect is in progress.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert!(!client.is_connecting());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_connecting(&self) -> bool {
        let said = self.inner.state().block(self.id).state();
        !said.intersects(SocketState::CONNECTED | SocketState::FAILED | SocketState::CLOSED)
    }

    /// True after a simultaneous open: the peer was connecting to us, and both SYNs have arrived
    /// (RFC 9293 3.5). From then on the stream can be shut.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert!(!client.has_crossed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn has_crossed(&self) -> bool {
        let said = self.inner.state().block(self.id).state();
        said.contains(SocketState::SYNS_CROSSED)
    }

    /// The error that a write would return before it looks for room; `WouldBlock` while connecting.
    ///
    /// # Errors
    /// Errors of `write`.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// client.check_write()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_write(&self) -> io::Result<()> {
        let mut state = self.inner.state();
        if let Some(refused) = state.cannot_write(self.id) {
            return refused.map(|_| ());
        }
        match state
            .block(self.id)
            .state()
            .contains(SocketState::CONNECTED)
        {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// True if the connection is open, at least in one direction.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert!(client.is_open());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_open(&self) -> bool {
        is_open(self.inner.state().block(self.id).state())
    }

    /// True if the peer has closed its direction.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// drop(server);
    /// assert_eq!(client.read(&mut [0])?, 0);
    /// assert!(client.is_read_closed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_read_closed(&self) -> bool {
        let said = self.inner.state().block(self.id).state();
        said.contains(SocketState::EOF)
    }

    /// The connection's options.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// client.options().set_keepalive(true)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn options(&self) -> SocketOptions<'_> {
        SocketOptions::new(&self.inner, self.id)
    }

    /// The peer's address.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert_eq!(client.peer_addr(), listener.local_addr());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        if let Some(opened) = &self.opened {
            return opened.remote;
        }
        let remote = names::socket_addr(self.inner.state().block(self.id).names().1);
        match remote.ip() {
            IpAddr::V4(ip) if self.is_v6 => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), remote.port())
            }
            _ => remote,
        }
    }

    /// The local address; `None` until the connection is open.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert_eq!(client.local_addr(), Some(server.peer_addr()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        let state = self.inner.state();
        let block = state.block(self.id);
        let is_open = block.state().contains(SocketState::CONNECTED);
        let remote = self.opened.as_ref().map(|opened| opened.remote);
        is_open.then(|| names::with_scope_of(remote, names::socket_addr(block.names().0)))
    }

    /// Sets whether calls return `WouldBlock` instead of waiting.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// client.set_nonblocking(true);
    /// let error = client.read(&mut [0]).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.set(nonblocking);
    }

    /// Sets how long a read waits; `None`: for ever.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// client.set_read_timeout(Some(std::time::Duration::from_millis(1)));
    /// let error = client.read(&mut [0]).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_read_timeout(&self, timeout: Option<Duration>) {
        self.options().set_recv_timeout(timeout);
    }

    /// Sets how long a write waits; `None`: for ever.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// client.set_write_timeout(Some(std::time::Duration::from_secs(5)));
    /// client.write_all(b"hello")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_write_timeout(&self, timeout: Option<Duration>) {
        self.options().set_send_timeout(timeout);
    }

    /// `TCP_NODELAY`: small segments leave at once.
    ///
    /// # Errors
    /// The kernel's error, if the call has to wait.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// client.set_nodelay(true)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.options().set_nodelay(on)
    }

    /// `SO_LINGER` with a time of zero: closing resets the connection and drops unsent data.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// server.set_abort_on_close(true);
    /// drop(server);
    /// let error = client.read(&mut [0]).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_abort_on_close(&self, on: bool) {
        self.options().set_linger(match on {
            true => Linger::Seconds(0),
            false => Linger::Background,
        });
    }

    /// Ends one or both directions. The peer reads the end of data after the written bytes; reads
    /// return the end after the bytes that have arrived. Once both directions are ended, the stack
    /// answers further data with a reset, as in Linux. After a simultaneous open, our FIN waits for
    /// the handshake to complete.
    ///
    /// # Errors
    /// `NotConnected` if the handshake has not got to ESTABLISHED or SYN_RECEIVED, or the
    /// connection is closed.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// client.shutdown(std::net::Shutdown::Write)?;
    /// assert_eq!(server.read(&mut [0])?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let state = &mut *self.inner.state();
        let said = state.block(self.id).state();
        let begins = SocketState::CONNECTED | SocketState::SYNS_CROSSED;
        if !said.intersects(begins) || said.contains(SocketState::CLOSED) {
            return Err(Errno::NOTCONN.into());
        }
        let socket = state.sockets.at(self.id);
        let stops_reading =
            how != Shutdown::Write && !std::mem::replace(&mut socket.read_shut, true);
        if stops_reading {
            state.request(self.id, Requests::SHUTDOWN_READ);
        }
        let socket = state.sockets.at(self.id);
        if how != Shutdown::Read && !std::mem::replace(&mut socket.write_shut, true) {
            state.request(self.id, Requests::SHUTDOWN_WRITE);
        }
        let first = state.sockets.at(self.id).registrations;
        state.polls.state_changed(first);
        Ok(())
    }

    /// Resets the connection: unsent data is dropped, and the peer gets a RST.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// server.abort();
    /// let error = client.read(&mut [0]).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort(self) {
        self.set_abort_on_close(true);
    }

    /// Writes and announces that more follows at once (`MSG_MORE`). A partial segment waits for it
    /// as under `TCP_CORK`, but only until the next acknowledgment arrives.
    ///
    /// # Errors
    /// Errors of `write`.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// client.write_more(b"head ")?;
    /// client.write_all(b"and body")?;
    /// let mut bytes = [0; 13];
    /// server.read_exact(&mut bytes)?;
    /// assert_eq!(&bytes, b"head and body");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_more(&self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.transmit(bytes.len(), Requests::WROTE_MORE, |state, id, from| {
            state.write(id, &bytes[from..], Requests::WROTE_MORE)
        })
    }

    /// Ends a record with the last write (`MSG_EOR`): no segment carries bytes from before and
    /// after that point. This helps the receiver's buffers; TCP itself keeps no records.
    ///
    /// # Errors
    /// The kernel's error, if the call has to wait.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// client.write_all(b"record")?;
    /// client.end_record()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn end_record(&self) -> io::Result<()> {
        let position = self.inner.state().sockets.at(self.id).tx.tail();
        let end = SocketOption::EndOfRecord(position);
        self.inner.control(Control::Option(self.id, end))
    }

    /// Number of bytes written so far, modulo 2^32. [`TxStamp`](crate::TxStamp) counts in the same
    /// unit.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// let before = client.position();
    /// client.write_all(b"hello")?;
    /// assert_eq!(client.position(), before.wrapping_add(5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn position(&self) -> u32 {
        self.inner.state().sockets.at(self.id).tx.tail()
    }

    /// Marks the last written byte as urgent (`MSG_OOB`). Segments up to it carry an urgent pointer
    /// (RFC 9293 3.8.5). The byte is sent at once, even in a partial segment.
    ///
    /// # Errors
    /// The errors of [`end_record`](Self::end_record).
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// client.write_all(b"!")?;
    /// client.mark_urgent()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mark_urgent(&self) -> io::Result<()> {
        let urgent = SocketOption::Urgent(self.position());
        self.inner.control(Control::Option(self.id, urgent))
    }

    /// The position of the peer's last urgent byte; `None` if there is none, or it was read. Reads
    /// do not stop there by themselves.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// if let Some(mark) = server.urgent_mark() {
    ///     println!("{} bytes lie before the urgent one", mark.ahead);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn urgent_mark(&self) -> Option<UrgentMark> {
        self.inner.state().urgent_mark(self.id)
    }

    /// The urgent byte, which stays in the stream. `takes`: the caller takes it, once. `None`
    /// before it has arrived and after it was taken.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert_eq!(server.urgent_byte(false), None, "no urgent byte has arrived");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn urgent_byte(&self, takes: bool) -> Option<u8> {
        let mark = self.urgent_mark().filter(|mark| !mark.is_taken)?;
        let ahead = u32::try_from(mark.ahead).ok()?;
        self.inner.state().urgent_byte(self.id, ahead, takes)
    }

    /// Requests time stamps of the last written byte; [`stamps`](Self::stamps) returns them.
    ///
    /// # Errors
    /// The errors of [`end_record`](Self::end_record).
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// client.write_all(b"hello")?;
    /// client.stamp_last_byte(StampKinds::default())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stamp_last_byte(&self, kinds: StampKinds) -> io::Result<()> {
        let stamp = SocketOption::StampSent(self.position(), kinds);
        self.inner.control(Control::Option(self.id, stamp))
    }

    /// Takes the time stamps of sent bytes, and returns when the last byte that was read had
    /// arrived.
    ///
    /// # Errors
    /// Errors of waiting for the stack's answer.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert!(client.stamps()?.arrived_ns.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stamps(&self) -> io::Result<StampAnswer> {
        self.options().stamps()
    }

    /// Bytes written that the peer has not acknowledged.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// client.write_all(b"hello")?;
    /// assert!(client.unacknowledged() <= 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn unacknowledged(&self) -> usize {
        let state = &mut *self.inner.state();
        let (socket, block) = state.parts(self.id);
        socket.tx.waiting(block) as usize
    }

    /// The stream's readiness.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert!(client.readiness().contains(Readiness::WRITABLE));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn readiness(&self) -> Readiness {
        self.inner.state().readiness(self.id)
    }

    /// The reason why the connection failed; reported once (`SO_ERROR`).
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// server.abort();
    /// assert!(client.read(&mut [0]).is_err());
    /// assert!(client.take_error().is_none(), "the read has reported it");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn take_error(&self) -> Option<io::Error> {
        self.inner.state().take_failure(self.id)
    }

    /// Makes the error be reported again. For a call that met it after moving bytes, and returned
    /// their number instead.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// server.abort();
    /// assert!(client.read(&mut [0]).is_err());
    /// client.tell_error_again();
    /// assert!(client.take_error().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tell_error_again(&self) {
        self.inner.state().sockets.at(self.id).error_taken = false;
    }

    /// The error that ICMP reported about the path of an open connection; reported once (`SO_ERROR`
    /// in Linux). Asks the stack only if there is one.
    ///
    /// # Errors
    /// Errors of waiting for the stack's answer.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert!(client.take_soft_error()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_soft_error(&self) -> io::Result<Option<io::Error>> {
        let said = self.inner.state().parts(self.id).1.state();
        if !said.contains(SocketState::SOFT_ERROR) {
            return Ok(None);
        }
        let socket = self.id;
        let ask = |answer| Control::SoftError(SoftErrorQuery { socket, answer });
        let errno: u16 = self.inner.ask(ask)?;
        Ok((errno != 0).then(|| io::Error::from_raw_os_error(errno.into())))
    }

    /// The ICMP error that ended the attempt to connect; reported once (Linux's error queue).
    ///
    /// # Errors
    /// Errors of waiting for the stack's answer.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert!(client.take_icmp_note()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_icmp_note(&self) -> io::Result<Option<IcmpNote>> {
        let said = self.inner.state().parts(self.id).1.state();
        match said.contains(SocketState::REFUSED_BY_ICMP) {
            true => self.options().icmp_note(),
            false => Ok(None),
        }
    }

    /// True if an ICMP error waits for [`take_soft_error`](Self::take_soft_error), on a socket that
    /// asked for them ([`set_receive_errors_v4`](SocketOptions::set_receive_errors_v4)).
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert!(!client.has_waiting_error());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn has_waiting_error(&self) -> bool {
        let said = self.inner.state().parts(self.id).1.state();
        said.contains(SocketState::ERROR_WAITS)
    }

    /// Number of bytes that can be read at once.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// server.write_all(b"hello")?;
    /// client.peek(&mut [0])?;
    /// assert_eq!(client.readable(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn readable(&self) -> usize {
        let state = &mut *self.inner.state();
        let (socket, block) = state.parts(self.id);
        socket.rx.readable(block) as usize
    }

    /// Like `read`, but leaves the bytes to be read again.
    ///
    /// # Errors
    /// The errors of `read`.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// server.write_all(b"hello")?;
    /// let mut byte = [0];
    /// assert_eq!(client.peek(&mut byte)?, 1);
    /// assert_eq!(client.read(&mut byte)?, 1);
    /// assert_eq!(&byte, b"h");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.receive(bytes, State::peek)
    }

    fn receive(
        &self,
        bytes: &mut [u8],
        mut attempt: impl FnMut(&mut State, SocketId, &mut [u8]) -> Option<io::Result<usize>>,
    ) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.wait_to_read(|state| attempt(state, self.id, bytes))
    }

    /// Calls `attempt` until it has an answer, or once if the stream is non-blocking.
    fn wait_to_read<T>(
        &self,
        mut attempt: impl FnMut(&mut State) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        if let Some(outcome) = attempt(&mut self.inner.state()) {
            return outcome;
        }
        if self.nonblocking.get() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let until_ns = self.inner.until(self.options().recv_timeout());
        let outcome = self.inner.block_until(until_ns, attempt);
        outcome.map_err(would_block)
    }

    /// Writes `total` bytes. `attempt` writes from an offset on.
    #[inline]
    fn transmit(
        &self,
        total: usize,
        how: Requests,
        mut attempt: impl FnMut(&mut State, SocketId, usize) -> Option<io::Result<usize>>,
    ) -> io::Result<usize> {
        self.inner.before_write();
        let mut attempt = |state: &mut State, from| {
            let outcome = attempt(state, self.id, from);
            if let Some(Ok(written)) = outcome {
                self.inner.wrote(written);
            }
            outcome
        };
        let outcome = attempt(&mut self.inner.state(), 0);
        match outcome {
            Some(Ok(written)) if written < total => self.write_rest(written, total, how, attempt),
            Some(outcome) => outcome,
            None => self.transmit_later(total, how, attempt),
        }
    }

    /// Continues a write that found no room, or no chunk.
    #[cold]
    fn transmit_later(
        &self,
        total: usize,
        how: Requests,
        mut attempt: impl FnMut(&mut State, usize) -> Option<io::Result<usize>>,
    ) -> io::Result<usize> {
        let written = self.write_rest(0, total, how, &mut attempt)?;
        if written > 0 {
            return Ok(written);
        }
        if self.nonblocking.get() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let outcome =
            self.inner
                .block_until(self.inner.until(self.options().send_timeout()), |state| {
                    // Wake only for a third of the send buffer, as Linux wakes its writers.
                    if !state.may_write_on(self.id) {
                        return None;
                    }
                    attempt(state, 0)
                });
        match outcome {
            Ok(written) if written < total => self.write_rest(written, total, how, attempt),
            outcome => outcome.map_err(would_block),
        }
    }

    /// True if the send buffer has room for at least one byte.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert!(client.has_room());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.inner.state().has_room(self.id)
    }

    /// True if a writer that waited may go on: a third of the send buffer is free, or the
    /// connection has ended.
    ///
    /// ```
    #[doc = include_str!("doc/connected.txt")]
    /// assert!(client.may_write_on());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn may_write_on(&self) -> bool {
        self.inner.state().may_write_on(self.id)
    }
}

/// The error of a timed-out wait: `EAGAIN`, as with `SO_RCVTIMEO`.
pub(crate) fn would_block(error: io::Error) -> io::Error {
    match is_timeout(&error) {
        true => io::ErrorKind::WouldBlock.into(),
        false => error,
    }
}

/// True for a wait's own time-out, not the `ETIMEDOUT` of a peer that does not answer.
fn is_timeout(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none()
}

fn is_open(said: SocketState) -> bool {
    said.contains(SocketState::CONNECTED)
        && !said.intersects(SocketState::FAILED | SocketState::CLOSED)
}

impl State {
    /// Writes the peer's address into the socket's block before the socket connects.
    pub(crate) fn name_peer(&self, id: SocketId, remote: SocketAddr) {
        let address = match remote.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let port = remote.port();
        self.block(id)
            .set_names(Name::default(), Name { address, port });
    }

    #[inline]
    fn parts(
        &mut self,
        id: SocketId,
    ) -> (
        &mut crate::app_socket::AppSocket,
        &ring::socket_block::SocketBlock,
    ) {
        let block = self
            .side
            .memory
            .block(id.index)
            .expect("ids come from the stack");
        (self.sockets.at(id), block)
    }

    fn connect_outcome(&mut self, id: SocketId) -> Option<io::Result<()>> {
        let said = self.block(id).state();
        if said.contains(SocketState::FAILED) {
            let failure = self
                .take_failure(id)
                .unwrap_or_else(|| Errno::CONNABORTED.into());
            return Some(Err(failure));
        }
        said.contains(SocketState::CONNECTED).then_some(Ok(()))
    }

    fn take_failure(&mut self, id: SocketId) -> Option<io::Error> {
        let (socket, block) = self.parts(id);
        let said = block.state();
        if !said.contains(SocketState::FAILED) || std::mem::replace(&mut socket.error_taken, true) {
            return None;
        }
        Some(io::Error::from_raw_os_error(said.errno().into()))
    }

    /// Reads from the receive buffer; `None`: nothing to read yet.
    #[inline]
    fn read(&mut self, id: SocketId, bytes: &mut [u8]) -> Option<io::Result<usize>> {
        let AppSide {
            memory,
            jobs,
            stack_bell,
            ..
        } = &mut self.side;
        let block = memory.block(id.index)?;
        let socket = self.sockets.at(id);
        // Read the state first: bytes published before an end are then seen before it.
        let said = block.state();
        let n = socket.rx.read(memory, block, bytes);
        if n > 0 {
            ask(block, jobs, stack_bell, id, Requests::READ);
            return Some(Ok(n));
        }
        self.nothing_to_read(id, said)
    }

    fn peek(&mut self, id: SocketId, bytes: &mut [u8]) -> Option<io::Result<usize>> {
        let memory = &self.side.memory;
        let block = memory.block(id.index)?;
        let socket = self.sockets.at(id);
        let said = block.state();
        let n = socket.rx.peek(memory, block, bytes);
        if n > 0 {
            return Some(Ok(n));
        }
        self.nothing_to_read(id, said)
    }

    /// The outcome of a read that found no bytes. `said` is the state from before that look: a
    /// failure since then may follow bytes, and the reader must get both in order.
    fn nothing_to_read(&mut self, id: SocketId, said: SocketState) -> Option<io::Result<usize>> {
        // After the peer's FIN, readers do not learn of later failures, as in Linux.
        if said.contains(SocketState::EOF) {
            return Some(Ok(0));
        }
        if said.contains(SocketState::FAILED)
            && let Some(failure) = self.take_failure(id)
        {
            return Some(Err(failure));
        }
        let is_over = said.intersects(SocketState::FAILED | SocketState::CLOSED);
        (is_over || self.sockets.at(id).read_shut).then_some(Ok(0))
    }
}

impl Write for &TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.transmit(bytes.len(), Requests::WROTE, |state, id, from| {
            state.write(id, &bytes[from..], Requests::WROTE)
        })
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let total = slices
            .iter()
            .fold(0usize, |total, slice| total.saturating_add(slice.len()));
        if total == 0 {
            return Ok(0);
        }
        self.transmit(total, Requests::WROTE, |state, id, from| {
            state.write_slices(id, slices, from, Requests::WROTE)
        })
    }

    /// Does nothing: the stack already has all written bytes.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        let state = &mut *self.inner.state();
        let settings = &state.sockets.at(self.id).settings;
        let aborts = settings
            .as_ref()
            .is_some_and(|settings| settings.linger == Linger::Seconds(0));
        let how = match aborts {
            true => Requests::ABORT,
            false => Requests::CLOSE,
        };
        state.close(self.id, how);
    }
}

impl sealed::Sealed for TcpStream {
    fn id(&self) -> SocketId {
        self.id
    }

    fn inner(&self) -> &Rc<Inner> {
        &self.inner
    }
}

impl Source for TcpStream {}
