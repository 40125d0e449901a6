//! `getsockopt` and `setsockopt`: from numbers and bytes to the typed options of Millstream.
//!
//! An option is honoured or refused with the errno that Linux gives for what it does not know; none is taken in silence. The tables of what is done with each
//! stand in [`set`] and [`get`], level by level; `tests/options.rs` compares them with a kernel's answers.

use std::time::Duration;

use millstream::{Context, SocketOptions};
use rustix::io::Errno;

use crate::call::Reply;
use crate::layout;
use crate::number::*;
use crate::sockets::{Entry, File, Sockets, Step};

mod get;
mod kept;
mod set;

/// A socket whose options are asked for.
pub(crate) struct Asked<'a> {
    pub context: &'a Context,
    pub entry: &'a Entry,
    pub options: SocketOptions<'a>,
}

impl Sockets {
    fn asked(&mut self, fd: i32) -> Result<Asked<'_>, Errno> {
        self.socket_entry(fd)?;
        let (context, entry) = self.with_context(fd).ok_or(Errno::BADF)?;
        let options = match &entry.file {
            File::Idle(socket) | File::Deferred(socket, _) => socket.options(),
            File::Listener(listener) => listener.options(),
            File::Stream(stream) => stream.tcp.options(),
            File::Epoll(_) | File::Kernel(_) => return Err(Errno::NOTSOCK),
            File::Lost => return Err(Errno::NOBUFS),
        };
        Ok(Asked {
            context,
            entry,
            options,
        })
    }

    /// Whether the socket has options of a level at all, which Linux says before it looks at any argument.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`; `EOPNOTSUPP`: it has none.
    pub fn check_options_level(&mut self, fd: i32, level: i32) -> Result<(), Errno> {
        let entry = self.socket_entry(fd)?;
        match level {
            SOL_SOCKET | SOL_TCP | SOL_IP => Ok(()),
            SOL_IPV6 if entry.is_v6 => Ok(()),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    pub(crate) fn getsockopt(
        &mut self,
        fd: i32,
        level: i32,
        name: i32,
        len: usize,
        reply: &mut Reply,
    ) -> Step {
        let asked = self.asked(fd)?;
        let mut value = match level {
            SOL_SOCKET => get::socket_level(&asked, name, len)?,
            SOL_TCP => get::tcp_level(&asked, name, len)?,
            SOL_IP => get::ip_level(&asked, name)?,
            SOL_IPV6 if asked.entry.is_v6 => get::ipv6_level(&asked, name)?,
            _ => return Err(Errno::OPNOTSUPP),
        };
        if level == SOL_IP && (1..4).contains(&len) {
            // Linux gives a small value as one byte to who has no room for four.
            value.truncate(1);
        }
        value.truncate(len);
        *reply = Reply::Bytes(value);
        Ok(Some(0))
    }

    pub(crate) fn setsockopt(&mut self, fd: i32, level: i32, name: i32, value: &[u8]) -> Step {
        if level == SOL_SOCKET && TELLS_BY_ERROR_QUEUE.contains(&name) {
            self.has_notifications = true;
        }
        let asked = self.asked(fd)?;
        match level {
            SOL_SOCKET => set::socket_level(&asked, name, value)?,
            SOL_TCP => set::tcp_level(&asked, name, value)?,
            SOL_IP => set::ip_level(&asked, name, value)?,
            SOL_IPV6 if asked.entry.is_v6 => set::ipv6_level(&asked, name, value)?,
            _ => return Err(Errno::NOPROTOOPT),
        }
        Ok(Some(0))
    }
}

/// Options of sockets that may tell by their error queue.
const TELLS_BY_ERROR_QUEUE: [i32; 3] = [SO_ZEROCOPY, SO_TIMESTAMPING, SO_TIMESTAMPING_NEW];

/// A `struct timeval` as a time-out: zero is for ever, a negative time no wait at all.
fn to_timeout(value: &[u8]) -> Result<Option<Duration>, Errno> {
    let (seconds, rest) = value.split_first_chunk().ok_or(Errno::INVAL)?;
    let (micros, _) = rest.split_first_chunk().ok_or(Errno::INVAL)?;
    let (seconds, micros) = (i64::from_ne_bytes(*seconds), i64::from_ne_bytes(*micros));
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::DOM);
    }
    let Ok(whole) = u64::try_from(seconds) else {
        return Ok(Some(Duration::ZERO));
    };
    let timeout = Duration::from_secs(whole) + Duration::from_micros(micros as u64);
    Ok((!timeout.is_zero()).then_some(timeout))
}

fn from_timeout(timeout: Option<Duration>) -> Vec<u8> {
    let timeout = timeout.unwrap_or_default();
    layout::timeval(timeout.as_secs() as i64, timeout.subsec_micros().into())
}
