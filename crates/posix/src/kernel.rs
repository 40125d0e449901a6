//! Descriptors of the kernel among ours, so that one loop serves both: pipes, eventfds, and whatever else a program brings along.

use std::io;
use std::os::fd::OwnedFd;

use millstream::{Poll, Readiness, Token};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::epoll::wanted;
use crate::number::EPOLLONESHOT;
use crate::request::EpollEvent;

const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// What can be done with it now.
pub(crate) fn readiness(fd: &OwnedFd) -> Readiness {
    let asked = PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP;
    let mut fds = [PollFd::new(fd, asked)];
    if poll(&mut fds, Some(&NOW)).is_err() {
        return Readiness::NONE;
    }
    let said = fds[0].revents();
    let pairs = [
        (PollFlags::IN, Readiness::READABLE),
        (PollFlags::OUT, Readiness::WRITABLE),
        (PollFlags::RDHUP, Readiness::READ_CLOSED),
        (PollFlags::HUP, Readiness::HANGUP),
        (PollFlags::ERR, Readiness::ERROR),
    ];
    let ready = pairs.iter().filter(|(flag, _)| said.contains(*flag));
    ready.fold(Readiness::NONE, |all, (_, one)| all.union(*one))
}

/// Watches it, or changes what is wanted of it.
pub(crate) fn watch(
    poll: &mut Poll,
    kernel: &OwnedFd,
    fd: i32,
    event: EpollEvent,
    changes: bool,
) -> io::Result<()> {
    let (interest, mode) = wanted(event);
    let (token, once) = (Token(fd as usize), event.events & EPOLLONESHOT != 0);
    match changes {
        false => poll.register_fd_with(kernel, token, interest, mode, once),
        true => poll.reregister_fd_with(kernel, token, interest, mode, once),
    }
}

/// Reads what is there: never waits, whatever the descriptor's own flags say.
pub(crate) fn read(fd: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    let enough = [Readiness::READABLE, Readiness::HANGUP, Readiness::ERROR];
    if !is_any(readiness(fd), &enough) {
        return Err(Errno::AGAIN);
    }
    rustix::io::read(fd, bytes)
}

/// Writes what there is room for.
pub(crate) fn write(fd: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    if !is_any(readiness(fd), &[Readiness::WRITABLE, Readiness::ERROR]) {
        return Err(Errno::AGAIN);
    }
    rustix::io::write(fd, bytes)
}

fn is_any(ready: Readiness, wanted: &[Readiness]) -> bool {
    wanted.iter().any(|one| ready.contains(*one))
}
