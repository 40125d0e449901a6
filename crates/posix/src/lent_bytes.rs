//! Received bytes that are lent to the caller in the receive buffer, in place of a copy (decision
//! 0100).

use std::io::{BufRead as _, ErrorKind, IoSliceMut};

use rustix::io::Errno;

use crate::entry::{File, Stream, errno};
use crate::number::MSG_PEEK;
use crate::sockets::Sockets;

impl Sockets {
    /// The next received bytes of a connection, as far as they lie in one piece of its receive
    /// buffer (4 KiB at most); none at the end of the stream. Waits and fails as
    /// [`read_into`](Self::read_into) does. The bytes stay in the stream until they are
    /// [consumed](Self::consume) or read.
    ///
    /// # Errors
    /// The errno of `recv`. `OPNOTSUPP`: an urgent byte waits, which only `recv` can handle.
    pub fn lend(&mut self, fd: i32) -> Result<&[u8], Errno> {
        if let Some(failed) = self.is_without_bytes(fd)? {
            // A peek at one byte waits, times out and reports errors by the rules of `recv`.
            match failed {
                Errno::AGAIN => self.recv_into(fd, &mut [IoSliceMut::new(&mut [0])], MSG_PEEK)?,
                other => return Err(other),
            };
        }
        let stream = self.lending(fd)?;
        match stream.tcp.urgent_mark() {
            None => stream.tcp.fill_buf().map_err(|error| errno(&error)),
            Some(_) => Err(Errno::OPNOTSUPP),
        }
    }

    /// Takes `count` bytes out of the stream that [`lend`](Self::lend) has shown.
    ///
    /// # Errors
    /// `INVAL` if `lend` would now show fewer than `count` bytes; none is taken then. Otherwise as
    /// `lend`.
    pub fn consume(&mut self, fd: i32, count: usize) -> Result<(), Errno> {
        let stream = self.lending(fd)?;
        let lent = match stream.tcp.fill_buf() {
            Ok(bytes) => bytes.len(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(errno(&error)),
        };
        if count > lent {
            return Err(Errno::INVAL);
        }
        stream.tcp.consume(count);
        Ok(())
    }

    /// The reason why no byte can be lent at once.
    fn is_without_bytes(&mut self, fd: i32) -> Result<Option<Errno>, Errno> {
        let looked = match &mut self.socket_entry(fd)?.file {
            File::Stream(stream) => stream.tcp.fill_buf(),
            _ => return Ok(Some(Errno::AGAIN)),
        };
        Ok(looked.err().map(|error| errno(&error)))
    }

    /// The connection behind a descriptor.
    fn lending(&mut self, fd: i32) -> Result<&mut Stream, Errno> {
        match &mut self.entry(fd)?.file {
            File::Stream(stream) => Ok(stream),
            _ => Err(Errno::OPNOTSUPP),
        }
    }
}
