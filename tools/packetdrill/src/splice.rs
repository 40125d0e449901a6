//! `splice` and `sendfile` between a socket of the stack and a pipe or file of the kernel, by
//! copying.

use std::os::fd::{AsFd, BorrowedFd};

use posix::{Errno, Reply, Request, number};
use rustix::fs::{FileType, fstat};

use crate::descriptors_unsafe::borrow;
use crate::plugin::Plugin;

/// Moves up to `len` bytes between a socket and a pipe. Returns their number.
///
/// # Errors
/// The errors of splice(2).
pub fn splice(
    plugin: &Plugin,
    fd_in: i32,
    fd_out: i32,
    len: usize,
    flags: u32,
) -> Result<i64, Errno> {
    let flags = if flags & SPLICE_F_NONBLOCK != 0 {
        number::MSG_DONTWAIT
    } else {
        0
    };
    match (plugin.is_ours(fd_in), plugin.is_ours(fd_out)) {
        (true, false) => {
            let pipe = borrow(fd_out).ok_or(Errno::BADF)?;
            check_pipe(pipe)?;
            let len = len.min(PIPE_BYTES_MAX);
            let fd = fd_in;
            let (_, reply) = plugin.call(Request::Recv { fd, len, flags })?;
            let Reply::Bytes(bytes) = reply else {
                return Ok(0);
            };
            write_all(pipe, &bytes)?;
            Ok(bytes.len() as i64)
        }
        (false, true) => {
            let pipe = borrow(fd_in).ok_or(Errno::BADF)?;
            check_pipe(pipe)?;
            let mut bytes = vec![0; len.min(PIPE_BYTES_MAX)];
            let held = rustix::io::read(pipe, &mut bytes)?;
            bytes.truncate(held);
            send(plugin, fd_out, bytes, flags)
        }
        _ => Err(Errno::INVAL),
    }
}

/// Sends a file's bytes to a socket, from `offset` or else from the file's position. Returns their
/// number.
///
/// # Errors
/// The errors of sendfile(2).
pub fn sendfile(
    plugin: &Plugin,
    fd_out: i32,
    fd_in: i32,
    offset: Option<u64>,
    len: usize,
) -> Result<i64, Errno> {
    let file = borrow(fd_in).ok_or(Errno::BADF)?;
    let mut bytes = vec![0; len.min(FILE_BYTES_MAX)];
    let mut filled = 0;
    while filled < bytes.len() {
        let room = &mut bytes[filled..];
        let got = match offset {
            Some(offset) => rustix::io::pread(file, room, offset + filled as u64)?,
            None => rustix::io::read(file, room)?,
        };
        if got == 0 {
            break;
        }
        filled += got;
    }
    bytes.truncate(filled);
    send(plugin, fd_out, bytes, 0)
}

fn send(plugin: &Plugin, fd: i32, bytes: Vec<u8>, flags: i32) -> Result<i64, Errno> {
    if bytes.is_empty() {
        return Ok(0);
    }
    let request = Request::Send {
        fd,
        bytes,
        flags,
        to: None,
        control: Vec::new(),
    };
    plugin.call(request).map(|(value, _)| value)
}

fn check_pipe(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    match FileType::from_raw_mode(fstat(fd)?.st_mode) {
        FileType::Fifo => Ok(()),
        _ => Err(Errno::INVAL),
    }
}

fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = rustix::io::write(fd.as_fd(), bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

const SPLICE_F_NONBLOCK: u32 = 2;
/// Most bytes that a pipe is taken to hold.
const PIPE_BYTES_MAX: usize = 65_536;
/// Most bytes of a file that one call sends.
const FILE_BYTES_MAX: usize = 64 << 20;
