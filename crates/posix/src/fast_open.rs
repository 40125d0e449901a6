//! Sending that connects (RFC 7413): `MSG_FASTOPEN`, and the first write after a deferred connect
//! (`TCP_FASTOPEN_CONNECT`).

use std::net::SocketAddr;

use rustix::io::Errno;

use crate::call::Progress;
use crate::entry::{Attempt, File};
use crate::number::MSG_DONTWAIT;
use crate::open::address_for;
use crate::request::Address;
use crate::sockets::Sockets;

/// The outcome of a send that connects.
pub(crate) enum FastSend {
    /// The call is over with this value; `None`: it blocks.
    Over(Option<i64>),
    /// The connection is open, and the remaining bytes are sent as usual.
    Connected,
}

impl Sockets {
    /// Connects with `bytes` and waits for the outcome, unless the call must not wait.
    /// `progress.done` counts the bytes that the SYN took.
    pub(crate) fn send_fast(
        &mut self,
        fd: i32,
        bytes: &[u8],
        flags: i32,
        to: Option<Address>,
        progress: &mut Progress,
    ) -> Result<FastSend, Errno> {
        if !progress.connecting {
            let waits = flags & MSG_DONTWAIT == 0 && !self.socket_entry(fd)?.nonblocking;
            self.begin_fast(fd, (bytes, waits), to, progress)?;
        }
        let nonblocking = self.socket_entry(fd)?.nonblocking;
        self.socket_entry(fd)?.nonblocking |= flags & MSG_DONTWAIT != 0;
        let already = match progress.connecting {
            true => Errno::INPROGRESS,
            false => Errno::ALREADY,
        };
        let outcome = self.await_connect(fd, already, progress);
        self.socket_entry(fd)?.nonblocking = nonblocking;
        match outcome {
            Ok(None) => Ok(FastSend::Over(None)),
            Ok(Some(_)) => Ok(FastSend::Connected),
            // The connect is in progress, and the SYN carries these bytes.
            Err(Errno::INPROGRESS) if progress.done > 0 => {
                Ok(FastSend::Over(Some(progress.done as i64)))
            }
            Err(errno) => Err(errno),
        }
    }

    fn begin_fast(
        &mut self,
        fd: i32,
        bytes: (&[u8], bool),
        to: Option<Address>,
        progress: &mut Progress,
    ) -> Result<(), Errno> {
        if !self.context.tcp_config().fast_open.client || to == Some(Address::Unspec) {
            return Err(Errno::OPNOTSUPP);
        }
        let entry = self.socket_entry(fd)?;
        let remote: SocketAddr = match (&entry.file, to) {
            (File::Deferred(_, remote), _) => *remote,
            (File::Idle(_), Some(to)) => address_for(entry.is_v6, to)?,
            (File::Idle(_), None) => return Err(Errno::INVAL),
            (File::Stream(stream), _) => match stream.attempt {
                Attempt::UnderWay => return Ok(()),
                Attempt::Shut => return Err(Errno::INVAL),
                Attempt::Over => return Err(Errno::ISCONN),
            },
            _ => return Err(Errno::ISCONN),
        };
        progress.done = self.begin_connect(fd, remote, Some(bytes))?;
        progress.connecting = true;
        Ok(())
    }
}
