//! A socket in whose queue lie descriptors that may be slow to close, closed without a wait.
//!
//! The last close of a UNIX socket closes the descriptors in its queue. One of a TCP socket that
//! lingers makes it wait for as long as the client likes. Sockets of a thread that ends do not
//! linger (`PF_EXITING` in `inet_release`). So the last copy of the socket goes with a thread that
//! has a table of descriptors of its own. A locked file of a file system that is the client's own
//! program can still hold that thread up. Therefore its table holds the socket alone: nothing else
//! of the service stays open meanwhile. Called for connections that are refused.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{self, DupFlags, Errno, dup3, fcntl_dupfd_cloexec};

/// Closes sockets by threads that end at once.
#[derive(Debug)]
pub struct Abandoner {
    /// A low descriptor number. The socket has it while a thread begins, so that a copy of the
    /// table ends there and is short.
    low: OwnedFd,
    /// A file that has the number otherwise.
    unused: OwnedFd,
}

impl Abandoner {
    /// Takes the lowest descriptor number that is free.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let low = eventfd(0, EventfdFlags::CLOEXEC)?;
        let unused = fcntl_dupfd_cloexec(&low, 0)?;
        Ok(Self { low, unused })
    }

    /// Closes `socket`.
    ///
    /// # Errors
    /// The socket, if there is no such thread to be had.
    pub fn abandon(&mut self, socket: OwnedFd) -> Result<JoinHandle<()>, OwnedFd> {
        if dup3(&socket, &mut self.low, DupFlags::CLOEXEC).is_err() {
            return Err(socket);
        }
        let (tell_copied, copied) = sync_channel(0);
        let (closed, wait_closed) = sync_channel::<()>(0);
        let number = self.low.as_raw_fd().cast_unsigned();
        let thread = Builder::new().name("mux-abandon".into()).spawn(move || {
            // SAFETY: this thread uses no descriptor, and ends soon; its copy of the socket ends
            // with it.
            let is_own = unsafe { keep_one(number) }.is_ok();
            let _ = tell_copied.send(is_own);
            // An error tells as well that the other copies are closed.
            let _ = wait_closed.recv();
        });
        let is_copied = thread.is_ok() && copied.recv() == Ok(true);
        // None of these copies is the last one. The number stays taken in any case.
        let _ = dup3(&self.unused, &mut self.low, DupFlags::CLOEXEC);
        let (Ok(thread), true) = (thread, is_copied) else {
            return Err(socket);
        };
        drop(socket);
        drop(closed);
        Ok(thread)
    }
}

/// Gives the calling thread a table of descriptors of its own, with `number` alone.
///
/// # Errors
/// `NOMEM`; `NOSYS` before Linux 5.9. The table may be its own then, with more descriptors.
///
/// # Safety
/// The thread must use no descriptor that the process has.
unsafe fn keep_one(number: u32) -> io::Result<()> {
    // Copies only what lies below the range.
    // SAFETY: the caller's.
    unsafe { close_range(number + 1, u32::MAX, libc::CLOSE_RANGE_UNSHARE)? };
    match number.checked_sub(1) {
        // SAFETY: the caller's; the table is the thread's own by now.
        Some(last) => unsafe { close_range(0, last, 0) },
        None => Ok(()),
    }
}

/// # Safety
/// Nothing may use the descriptors from `first` to `last` in the table that the call acts on.
unsafe fn close_range(first: u32, last: u32, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: the call takes three numbers and touches no memory of the process.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    match result {
        0 => Ok(()),
        _ => {
            let error = std::io::Error::last_os_error();
            Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::time::{Duration, Instant};

    use packetio::foreign::Closer;
    use packetio::mux::channel::Channel;
    use packetio::mux::message::{Hello, Message};
    use packetio::text::Text;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};

    use super::*;

    /// A socket whose queue holds a socket that lingers, and the peer of that one.
    fn slow_socket() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let lingering = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        sockopt::set_socket_linger(&lingering, Some(Duration::from_secs(30_000))).unwrap();
        lingering.set_nonblocking(true).unwrap();
        while (&lingering).write(&[0; 65_536]).is_ok() {}
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (near, far) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        let name = Text::new("slow");
        let join = Message::Join(Hello { name, contexts: 1 });
        let channel = Channel::new(far, &Closer::default());
        channel.send(&join, Some(lingering.as_fd())).unwrap();
        (near, peer)
    }

    fn ends_within(thread: &JoinHandle<()>, time: Duration) -> bool {
        let end = Instant::now() + time;
        while !thread.is_finished() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        thread.is_finished()
    }

    #[test]
    fn socket_with_a_slow_descriptor_in_its_queue_is_closed_at_once() {
        // A program that another test starts may hold a copy of the socket for a moment, and wait
        // in place of this one.
        let is_slow = (0..20).any(|_| {
            let (socket, peer) = slow_socket();
            let closing = std::thread::spawn(move || drop(socket));
            let is_quick = ends_within(&closing, Duration::from_millis(300));
            // The peer's reset ends the wait.
            drop(peer);
            closing.join().unwrap();
            !is_quick
        });
        assert!(
            is_slow,
            "a plain close does not wait, so there is nothing to test"
        );
        let (socket, _peer) = slow_socket();
        let closing = Abandoner::new().unwrap().abandon(socket).unwrap();
        assert!(ends_within(&closing, Duration::from_secs(10)));
    }

    #[test]
    fn table_of_the_thread_holds_one_descriptor() {
        let abandoner = Abandoner::new().unwrap();
        let number = abandoner.low.as_raw_fd().cast_unsigned();
        let others: Vec<OwnedFd> = (0..100)
            .map(|_| fcntl_dupfd_cloexec(&abandoner.unused, 0).unwrap())
            .collect();
        let thread = std::thread::spawn(move || {
            // SAFETY: the thread uses only a descriptor that it opens itself.
            unsafe { keep_one(number) }.unwrap();
            let table = std::fs::read_dir("/proc/thread-self/fd").unwrap();
            table.count()
        });
        // One more for the directory that is read.
        assert_eq!(thread.join().unwrap(), 2);
        assert!(
            rustix::io::fcntl_getfd(&others[99]).is_ok(),
            "this thread's"
        );
    }

    #[test]
    fn number_of_the_next_socket_is_free_again() {
        let mut abandoner = Abandoner::new().unwrap();
        let kind = |fd: &OwnedFd| {
            rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new()).unwrap()
        };
        let before = kind(&abandoner.low);
        let (socket, _peer) = slow_socket();
        abandoner.abandon(socket).unwrap().join().unwrap();
        assert_eq!(kind(&abandoner.low), before);
    }
}
