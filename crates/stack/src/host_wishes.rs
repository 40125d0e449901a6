//! Requests to the host behind the port that are still open: local ports for connections that found
//! none, and the end of claims.
//!
//! Owns the connections that wait and the places that sockets have left. Empty on a port without
//! such a host. Filled by `connect` and by the release of sockets; emptied by `host`.

use std::net::{Ipv4Addr, SocketAddr};

use crate::context::Connect;
use crate::flows::Flows;
use crate::limits::PORT_WAITS_MAX;
use crate::network::layer::Network;

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

/// An open that found no local port waits until the host has answered.
#[cold]
pub(crate) fn waits_for_port(
    host_wishes: &HostWishes,
    network: &Network,
    connect: &Connect,
) -> bool {
    let is_valid = connect.local.is_none_or(|local| local.port() == 0);
    network.has_host()
        && is_valid
        && host_wishes.is_short
        && host_wishes.waiting.len() < PORT_WAITS_MAX
}

/// A bound socket or a listener is about to go: its address is released later.
#[cold]
pub(crate) fn leave_place(flows: &Flows, host_wishes: &mut HostWishes, now_ns: u64, socket: u32) {
    let Some((local, dual)) = flows.place_of(socket) else {
        return;
    };
    if local.ip().is_loopback() {
        return;
    }
    let other = SocketAddr::from((Ipv4Addr::UNSPECIFIED, local.port()));
    let other = (dual && local.ip().is_unspecified()).then_some(other);
    for local in std::iter::once(local).chain(other) {
        let is_told = false;
        host_wishes.left.push(Left { local, is_told });
    }
    host_wishes.look_ns = now_ns;
}
