//! Interrupt eventfds: the sender of a ring writes, its sleeping receiver reads.
//!
//! The peer holds the same open file and may change its flags, so each use here is made not to block on its own account: reads ask the kernel not to wait, and
//! a descriptor that comes from a peer must be an eventfd and is set non-blocking. What remains: a peer that both clears that flag and keeps the counter full
//! can hold up the writer, in the moment in which it also claims to sleep. Called by `rx`, `tx` and the handshakes; never while both ends poll.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, readlink};
use rustix::io::{self, Errno, ReadWriteFlags};

/// A new bell.
///
/// # Errors
/// Those of `eventfd`.
pub fn new() -> io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Whether what a peer sent will do as a bell; makes it non-blocking.
pub fn adopt(bell: BorrowedFd<'_>) -> bool {
    let path = format!("/proc/self/fd/{}", bell.as_raw_fd());
    // Without /proc there is no telling; then believe it.
    if let Ok(target) = readlink(path, Vec::new())
        && target.as_bytes() != b"anon_inode:[eventfd]"
    {
        return false;
    }
    fcntl_getfl(bell)
        .and_then(|flags| fcntl_setfl(bell, flags | OFlags::NONBLOCK))
        .is_ok()
}

/// Wakes the receiver.
#[cold]
pub fn ring(bell: BorrowedFd<'_>) {
    // A full counter means that it is ringing already; other failures leave the receiver to its own timeout.
    let _ = io::write(bell, &1u64.to_ne_bytes());
}

/// Silences the bell.
pub fn drain(bell: BorrowedFd<'_>) {
    let mut count = [0; 8];
    let read = io::preadv2(
        bell,
        &mut [IoSliceMut::new(&mut count)],
        u64::MAX,
        ReadWriteFlags::NOWAIT,
    );
    if matches!(read, Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) {
        // A kernel before 5.9; the descriptor is non-blocking unless a hostile peer changed that.
        let _ = io::read(bell, &mut count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn is_ringing(bell: BorrowedFd<'_>) -> bool {
        let mut fds = [rustix::event::PollFd::new(
            &bell,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(
            &mut fds,
            Some(&rustix::time::Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .unwrap()
            == 1
    }

    #[test]
    fn bell_rung_twice_is_silenced_at_once() {
        let bell = new().unwrap();
        ring(bell.as_fd());
        ring(bell.as_fd());
        assert!(is_ringing(bell.as_fd()));
        drain(bell.as_fd());
        assert!(!is_ringing(bell.as_fd()));
    }

    #[test]
    fn silent_bell_made_blocking_by_the_peer_does_not_hold_up_the_reader() {
        let bell = new().unwrap();
        fcntl_setfl(&bell, OFlags::empty()).unwrap();
        drain(bell.as_fd());
    }

    #[test]
    fn what_is_no_eventfd_is_refused() {
        let file = rustix::fs::memfd_create("no-bell", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(!adopt(file.as_fd()));
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        assert!(!adopt(pipe.as_fd()));
        assert!(adopt(new().unwrap().as_fd()));
    }
}
