//! Kernel descriptors among the sockets, so that one loop serves both: pipes, eventfds and
//! everything else that a program brings. The kernel's answers are passed on. Calls here never
//! block, whatever the descriptor's flags: the caller sleeps where sockets can wake it, too.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::number::{POLLERR, POLLHUP, POLLIN, POLLOUT};

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};
/// Offset for `preadv2` and `pwritev2` that means the descriptor's own position.
const HERE: u64 = u64::MAX;

/// The bits of `poll` that are set now, among `events`.
pub(crate) fn ready(fd: &OwnedFd, events: i16) -> i16 {
    let mut fds = [PollFd::new(fd, PollFlags::from_bits_retain(events as u16))];
    match poll(&mut fds, Some(&NOW)) {
        Ok(_) => fds[0].revents().bits() as i16,
        Err(_) => 0,
    }
}

/// Flags that `F_SETFL` changes in the kernel. `O_NONBLOCK` is kept here instead.
const SETTABLE: OFlags = OFlags::APPEND.union(OFlags::DIRECT).union(OFlags::NOATIME);

/// The flags that `F_GETFL` returns.
pub(crate) fn flags(fd: &OwnedFd) -> Result<i32, Errno> {
    Ok((fcntl_getfl(fd)? & (OFlags::RWMODE | SETTABLE)).bits() as i32)
}

/// `F_SETFL`
pub(crate) fn set_flags(fd: &OwnedFd, flags: i32) -> Result<(), Errno> {
    let asked = OFlags::from_bits_retain(flags as u32);
    fcntl_setfl(fd, (fcntl_getfl(fd)? - SETTABLE) | (asked & SETTABLE))
}

/// Reads the bytes that are there.
pub(crate) fn read(fd: &OwnedFd, pieces: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
    // A read of zero bytes does not block, and some files, like an eventfd, fail it.
    if let [piece] = pieces
        && piece.is_empty()
    {
        return rustix::io::read(fd, &mut piece[..]);
    }
    match rustix::io::preadv2(fd, pieces, HERE, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP) => {}
        read => return read,
    }
    match ready(fd, POLLIN) & (POLLIN | POLLHUP | POLLERR) {
        0 => Err(Errno::AGAIN),
        _ => rustix::io::readv(fd, pieces),
    }
}

/// `RWF_NOSIGNAL`, which Linux has since 6.18. Older kernels refuse it.
const NO_SIGNAL: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x100);

/// Writes as many bytes as there is room for. A write without a reader fails and sends no signal.
pub(crate) fn write(fd: &OwnedFd, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    if let [piece] = pieces
        && piece.is_empty()
    {
        return rustix::io::write(fd, piece);
    }
    match rustix::io::pwritev2(fd, pieces, HERE, ReadWriteFlags::NOWAIT | NO_SIGNAL) {
        Err(Errno::OPNOTSUPP) => write_before_6_18(fd, pieces),
        written => written,
    }
}

/// Writes without `RWF_NOSIGNAL`: for older kernels, and for files that know no such flags, like an
/// eventfd or a terminal.
fn write_before_6_18(fd: &OwnedFd, pieces: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
    if kind == FileType::Socket {
        return send(fd, pieces, 0);
    }
    let said = ready(fd, POLLOUT) & (POLLOUT | POLLERR);
    match kind {
        // The other end of the pipe is closed, so a write would send `SIGPIPE`.
        FileType::Fifo if said & POLLERR != 0 => return Err(Errno::PIPE),
        _ if said == 0 => return Err(Errno::AGAIN),
        _ => {}
    }
    match rustix::io::pwritev2(fd, pieces, HERE, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP) => rustix::io::writev(fd, pieces),
        written => written,
    }
}

/// `recvmsg`, for sockets only.
pub(crate) fn recv(
    fd: &OwnedFd,
    pieces: &mut [IoSliceMut<'_>],
    flags: i32,
) -> Result<usize, Errno> {
    let flags = RecvFlags::from_bits_retain(flags as u32) | RecvFlags::DONTWAIT;
    let mut none = RecvAncillaryBuffer::default();
    rustix::net::recvmsg(fd, pieces, &mut none, flags).map(|message| message.bytes)
}

/// `sendmsg`, for sockets only.
pub(crate) fn send(fd: &OwnedFd, pieces: &[IoSlice<'_>], flags: i32) -> Result<usize, Errno> {
    let own = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let flags = SendFlags::from_bits_retain(flags as u32) | own;
    rustix::net::sendmsg(fd, pieces, &mut SendAncillaryBuffer::default(), flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_write_without_a_wait_and_without_a_signal() {
        let bytes = [7; 70_000];
        let all = [IoSlice::new(&bytes)];
        // A blocking write of this many bytes would wait.
        let (from, to) = rustix::pipe::pipe().unwrap();
        assert_eq!(write_before_6_18(&to, &all), Ok(65_536));
        assert_eq!(write_before_6_18(&to, &all), Err(Errno::AGAIN));
        drop(from);
        assert_eq!(write_before_6_18(&to, &all), Err(Errno::PIPE));
        let counter = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let one = [IoSlice::new(&[1, 0, 0, 0, 0, 0, 0, 0])];
        assert_eq!(write_before_6_18(&counter, &one), Ok(8));
    }
}
