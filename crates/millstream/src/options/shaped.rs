//! Options whose reported value depends on more than the value set: buffer sizes, `SO_RCVLOWAT`,
//! the segment size, the path's MTU.

use std::io;

use rustix::io::Errno;
use stack::context::SocketOption;
use tcp::{Buffers, State};

use super::forms::{int, number};
use super::{SocketOptions, Stage, invalid};

/// `IPV6_MIN_MTU`
const IPV6_MTU_MIN: i32 = 1280;

impl SocketOptions<'_> {
    /// `SO_RCVLOWAT`: number of bytes that make the socket readable; 0 and 1 both mean any byte.
    #[doc = example!(recv_lowat, set_recv_lowat, 100)]
    pub fn set_recv_lowat(&self, bytes: u32) {
        self.change(|settings| settings.recv_lowat = bytes);
        self.inner.state().lowat_changed(self.id);
    }

    /// `SO_RCVLOWAT`, at least 1.
    #[doc = example!(recv_lowat, set_recv_lowat, 100)]
    #[must_use]
    pub fn recv_lowat(&self) -> u32 {
        self.with_settings(|settings| settings.recv_lowat.max(1))
    }

    /// Limits `SO_RCVLOWAT` to half of the largest buffer, as Linux does. A larger value could
    /// never be reached.
    pub(super) fn set_recv_lowat_by_number(&self, value: &[u8]) -> io::Result<()> {
        let bytes_max = self.inner.tcp_config().recv_buffer.bytes_max / 2;
        let bytes = u32::try_from(number(value)?).unwrap_or(bytes_max);
        self.set_recv_lowat(bytes.min(bytes_max));
        Ok(())
    }

    /// `SO_SNDBUF`: bytes of payload that the send buffer holds, limited by the stack's
    /// configuration. The buffer no longer grows by itself.
    ///
    /// # Errors
    /// The kernel's error from a wait for room in the queue of requests.
    #[doc = example!("", "socket.options().set_send_buffer(100_000)?;\nassert_eq!(socket.options().send_buffer(), Some(100_000));")]
    pub fn set_send_buffer(&self, bytes: u32) -> io::Result<()> {
        self.force_send_buffer(bytes.min(self.inner.tcp_config().send_buffer_option_max))
    }

    /// `SO_SNDBUFFORCE`: `SO_SNDBUF` without the configuration's limit, up to a gibibyte.
    ///
    /// # Errors
    /// The errors of [`set_send_buffer`](Self::set_send_buffer).
    #[doc = example!("", "socket.options().force_send_buffer(9_000_000)?;\nassert_eq!(socket.options().send_buffer(), Some(9_000_000));")]
    pub fn force_send_buffer(&self, bytes: u32) -> io::Result<()> {
        self.change(|settings| settings.send_buffer = Some(bytes));
        self.tell(SocketOption::SendBuffer(bytes))
    }

    /// `SO_RCVBUF`: bytes of payload that the receive buffer holds, limited by the stack's
    /// configuration. The buffer no longer grows by itself.
    ///
    /// # Errors
    /// The errors of [`set_send_buffer`](Self::set_send_buffer).
    #[doc = example!("", "socket.options().set_recv_buffer(100_000)?;\nassert_eq!(socket.options().recv_buffer(), Some(100_000));")]
    pub fn set_recv_buffer(&self, bytes: u32) -> io::Result<()> {
        self.force_recv_buffer(bytes.min(self.inner.tcp_config().recv_buffer_option_max))
    }

    /// `SO_RCVBUFFORCE`: `SO_RCVBUF` without the configuration's limit, up to a gibibyte.
    ///
    /// # Errors
    /// The errors of [`set_send_buffer`](Self::set_send_buffer).
    #[doc = example!("", "socket.options().force_recv_buffer(9_000_000)?;\nassert_eq!(socket.options().recv_buffer(), Some(9_000_000));")]
    pub fn force_recv_buffer(&self, bytes: u32) -> io::Result<()> {
        self.change(|settings| settings.recv_buffer = Some(bytes));
        self.tell(SocketOption::RecvBuffer(bytes))
    }

    /// `SO_SNDBUF` as set; `None`: the stack sizes the buffer.
    #[doc = example!("", "assert_eq!(socket.options().send_buffer(), None);")]
    #[must_use]
    pub fn send_buffer(&self) -> Option<u32> {
        self.with_settings(|settings| settings.send_buffer)
    }

    /// `SO_RCVBUF` as set; `None`: the stack sizes the buffer.
    #[doc = example!("", "assert_eq!(socket.options().recv_buffer(), None);")]
    #[must_use]
    pub fn recv_buffer(&self) -> Option<u32> {
        self.with_settings(|settings| settings.recv_buffer)
    }

    /// `SO_SNDBUF` and `SO_RCVBUF` as Linux counts them: twice the value set.
    ///
    /// # Errors
    /// The kernel's error from waiting for the stack's answer.
    #[doc = example!("", "socket.options().set_send_buffer(50_000)?;\nassert_eq!(socket.options().buffer_sizes()?.0, 100_000);")]
    pub fn buffer_sizes(&self) -> io::Result<(u32, u32)> {
        if let Some(info) = self.info()? {
            return Ok((info.send_buffer_max, info.recv_buffer_max));
        }
        let mut buffers = Buffers::of(&self.inner.tcp_config());
        if let Some(asked) = self.send_buffer() {
            buffers = buffers.with_send(asked);
        }
        if let Some(asked) = self.recv_buffer() {
            buffers = buffers.with_recv(asked);
        }
        Ok((buffers.send_bytes, buffers.recv_bytes))
    }

    pub(super) fn send_buffer_size(&self) -> io::Result<Vec<u8>> {
        Ok(int(self.buffer_sizes()?.0 as i32))
    }

    pub(super) fn recv_buffer_size(&self) -> io::Result<Vec<u8>> {
        Ok(int(self.buffer_sizes()?.1 as i32))
    }

    /// `TCP_MAXSEG`: the segment size in use. Without a connection, the value set, or RFC 9293's
    /// default.
    pub(super) fn segment_size(&self) -> io::Result<u16> {
        let (wanted, default) = (self.max_segment(), self.inner.tcp_config().mss_default_v4);
        let Some(info) = self.info()? else {
            return Ok(if wanted == 0 { default } else { wanted });
        };
        let in_use = info.tcp.snd_mss as u16;
        Ok(match info.tcp.state {
            _ if wanted == 0 => in_use,
            // Before the peer has announced its MSS, the value set counts, less the TCP options.
            State::SynSent => wanted.wrapping_sub(default.wrapping_sub(in_use)),
            State::Closed => wanted,
            _ => in_use,
        })
    }

    pub(super) fn path_mtu(&self) -> io::Result<Vec<u8>> {
        let info = self.info()?.ok_or(Errno::NOTCONN)?;
        Ok(int(info.path_mtu as i32))
    }

    /// True if the socket has a connection. Linux then accepts some options without effect.
    pub(super) fn is_connection(&self) -> bool {
        self.stage() == Stage::Connection
    }
}

/// `IPV6_MTU`: checks the value and forgets it, since the option limits datagrams only.
pub(super) fn datagram_mtu(value: &[u8]) -> io::Result<()> {
    let mtu = number(value)?;
    let is_good = mtu == 0 || mtu >= IPV6_MTU_MIN;
    is_good.then_some(()).ok_or_else(invalid)
}

pub(super) fn at_least_0(value: &[u8]) -> io::Result<u32> {
    Ok(number(value)?.max(0) as u32)
}

/// `ENOPROTOOPT`, for an option that this socket does not have.
pub(super) fn unknown<T>() -> io::Result<T> {
    Err(Errno::NOPROTOOPT.into())
}
