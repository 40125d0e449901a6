//! Urgent data as BSD's calls have it, and as Linux does it.
//!
//! The last urgent byte stands apart from the stream unless `SO_OOBINLINE` is set, and `MSG_OOB`
//! reads it. Reads stop before it; `SIOCATMARK` tells whether they have, and `poll` tells of it by
//! `POLLPRI`. Below this crate urgent bytes are bytes of the stream (RFC 6093), and the mark is a
//! number.

use std::io::Read;

use millstream::TcpStream;
use rustix::io::Errno;

use crate::entry::{File, Stream, errno};
use crate::number::*;

/// How far the next read goes.
pub(crate) enum Before {
    /// So many bytes at most.
    Bytes(usize),
    /// The read stops here: the mark comes next.
    Stop,
    /// A byte that stands apart comes first, and is not to be passed over.
    Peek,
}

/// The bytes that a read finds before the mark. `first`: it has read nothing yet, and passes the
/// mark.
pub(crate) fn before(stream: &TcpStream, first: bool, peeks: bool) -> Before {
    match stream.urgent_mark() {
        None => Before::Bytes(usize::MAX),
        Some(mark) if mark.ahead > 0 => Before::Bytes(mark.ahead),
        Some(_) if !first => Before::Stop,
        Some(mark) if !mark.is_apart || !mark.has_arrived => Before::Bytes(usize::MAX),
        Some(_) if peeks => Before::Peek,
        Some(_) => {
            let mut stream = stream;
            // The byte has arrived, so the read cannot fail.
            let _ = stream.read(&mut [0]);
            Before::Bytes(usize::MAX)
        }
    }
}

/// Peeks at what comes behind a byte that stands apart.
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

/// `MSG_OOB`: the urgent byte, once, and what `msg_flags` says of it. It never waits.
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
        // The byte is read although there is no room for it.
        0 => (Vec::new(), MSG_OOB | MSG_TRUNC),
        _ => (vec![byte], MSG_OOB),
    })
}

/// `SIOCATMARK`: the next byte is the urgent one.
pub(crate) fn is_at_mark(stream: &TcpStream) -> bool {
    stream.urgent_mark().is_some_and(|mark| mark.ahead == 0)
}

/// `SIOCINQ`: bytes that can be read, up to a byte that stands apart.
pub(crate) fn readable(stream: &TcpStream) -> usize {
    match stream.urgent_mark() {
        Some(mark) if mark.is_apart && mark.has_arrived => mark.ahead,
        _ => stream.readable(),
    }
}

/// Whether there is more to wait for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// The call will see no more than it has read.
    Yes,
    /// More may come.
    No,
}

/// Whether nothing will arrive any more: the peer has ended its direction, or the connection is
/// over. Asked before bytes are looked for: what came ahead of the end is found then.
pub(crate) fn at_end(stream: &TcpStream) -> AtEnd {
    match stream.is_read_closed() || !stream.is_open() {
        true => AtEnd::Yes,
        false => AtEnd::No,
    }
}
