//! Requests to the host behind the port that are still open: local ports for connections that found
//! none, and the end of claims.
//!
//! Owns the connections that wait and the places that sockets have left. Empty on a port without
//! such a host. Filled by `connect` and by the release of sockets; emptied by `host`.

use std::net::SocketAddr;

use crate::context::Connect;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct HostWishes {
    /// The last open found no local port.
    pub is_short: bool,
    /// Opens that wait for local ports.
    pub waiting: Vec<Connect>,
    /// The host was asked for ports and has not answered.
    pub is_asked: bool,
    /// Addresses of closed sockets. A claim stays until the connections at its address are gone.
    pub left: Vec<Left>,
    /// When to look for connections at those places again.
    pub look_ns: u64,
    /// When to look for lent ports that no connection uses; `None` if none are lent.
    pub ports_look_ns: Option<u64>,
}

/// The address of a closed socket.
pub(crate) struct Left {
    pub local: SocketAddr,
    /// True if the host knows that no socket listens there any more.
    pub is_told: bool,
}

impl HostWishes {
    /// When the next look at the places is due.
    pub fn places_due_ns(&self) -> Option<u64> {
        (!self.left.is_empty()).then_some(self.look_ns)
    }

    /// When the next look at the places or at the lent ports is due.
    pub fn due_ns(&self) -> Option<u64> {
        let places = self.places_due_ns();
        places.into_iter().chain(self.ports_look_ns).min()
    }
}
