//! Open requests to the host behind the port: local ports for connections that found none, and the
//! release of closed sockets' addresses.
//!
//! The module owns the waiting opens and the addresses that sockets have left. `connect` and the
//! release of sockets fill it; `host` empties it. It stays empty on a port without a host.

use std::net::{Ipv4Addr, SocketAddr};

use crate::context::Connect;
use crate::flows::Flows;
use crate::limits::PORT_WAITS_MAX;
use crate::network::layer::Network;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct HostWishes {
    /// True if the last open found no local port.
    pub is_short: bool,
    /// Opens that wait for local ports.
    pub waiting: Vec<Connect>,
    /// True if the host was asked for ports and has not answered.
    pub is_asked: bool,
    /// Addresses of closed sockets. The host's claim stays until the connections at an address are
    /// gone.
    pub left: Vec<Left>,
    /// Time at which to look for connections at these addresses again, ns.
    pub look_ns: u64,
    /// Time at which to look for unused blocks of lent ports, ns; `None`: no ports are lent.
    pub ports_look_ns: Option<u64>,
    /// Time at which to look for connections that wait too long to be accepted, ns.
    pub accepts_look_ns: Option<u64>,
}

/// The address of a closed socket.
pub(crate) struct Left {
    pub local: SocketAddr,
    /// True if the host knows that no socket listens at the address any more.
    pub is_told: bool,
}

impl HostWishes {
    /// Time of the next look at left addresses, ns.
    pub fn places_due_ns(&self) -> Option<u64> {
        (!self.left.is_empty()).then_some(self.look_ns)
    }

    /// Time of the next look at left addresses, lent ports or accept queues, ns.
    pub fn due_ns(&self) -> Option<u64> {
        let places = self.places_due_ns();
        [places, self.ports_look_ns, self.accepts_look_ns]
            .into_iter()
            .flatten()
            .min()
    }
}

/// True if an open that found no local port should wait for the host's answer.
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

/// Notes the address of a bound socket or listener that is about to go, for a later release.
#[cold]
pub(crate) fn leave_place(flows: &Flows, host_wishes: &mut HostWishes, now_ns: u64, socket: u32) {
    let Some((local, dual)) = flows.endpoint_of(socket) else {
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
