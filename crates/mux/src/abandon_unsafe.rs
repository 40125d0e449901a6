//! A socket in whose queue lie descriptors that may be slow to close, closed without a wait.
//!
//! The last close of a UNIX socket closes the descriptors in its queue. One of a TCP socket that
//! lingers makes it wait for as long as the client likes. Sockets of a thread that ends do not
//! linger (`PF_EXITING` in `inet_release`). So the last copy of the socket goes with a thread that
//! has a table of descriptors of its own. Called for connections that are refused.

use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Closes `socket` by a thread that ends at once.
///
/// # Errors
/// The socket, if there is no such thread to be had.
pub fn abandon(socket: OwnedFd) -> Result<JoinHandle<()>, OwnedFd> {
    let (tell_copied, copied) = sync_channel(0);
    let (closed, wait_closed) = sync_channel::<()>(0);
    let thread = Builder::new().name("mux-abandon".into()).spawn(move || {
        // SAFETY: this thread uses no descriptor, and ends soon; its copies end with it.
        let is_own = unsafe { unshare_unsafe(UnshareFlags::FILES) }.is_ok();
        let _ = tell_copied.send(is_own);
        // An error tells as well that the other copy is closed.
        let _ = wait_closed.recv();
    });
    let (Ok(thread), Ok(true)) = (thread, copied.recv()) else {
        return Err(socket);
    };
    // Not the last copy.
    drop(socket);
    drop(closed);
    Ok(thread)
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
        let closing = abandon(socket).unwrap();
        assert!(ends_within(&closing, Duration::from_secs(10)));
    }
}
