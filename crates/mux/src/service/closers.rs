//! Descriptors that clients sent and that wait to be closed, by user.
//!
//! A descriptor may take hours to close: a TCP socket that lingers, a file whose file system is a
//! program of the client's. So each user has a closer, and with it a thread while something waits.
//! Users whose descriptors are slow are refused, and no other user. The number of users is that of
//! connections, so only those are counted for whom something waits. Called by `clients`.

use std::collections::BTreeMap;

use packetio::foreign::Closer;

use crate::limits::CLOSING_USERS_MAX;

/// The closers of all users.
#[derive(Debug, Default)]
pub(super) struct Closers {
    of_users: BTreeMap<u32, Closer>,
    /// The closer of all users who found no room.
    others: Closer,
}

impl Closers {
    /// Where a refused socket goes that must not be closed here.
    pub(super) fn for_refused(&self, uid: u32) -> &Closer {
        self.of_users.get(&uid).unwrap_or(&self.others)
    }

    /// The closer of a user; `None` if it has no room, or if too many users have one. Root always
    /// has one.
    pub(super) fn with_room(&mut self, uid: u32) -> Option<Closer> {
        if !self.of_users.contains_key(&uid) && self.of_users.len() >= CLOSING_USERS_MAX {
            self.of_users.retain(|_, closer| !closer.is_unused());
        }
        let busy = |closer: &&Closer| !closer.is_idle();
        let has_room = uid == 0
            || self.of_users.get(&uid).is_some_and(|own| busy(&own))
            || self.of_users.values().filter(busy).count() < CLOSING_USERS_MAX;
        let closer = has_room.then(|| self.of_users.entry(uid).or_default().clone())?;
        (uid == 0 || !closer.is_full()).then_some(closer)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::time::{Duration, Instant};

    use rustix::net::sockopt;

    use super::*;

    /// A socket that is slow to close, and the peer whose end ends the wait.
    fn slow() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        sockopt::set_socket_send_buffer_size(&socket, 4096).unwrap();
        sockopt::set_socket_linger(&socket, Some(Duration::from_secs(30_000))).unwrap();
        socket.set_nonblocking(true).unwrap();
        while (&socket).write(&[0; 4096]).is_ok() {}
        (socket.into(), peer)
    }

    #[test]
    fn users_beyond_the_limit_wait_until_one_is_done() {
        let mut closers = Closers::default();
        let mut peers = Vec::new();
        for uid in 1..=CLOSING_USERS_MAX as u32 {
            let (socket, peer) = slow();
            closers.with_room(uid).unwrap().close(socket);
            peers.push(peer);
        }
        assert!(closers.with_room(5000).is_none());
        assert!(closers.with_room(1).is_some(), "one that is counted");
        assert!(closers.with_room(0).is_some(), "root");
        drop(peers.pop());
        let end = Instant::now() + Duration::from_secs(10);
        while closers.with_room(5000).is_none() {
            assert!(Instant::now() < end, "none is done");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn users_without_slow_descriptors_are_not_counted() {
        let mut closers = Closers::default();
        let connected = 2 * CLOSING_USERS_MAX as u32;
        let all: Vec<Closer> = (1..=connected)
            .map(|uid| closers.with_room(uid).unwrap())
            .collect();
        assert_eq!(closers.of_users.len(), all.len());
        drop(all);
        // They are forgotten once their connections have ended.
        assert!(closers.with_room(5000).is_some());
        assert_eq!(closers.of_users.len(), 1);
    }
}
