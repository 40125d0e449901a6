//! The options of a socket, typed: one view for sockets, streams and listeners.
//!
//! An option is honoured or refused; none is taken in silence. What `posix` and the preload library know by number ends here.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use ring::socket_block::SocketId;
use rustix::io::Errno;
use stack::context::{Control, InfoQuery, SocketInfo, SocketOption};
use tcp::connection::Keepalive;

use crate::app_socket::Kind;
use crate::context::Inner;
use crate::settings::{Linger, Settings, defer_accept_retransmissions, defer_accept_s, millis};

mod errors;
mod fast_open;
mod ip_level;
mod saved_syn;
mod stamps;
mod tcp_level;
mod timers;

/// The options of one socket. Values set before it connects or listens hold from then on; those of a listener are where accepted connections begin.
#[derive(Clone, Copy)]
pub struct SocketOptions<'a> {
    inner: &'a Rc<Inner>,
    id: SocketId,
}

/// What a socket is, as far as options care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Listening,
    Connection,
}

impl<'a> SocketOptions<'a> {
    pub(crate) fn new(inner: &'a Rc<Inner>, id: SocketId) -> Self {
        Self { inner, id }
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&Settings) -> T) -> T {
        let state = &mut *self.inner.state();
        match &state.sockets.at(self.id).settings {
            Some(settings) => look(settings),
            None => look(&Settings::default()),
        }
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Settings)) {
        let state = &mut *self.inner.state();
        let settings = state.sockets.at(self.id).settings.get_or_insert_default();
        change(Rc::make_mut(settings));
    }

    fn stage(&self) -> Stage {
        match self.inner.state().sockets.at(self.id).kind {
            Kind::Idle | Kind::Deferred | Kind::Unused => Stage::Idle,
            Kind::Listener => Stage::Listening,
            Kind::Stream => Stage::Connection,
        }
    }

    /// Tells the stack, unless it learns of it when the socket connects or listens.
    fn tell(&self, option: SocketOption) -> io::Result<()> {
        match self.stage() {
            Stage::Idle => Ok(()),
            Stage::Listening | Stage::Connection => {
                self.inner.control(Control::Option(self.id, option))
            }
        }
    }

    /// What the stack knows of the connection; `None` if there is none (any more).
    ///
    /// # Errors
    /// Those of waiting for its answer.
    pub fn info(&self) -> io::Result<Option<Box<SocketInfo>>> {
        if self.stage() != Stage::Connection {
            return Ok(None);
        }
        let (answer, mut answers) = ring::spsc::queue(1);
        let query = InfoQuery {
            socket: self.id,
            answer,
        };
        self.inner.control(Control::Info(query))?;
        self.inner.block_unannounced(|_| answers.pop().map(Ok))
    }
}

