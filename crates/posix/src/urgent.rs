//! Urgent data as in the BSD socket calls, with Linux's details.
//!
//! Unless `SO_OOBINLINE` is set, the last urgent byte is taken out of the stream and `MSG_OOB`
//! reads it. Reads stop before it. `SIOCATMARK` tells whether they have, and `POLLPRI` reports the
//! byte. In the crates below, urgent bytes stay in the stream (RFC 6093), and the mark is a
//! position.

use std::io::Read;

use millstream::TcpStream;
use rustix::io::Errno;

use crate::entry::{File, Stream, errno};
use crate::number::*;

/// The extent of the next read.
pub(crate) enum Before {
    /// At most this many bytes.
    Bytes(usize),
    /// No bytes: the urgent mark comes next.
    Stop,
    /// An urgent byte out of the stream comes next, and the read must not skip it.
    Peek,
}

/// The extent of a read before the mark. `first`: the read has returned nothing yet, so it may pass
/// the mark.
pub(crate) fn before(stream: &TcpStream, first: bool, peeks: bool) -> Before {
    match stream.urgent_mark() {
        None => Before::Bytes(usize::MAX),
        Some(mark) if mark.ahead > 0 => Before::Bytes(mark.ahead),
        Some(_) if !first => Before::Stop,
        Some(mark) if !mark.is_apart || !mark.has_arrived => Before::Bytes(usize::MAX),
        Some(_) if peeks => Before::Peek,
        Some(_) => {
            let mut stream = stream;
            // The byte has arrived, so this read cannot fail.
            let _ = stream.read(&mut [0]);
            Before::Bytes(usize::MAX)
        }
    }
}

/// Peeks at the bytes after an urgent byte that is out of the stream.
pub(crate) fn peek_behind(
    stream: &TcpStream,
    got: &mut Vec<u8>,
    len: usize,
) -> Result<AtEnd, Errno> {
    let end = at_end(stream);
    got.resize(len.min(stream.readable()).saturating_add(1), 0);
    let read = stream.peek(got);
    got.truncate(*read.as_ref().unwrap_or(&0));
    read.map_err(|error| errno(&error))?;
    if got.len() <= 1 {
        got.clear();
        return match end {
            AtEnd::No => Err(Errno::AGAIN),
            AtEnd::Yes if stream.is_read_closed() => Ok(end),
            AtEnd::Yes => stream.take_error().map_or(Ok(end), |it| Err(errno(&it))),
        };
    }
    got.remove(0);
    got.truncate(len);
    Ok(AtEnd::No)
}

/// `MSG_OOB`: reads the urgent byte, once; returns it with `msg_flags`. Never waits.
pub(crate) fn recv(file: &File, len: usize, flags: i32) -> Result<(Vec<u8>, i32), Errno> {
    let stream = match file {
        File::Stream(Stream { tcp, .. }) => tcp,
        File::Listener(_) => return Err(Errno::NOTCONN),
        _ => return Err(Errno::INVAL),
    };
    let mark = stream.urgent_mark();
    let Some(mark) = mark.filter(|mark| mark.is_apart && !mark.is_taken) else {
        return Err(Errno::INVAL);
    };
    if !mark.has_arrived && !stream.is_read_closed() {
        return Err(Errno::AGAIN);
    }
    let Some(byte) = stream.urgent_byte(flags & MSG_PEEK == 0) else {
        return Ok((Vec::new(), 0));
    };
    Ok(match len {
        // The byte counts as read although there is no room for it.
        0 => (Vec::new(), MSG_OOB | MSG_TRUNC),
        _ => (vec![byte], MSG_OOB),
    })
}

/// `SIOCATMARK`: true if the next byte is the urgent one.
pub(crate) fn is_at_mark(stream: &TcpStream) -> bool {
    stream.urgent_mark().is_some_and(|mark| mark.ahead == 0)
}

/// `SIOCINQ`: number of bytes that can be read, up to an urgent byte that is out of the stream.
pub(crate) fn readable(stream: &TcpStream) -> usize {
    match stream.urgent_mark() {
        Some(mark) if mark.is_apart && mark.has_arrived => mark.ahead,
        _ => stream.readable(),
    }
}

/// Whether a read is at the end of what will arrive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// No more bytes will arrive.
    Yes,
    /// More bytes may arrive.
    No,
}

/// `Yes` if the peer has closed its direction or the connection is over. Callers ask this before
/// they read, so that bytes before the end are found.
pub(crate) fn at_end(stream: &TcpStream) -> AtEnd {
    match stream.is_read_closed() || !stream.is_open() {
        true => AtEnd::Yes,
        false => AtEnd::No,
    }
}
