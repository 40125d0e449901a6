//! `getsockopt` and `setsockopt` on descriptors.
//!
//! Every option is either honoured or refused with Linux's errno, never ignored in silence. Options
//! that a connection or a listener obeys stand in `millstream`'s table, the others in
//! [`option_values`]. `tests/options` compares both with a kernel's answers.

use millstream::{Context, SocketOptions, TcpState};
use rustix::io::Errno;

use crate::call::Reply;
use crate::entry::{Entry, File, errno};
use crate::layout::{int, to_int};
use crate::number::*;
use crate::sockets::{Sockets, Step};

mod descriptor;
mod option_values;

/// A socket, and the state that its options may depend on.
pub(crate) struct Target<'a> {
    pub context: &'a Context,
    pub entry: &'a Entry,
    pub options: SocketOptions<'a>,
}

impl Target<'_> {
    /// The number that an option was set to, if its row remembers one.
    fn remembered(&self, level: i32, name: i32) -> Option<i32> {
        let values = self.entry.option_values.borrow();
        values.get(&(level, name)).copied()
    }
}

impl Sockets {
    fn target(&mut self, fd: i32) -> Result<Target<'_>, Errno> {
        self.socket_entry(fd)?;
        let (context, entry) = self.with_context(fd).ok_or(Errno::BADF)?;
        let options = match &entry.file {
            File::Idle(socket) | File::Deferred(socket, _) => socket.options(),
            File::Listener(listener) => listener.options(),
            File::Stream(stream) => stream.tcp.options(),
            File::Epoll(_) | File::Kernel(_) => return Err(Errno::NOTSOCK),
            File::Lost => return Err(Errno::NOBUFS),
        };
        Ok(Target {
            context,
            entry,
            options,
        })
    }

    /// Checks that the socket has options of a level at all, as Linux does before it looks at any
    /// argument.
    ///
    /// # Errors
    /// `EBADF`, `ENOTSOCK`; `EOPNOTSUPP`, or `ENOPROTOOPT` of an IPv6 socket: it has none.
    pub fn check_options_level(&mut self, fd: i32, level: i32) -> Result<(), Errno> {
        let entry = self.socket_entry(fd)?;
        match has_level(entry, level) {
            true => Ok(()),
            false if entry.is_v6 => Err(Errno::NOPROTOOPT),
            false => Err(Errno::OPNOTSUPP),
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
        self.check_options_level(fd, level)?;
        let target = self.target(fd)?;
        let mut value = option_values::get(&target, level, name, len)?;
        if level == SOL_IP && (1..4).contains(&len) {
            // If the caller's room is less than an `int`, Linux returns a small value as one byte.
            value.truncate(1);
        }
        value.truncate(len);
        *reply = Reply::Bytes(value);
        Ok(Some(0))
    }

    pub(crate) fn setsockopt(&mut self, fd: i32, level: i32, name: i32, value: &[u8]) -> Step {
        if level == SOL_SOCKET && USES_ERROR_QUEUE.contains(&name) {
            self.has_notifications = true;
        }
        if (level, name) == (SOL_IPV6, IPV6_ADDRFORM) && self.socket_entry(fd)?.is_v6 {
            return self.become_ipv4(fd, value);
        }
        let target = self.target(fd)?;
        if !has_level(target.entry, level) {
            return Err(Errno::NOPROTOOPT);
        }
        let widened;
        let value = match (level, name) {
            (SOL_IP, IP_FREEBIND) if value.is_empty() => value,
            (SOL_IP, MCAST_LEAVE_GROUP) => value,
            (SOL_IP, _) => {
                widened = int(byte_or_int(value));
                &widened
            }
            _ => value,
        };
        option_values::set(&target, level, name, value)?;
        Ok(Some(0))
    }
}

impl Sockets {
    /// `IPV6_ADDRFORM`: a connection with an IPv4 peer becomes a socket of IPv4's family.
    fn become_ipv4(&mut self, fd: i32, value: &[u8]) -> Step {
        if to_int(value) != Some(AF_INET) {
            return Err(Errno::INVAL);
        }
        let entry = self.socket_entry(fd)?;
        let File::Stream(stream) = &entry.file else {
            return Err(Errno::NOTCONN);
        };
        let state = stream.info()?.map(|info| info.tcp.state);
        if state != Some(TcpState::Established) {
            return Err(Errno::NOTCONN);
        }
        if !stream.tcp.peer_addr().is_ipv4() || !stream.tcp.options().dual() {
            return Err(Errno::ADDRNOTAVAIL);
        }
        entry.is_v6 = false;
        Ok(Some(0))
    }
}

fn has_level(entry: &Entry, level: i32) -> bool {
    matches!(level, SOL_SOCKET | SOL_TCP | SOL_IP) || (level == SOL_IPV6 && entry.is_v6)
}

/// Options that put messages into the socket's error queue.
const USES_ERROR_QUEUE: [i32; 3] = [SO_ZEROCOPY, SO_TIMESTAMPING, SO_TIMESTAMPING_NEW];

/// The value of an IPv4 option, which may be one byte or an `int`; no byte means zero.
fn byte_or_int(value: &[u8]) -> i32 {
    to_int(value).unwrap_or_else(|| value.first().copied().unwrap_or(0).into())
}

fn to_errno<T>(outcome: std::io::Result<T>) -> Result<T, Errno> {
    outcome.map_err(|error| errno(&error))
}