/// `SOL_SOCKET`.
impl SocketOptions<'_> {
    /// `SO_REUSEADDR`: binding shares a port with sockets that set it too and do not listen, and with connections that are ending.
    pub fn set_reuse_addr(&self, on: bool) {
        self.change(|settings| settings.reuse_addr = on);
    }

    /// `SO_REUSEADDR`
    #[must_use]
    pub fn reuse_addr(&self) -> bool {
        self.look(|settings| settings.reuse_addr)
    }

    /// `SO_REUSEPORT`: binding shares a port with sockets that set it too.
    pub fn set_reuse_port(&self, on: bool) {
        self.change(|settings| settings.reuse_port = on);
    }

    /// `SO_REUSEPORT`
    #[must_use]
    pub fn reuse_port(&self) -> bool {
        self.look(|settings| settings.reuse_port)
    }

    /// `IPV6_V6ONLY`: an unspecified IPv6 address stands for IPv6 alone.
    pub fn set_v6_only(&self, on: bool) {
        self.change(|settings| settings.dual = !on);
    }

    /// `IPV6_V6ONLY`
    #[must_use]
    pub fn v6_only(&self) -> bool {
        self.look(|settings| !settings.dual)
    }

    /// `IP_FREEBIND`: addresses that are not ours (yet) may be bound.
    pub fn set_free_bind(&self, on: bool) {
        self.change(|settings| settings.free_bind = on);
    }

    /// `IP_FREEBIND`
    #[must_use]
    pub fn free_bind(&self) -> bool {
        self.look(|settings| settings.free_bind)
    }

    /// `SO_PRIORITY`: kept and told, as by a Linux host whose device has one queue for all; ours has.
    pub fn set_priority(&self, priority: i32) {
        self.change(|settings| settings.priority = priority);
    }

    /// `SO_PRIORITY`
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.look(|settings| settings.priority)
    }

    /// `TCP_INQ`: whoever reads wants to know how much is left. Kept for layers above.
    pub fn set_inq(&self, on: bool) {
        self.change(|settings| settings.inq = on);
    }

    /// `TCP_INQ`
    #[must_use]
    pub fn inq(&self) -> bool {
        self.look(|settings| settings.inq)
    }

    /// `SO_LINGER`
    pub fn set_linger(&self, linger: Linger) {
        self.change(|settings| settings.linger = linger);
    }

    /// `SO_LINGER`
    #[must_use]
    pub fn linger(&self) -> Linger {
        self.look(|settings| settings.linger)
    }

    /// `SO_RCVTIMEO`: how long a read or accept waits; `None`: for ever.
    pub fn set_recv_timeout(&self, timeout: Option<Duration>) {
        self.change(|settings| settings.recv_timeout = timeout);
    }

    /// `SO_RCVTIMEO`
    #[must_use]
    pub fn recv_timeout(&self) -> Option<Duration> {
        self.look(|settings| settings.recv_timeout)
    }

    /// `SO_SNDTIMEO`: how long a write or connect waits; `None`: for ever.
    pub fn set_send_timeout(&self, timeout: Option<Duration>) {
        self.change(|settings| settings.send_timeout = timeout);
    }

    /// `SO_SNDTIMEO`
    #[must_use]
    pub fn send_timeout(&self) -> Option<Duration> {
        self.look(|settings| settings.send_timeout)
    }

    /// `SO_OOBINLINE`: urgent bytes stay in the stream, where [`Context::set_urgent_apart`](crate::Context::set_urgent_apart) takes them out.
    pub fn set_urgent_inline(&self, on: bool) {
        self.change(|settings| settings.urgent_inline = on);
    }

    /// `SO_OOBINLINE`
    #[must_use]
    pub fn urgent_inline(&self) -> bool {
        self.look(|settings| settings.urgent_inline)
    }

    /// `SO_RCVLOWAT`: bytes that make the socket readable; 0 and 1: any.
    pub fn set_recv_lowat(&self, bytes: u32) {
        self.change(|settings| settings.recv_lowat = bytes);
        self.inner.state().lowat_changed(self.id);
    }

    /// `SO_RCVLOWAT`, at least 1.
    #[must_use]
    pub fn recv_lowat(&self) -> u32 {
        self.look(|settings| settings.recv_lowat.max(1))
    }

    /// `SO_KEEPALIVE`: idle connections are probed.
    ///
    /// # Errors
    /// The kernel's, should this have to wait; so for all that follow.
    pub fn set_keepalive(&self, on: bool) -> io::Result<()> {
        self.change(|settings| settings.keep_alive = on);
        self.tell_keepalive()
    }

    /// `SO_KEEPALIVE`
    #[must_use]
    pub fn keepalive(&self) -> bool {
        self.look(|settings| settings.keep_alive)
    }

    fn tell_keepalive(&self) -> io::Result<()> {
        self.tell(SocketOption::KeepAlive(self.keepalive_times()))
    }

    fn keepalive_times(&self) -> Option<Keepalive> {
        let config = &self.inner.tcp_config();
        self.look(|settings| settings.keepalive(config))
    }

    /// `SO_SNDBUF`: bytes of payload that the send buffer holds, as many as the settings let anybody ask for; it does not grow by itself any more.
    ///
    /// # Errors
    /// As [`set_keepalive`](Self::set_keepalive).
    pub fn set_send_buffer(&self, bytes: u32) -> io::Result<()> {
        self.force_send_buffer(bytes.min(self.inner.tcp_config().send_buffer_option_max))
    }

    /// `SO_SNDBUFFORCE`: the same, whatever the settings say. The largest buffer counts a gibibyte.
    ///
    /// # Errors
    /// As [`set_keepalive`](Self::set_keepalive).
    pub fn force_send_buffer(&self, bytes: u32) -> io::Result<()> {
        self.change(|settings| settings.send_buffer = Some(bytes));
        self.tell(SocketOption::SendBuffer(bytes))
    }

    /// `SO_MAX_PACING_RATE`: no faster than so many bytes per second; `None`: as fast as congestion control allows.
    ///
    /// # Errors
    /// As [`set_keepalive`](Self::set_keepalive).
    pub fn set_max_pacing_rate(&self, rate: Option<u64>) -> io::Result<()> {
        self.change(|settings| settings.max_pacing_rate = rate);
        self.tell(SocketOption::MaxPacingRate(rate.unwrap_or(u64::MAX)))
    }

    /// `SO_MAX_PACING_RATE`
    #[must_use]
    pub fn max_pacing_rate(&self) -> Option<u64> {
        self.look(|settings| settings.max_pacing_rate)
    }

    /// `SO_SNDBUF` as it was set; `None`: the stack sizes the buffer.
    #[must_use]
    pub fn send_buffer(&self) -> Option<u32> {
        self.look(|settings| settings.send_buffer)
    }

    /// `SO_RCVBUF` as it was set; `None`: the stack sizes the buffer.
    #[must_use]
    pub fn recv_buffer(&self) -> Option<u32> {
        self.look(|settings| settings.recv_buffer)
    }

    /// `SO_RCVBUF`: bytes of payload that the receive buffer holds, as many as the settings let anybody ask for; it does not grow by itself any more.
    ///
    /// # Errors
    /// As [`set_keepalive`](Self::set_keepalive).
    pub fn set_recv_buffer(&self, bytes: u32) -> io::Result<()> {
        self.force_recv_buffer(bytes.min(self.inner.tcp_config().recv_buffer_option_max))
    }

    /// `SO_RCVBUFFORCE`: the same, whatever the settings say. The largest buffer counts a gibibyte.
    ///
    /// # Errors
    /// As [`set_keepalive`](Self::set_keepalive).
    pub fn force_recv_buffer(&self, bytes: u32) -> io::Result<()> {
        self.change(|settings| settings.recv_buffer = Some(bytes));
        self.tell(SocketOption::RecvBuffer(bytes))
    }
}

fn invalid() -> io::Error {
    Errno::INVAL.into()
}
