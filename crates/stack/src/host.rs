//! What a host that stands behind the port tells the stack, and what the stack asks of it (`packetio::port::Host`).
//!
//! Such a host does ARP and ND, and owns addresses and routes: `mill mux`. Called once per turn, between timers and output.

use std::net::IpAddr;

use packetio::mux::message::Change;
use packetio::port::Host;
use rustix::io::Errno;
use wire::{Addr, MacAddr};

use crate::core::Core;
use crate::flows::slot::Role;
use crate::network::addresses::IpCidr;

impl Core {
    /// Applies what changed, and asks for next hops.
    pub(crate) fn exchange(&mut self, host: &mut dyn Host) {
        while let Some(change) = host.next_change() {
            self.host_changed(change);
        }
        for address in self.network.wanted.drain(..) {
            host.resolve(address);
        }
    }

    #[cold]
    fn host_changed(&mut self, change: Change) {
        match change {
            Change::NextHop { address, mac } => {
                let mac = mac.map(|mac| MacAddr(mac.0));
                if let Some(id) = self.network.next_hop(address, mac, self.env.now_ns) {
                    self.release_waiters(id, None);
                }
            }
            Change::AddressAdded { address, prefix } => {
                if let Ok(cidr) = IpCidr::new(address, prefix) {
                    self.network.add_address(cidr);
                }
            }
            Change::AddressRemoved { address, prefix } => {
                if let Ok(cidr) = IpCidr::new(address, prefix) {
                    self.network.remove_address(cidr);
                    self.end_connections_of(address);
                }
            }
            Change::RouteAdded(route) => {
                if let Ok(prefix) = IpCidr::new(route.destination, route.prefix) {
                    self.network.replace_route(prefix, route.gateway);
                }
            }
            Change::RouteRemoved(route) => {
                if let Ok(prefix) = IpCidr::new(route.destination, route.prefix) {
                    self.network.remove_route(prefix);
                }
            }
            Change::Mac(mac) => self.network.mac = MacAddr(mac.0),
            Change::Mtu(mtu) => self.network.set_mtu(mtu as usize),
            Change::Complete | Change::Link { .. } | Change::Gone => {}
        }
    }

    /// The address is gone: nothing more can come or go.
    fn end_connections_of(&mut self, address: IpAddr) {
        let address = Addr::from(address);
        for socket in 0..self.flows.sockets.span() {
            if self.flows.sockets.role(socket) != Role::Connection
                || self.flows.sockets.slot(socket).key.local != address
            {
                continue;
            }
            self.fail_socket(socket, Errno::NETDOWN);
            if let Some(conn) = self.flows.sockets.slot(socket).live_mut() {
                let effects = conn.abort(&mut self.env.cx());
                self.settle(socket, effects);
            }
        }
    }
}
