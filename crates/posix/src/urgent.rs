//! Urgent data as BSD's calls have it, and as Linux does it: the last urgent byte stands apart from the stream unless `SO_OOBINLINE` is set, `MSG_OOB` reads it,
//! reads stop before it, `SIOCATMARK` tells whether they have, and `poll` tells of it by `POLLPRI`. Below this crate urgent bytes are bytes of the stream
//! (RFC 6093), and the mark is a number.

use std::io::Read;

use millstream::TcpStream;
use rustix::io::Errno;

use crate::call::Reply;
use crate::number::*;
use crate::sockets::{File, Step, Stream, errno};
use crate::transfer::AtEnd;

/// How far the next read goes.
pub(crate) enum Before {
    /// So many bytes at most.
    Bytes(usize),
    /// What was read so far is all: the mark comes next.
    Stop,
    /// A byte that stands apart comes first, and is not to be passed over.
    Peek,
}

/// What a read finds before it. `first`: it has read nothing yet, and passes the mark.
pub(crate) fn before(stream: &TcpStream, first: bool, peeks: bool) -> Before {
    match stream.urgent_mark() {
        None => Before::Bytes(usize::MAX),
        Some(mark) if mark.ahead > 0 => Before::Bytes(mark.ahead),
        Some(_) if !first => Before::Stop,
        Some(mark) if !mark.is_apart || !mark.has_arrived => Before::Bytes(usize::MAX),
        Some(_) if peeks => Before::Peek,
        Some(_) => {
            let mut stream = stream;
            // It has arrived, so this cannot fail.
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
    got.resize(len.min(stream.readable()).saturating_add(1), 0);
    let read = stream.peek(got);
    got.truncate(*read.as_ref().unwrap_or(&0));
    read.map_err(|error| errno(&error))?;
    if got.len() <= 1 {
        got.clear();
        return match stream.is_read_closed() {
            true => Ok(AtEnd::Yes),
            false => Err(Errno::AGAIN),
        };
    }
    got.remove(0);
    got.truncate(len);
    Ok(AtEnd::No)
}

/// `MSG_OOB`: the urgent byte, once. It never waits.
pub(crate) fn recv(file: &File, len: usize, flags: i32, reply: &mut Reply) -> Step {
    let File::Stream(Stream { tcp: stream, .. }) = file else {
        return Err(Errno::INVAL);
    };
    let mark = stream.urgent_mark();
    let Some(mark) = mark.filter(|mark| mark.is_apart && !mark.is_taken) else {
        return Err(Errno::INVAL);
    };
    if !mark.has_arrived && !stream.is_read_closed() {
        return Err(Errno::AGAIN);
    }
    let byte = stream.urgent_byte(flags & MSG_PEEK == 0);
    let bytes: Vec<u8> = byte.into_iter().take(len).collect();
    let count = bytes.len() as i64;
    *reply = Reply::Bytes(bytes);
    Ok(Some(count))
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
