//! Interrupt eventfds of rings: the sender writes, the sleeping receiver reads.
//!
//! The peer holds the same open file and may change its flags, so no call here relies on them to
//! avoid blocking. Reads ask the kernel not to wait, and the kernel itself adds to the counter
//! (`ringer_unsafe`). A descriptor from a peer must be an eventfd and is made non-blocking. `rx`,
//! `tx` and the handshakes use the module, but not while both ends poll.

use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{
    AtFlags, FileType, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, readlink, statx,
};
use rustix::io::{self, Errno, ReadWriteFlags};

use super::ringer_unsafe::Ringer;
use crate::foreign::fdinfo;

/// Makes a new bell.
///
/// # Errors
/// The errors of `eventfd`.
pub fn new() -> io::Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Checks that a peer's descriptor is usable as a bell, and makes it non-blocking.
///
/// # Errors
/// One line, to be sent to the peer.
pub fn adopt(bell: BorrowedFd<'_>) -> Result<(), &'static str> {
    if !is_eventfd(bell) {
        return Err("Interrupt fd is not an eventfd");
    }
    // A read takes only one from a semaphore. After a single large write it would never be silent,
    // and the receiver would never sleep.
    if fdinfo(bell, "eventfd-semaphore").is_some_and(|is| is != "0") {
        return Err("Interrupt fd is a semaphore");
    }
    fcntl_getfl(bell)
        .and_then(|flags| fcntl_setfl(bell, flags | OFlags::NONBLOCK))
        .map_err(|_| "Interrupt fd is no good")
}

fn is_eventfd(bell: BorrowedFd<'_>) -> bool {
    match readlink(
        format!("/proc/thread-self/fd/{}", bell.as_raw_fd()),
        Vec::new(),
    ) {
        Ok(target) => target.as_bytes() == b"anon_inode:[eventfd]",
        // Without /proc the kind is unknown, but at least the descriptor must not be one that
        // closes slowly.
        Err(_) => has_no_type(bell),
    }
}

/// True if the descriptor has no file type, like the kernel's own anonymous files. Sockets and
/// files of file systems have one.
fn has_no_type(descriptor: BorrowedFd<'_>) -> bool {
    // Cached attributes suffice: a file system that belongs to the peer must not be queried.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(descriptor, "", flags, StatxFlags::TYPE)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Unknown)
}

/// Rings the bell to wake its receiver.
#[cold]
pub fn ring(ringer: &Ringer, bell: BorrowedFd<'_>) {
    if !ringer.ring(bell) {
        write(bell);
    }
}

/// Rings on kernels without another way. To block us, a peer would have to clear the flag between
/// both calls and keep the counter full.
fn write(bell: BorrowedFd<'_>) {
    let _ = fcntl_setfl(bell, OFlags::NONBLOCK);
    // A full counter means that the bell rings already. After other failures the receiver relies on
    // its own timeout.
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
        // Kernels before 5.9. The descriptor is non-blocking unless a hostile peer changed that.
        let _ = io::read(bell, &mut count);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

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

    /// A bell and its ringer. `None`, with a message, if the kernel does not support ringers.
    fn with_ringer() -> Option<(OwnedFd, Ringer)> {
        let ringer = Ringer::new();
        if !ringer.has_context() {
            let _ = writeln!(
                std::io::stderr(),
                "ignored: the kernel does no asynchronous operations (io_setup)"
            );
            return None;
        }
        Some((new().unwrap(), ringer))
    }

    #[test]
    fn bell_rung_twice_is_silenced_at_once() {
        let (bell, ringer) = (new().unwrap(), Ringer::new());
        for _ in 0..2 {
            ring(&ringer, bell.as_fd());
            write(bell.as_fd());
            assert!(is_ringing(bell.as_fd()));
            drain(bell.as_fd());
            assert!(!is_ringing(bell.as_fd()));
        }
    }

    #[test]
    fn bell_rung_a_thousand_times_counts_them() {
        let Some((bell, ringer)) = with_ringer() else {
            return;
        };
        assert!((0..1000).all(|_| ringer.ring(bell.as_fd())));
        let mut count = [0; 8];
        assert_eq!(io::read(&bell, &mut count), Ok(8));
        assert_eq!(u64::from_ne_bytes(count), 1000);
    }

    /// Rings without the fallback to `write`.
    #[test]
    fn full_bell_made_blocking_by_the_peer_is_rung_by_the_kernel() {
        let Some((bell, ringer)) = with_ringer() else {
            return;
        };
        io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        fcntl_setfl(&bell, OFlags::empty()).unwrap();
        assert!((0..1000).all(|_| ringer.ring(bell.as_fd())));
        assert!(is_ringing(bell.as_fd()));
        let is_blocking = !fcntl_getfl(&bell).unwrap().contains(OFlags::NONBLOCK);
        assert!(is_blocking, "nobody has set it again");
    }

    /// Makes the ringer believe that the kernel refuses every bell, as kernels before 5.9 do.
    #[test]
    fn ringer_refused_by_the_kernel_asks_no_more_until_another_peer_comes() {
        let Some((bell, ringer)) = with_ringer() else {
            return;
        };
        let file = rustix::fs::memfd_create("no-bell", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(!ringer.ring(file.as_fd()));
        assert!(!ringer.ring(bell.as_fd()));
        ringer.try_again();
        assert!(ringer.ring(bell.as_fd()));
    }

    #[test]
    fn full_bell_made_blocking_by_the_peer_does_not_hold_up_who_rings_without_a_ringer() {
        let bell = new().unwrap();
        io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        fcntl_setfl(&bell, OFlags::empty()).unwrap();
        write(bell.as_fd());
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
        let (pipe, _other) = rustix::pipe::pipe().unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        for other in [file.as_fd(), pipe.as_fd(), socket.as_fd()] {
            assert_eq!(adopt(other), Err("Interrupt fd is not an eventfd"));
            assert!(!has_no_type(other));
        }
        let bell = new().unwrap();
        assert!(has_no_type(bell.as_fd()));
        assert_eq!(adopt(bell.as_fd()), Ok(()));
    }

    #[test]
    fn bell_that_one_read_does_not_silence_is_refused() {
        let flags = EventfdFlags::SEMAPHORE | EventfdFlags::NONBLOCK;
        let bell = eventfd(2, flags).unwrap();
        drain(bell.as_fd());
        assert!(is_ringing(bell.as_fd()));
        assert_eq!(adopt(bell.as_fd()), Err("Interrupt fd is a semaphore"));
    }
}
