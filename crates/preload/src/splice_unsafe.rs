//! `splice` between a pipe and a socket of Millstream's, by reading and writing.
//!
//! Bytes leave their source only after the other side has taken them: `tee` copies a pipe's bytes
//! and `MSG_PEEK` a socket's, and then as many as were taken are read. Two readers at the same pipe
//! or socket at the same moment may both get the same bytes.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use libc::{c_int, c_uint, off_t, size_t, ssize_t};
use posix::{Errno, number};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, tee};

use crate::errno_unsafe::{c, told};
use crate::limits::SPLICE_BYTES;
use crate::marks::{self, Mark};
use crate::memory_unsafe::{sigpipe, with_borrowed};
use crate::{calls, real_unsafe};

/// `splice`.
///
/// # Safety
/// As libc's.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    let (source, target) = (marks::of(from), marks::of(to));
    if !matches!(source, Mark::Socket(_)) && !matches!(target, Mark::Socket(_)) {
        // SAFETY: the caller's promise.
        return unsafe { real_unsafe::splice(from, from_at, to, to_at, len, flags) };
    }
    let known = SpliceFlags::MOVE | SpliceFlags::NONBLOCK | SpliceFlags::MORE | SpliceFlags::GIFT;
    let known = known.bits();
    if len == 0 || flags & !known != 0 {
        return c(if len == 0 { Ok(0) } else { Err(Errno::INVAL) });
    }
    let flags = SpliceFlags::from_bits_truncate(flags);
    let len = len.min(SPLICE_BYTES);
    c(match (source, target) {
        (Mark::Socket(key), Mark::Kernel) => check(to, libc::O_RDONLY, from_at, to_at)
            .and_then(|()| from_socket(key, to, len, flags)),
        (Mark::Kernel, Mark::Socket(key)) => check(from, libc::O_WRONLY, to_at, from_at)
            .and_then(|()| to_socket(from, key, len, flags)),
        _ => Err(Errno::INVAL),
    })
}

/// The other side is a pipe, at the end that does not have the mode `wrong`, and neither side has a
/// position.
fn check(
    pipe: c_int,
    wrong: c_int,
    socket_at: *mut off_t,
    pipe_at: *mut off_t,
) -> Result<(), Errno> {
    let mode = with_borrowed(pipe, |pipe| fcntl_getfl(pipe))?;
    if mode.bits() as c_int & libc::O_ACCMODE == wrong {
        return Err(Errno::BADF);
    }
    let stat = with_borrowed(pipe, |pipe| fstat(pipe))?;
    let is_pipe = FileType::from_raw_mode(stat.st_mode) == FileType::Fifo;
    match (is_pipe, pipe_at.is_null(), socket_at.is_null()) {
        (false, ..) => Err(Errno::INVAL),
        (_, false, _) => Err(Errno::SPIPE),
        (_, _, false) => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

/// A temporary pipe that no other thread uses.
fn own_pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    pipe_with(PipeFlags::CLOEXEC)
}

fn to_socket(from: c_int, key: usize, len: usize, flags: SpliceFlags) -> Result<i64, Errno> {
    let (out, into) = own_pipe()?;
    let seen = with_borrowed(from, |from| tee(from, &into, len, flags))?;
    let mut bytes = vec![0; seen];
    // These are fewer bytes than a pipe holds, and all of them are there.
    let got = read(&out, &mut bytes)?;
    if got == 0 {
        return Ok(0);
    }
    let more = match flags.contains(SpliceFlags::MORE) {
        true => number::MSG_MORE,
        false => 0,
    };
    let sent = calls::send(key, &[IoSlice::new(&bytes[..got])], more)?;
    with_borrowed(from, |from| read(from, &mut bytes[..sent as usize]))?;
    Ok(sent)
}

fn from_socket(key: usize, to: c_int, len: usize, flags: SpliceFlags) -> Result<i64, Errno> {
    look_for_room(to, flags)?;
    let mut bytes = vec![0; len];
    let seen = calls::receive(
        key,
        &mut [IoSliceMut::new(&mut bytes)],
        number::MSG_PEEK,
        false,
    )?;
    if seen == 0 {
        return Ok(0);
    }
    let (out, into) = own_pipe()?;
    let kept = rustix::io::write(&into, &bytes[..seen as usize])?;
    let (null, at) = (std::ptr::null_mut(), out.as_raw_fd());
    // SAFETY: it takes numbers alone, and no positions.
    let moved = unsafe { real_unsafe::splice(at, null, to, null, kept, flags.bits()) };
    let moved = told(moved as i64)?;
    let taken = &mut bytes[..moved as usize];
    calls::receive(
        key,
        &mut [IoSliceMut::new(taken)],
        number::MSG_DONTWAIT,
        false,
    )?;
    Ok(moved)
}

/// Looks for room in the pipe, as the kernel does before it waits for the socket. The socket's own
/// flag says whether to wait.
fn look_for_room(to: c_int, flags: SpliceFlags) -> Result<(), Errno> {
    let events = with_borrowed(to, |to| {
        let mut fds = [PollFd::from_borrowed_fd(to, PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec::default())).map(|_| fds[0].revents())
    })?;
    if events.contains(PollFlags::ERR) {
        // The pipe has no reader.
        sigpipe();
        return Err(Errno::PIPE);
    }
    let is_nonblocking = flags.contains(SpliceFlags::NONBLOCK)
        || with_borrowed(to, |to| fcntl_getfl(to))?.contains(OFlags::NONBLOCK);
    match is_nonblocking && !events.contains(PollFlags::OUT) {
        true => Err(Errno::AGAIN),
        false => Ok(()),
    }
}

fn read(from: impl AsFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    rustix::io::read(from, bytes)
}
