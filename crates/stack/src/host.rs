//! The host behind the port: its news for the stack, and the stack's requests to it
//! (`packetio::host`).
//!
//! Such a host does ARP and ND, and owns addresses and routes: `mill mux`. The turn calls it once,
//! between timers and output.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use packetio::host::{Change, Host, NoPorts, Wish};
use rustix::io::Errno;
use wire::{Addr, MacAddr};

use crate::context::Connect;
use crate::core::Core;
use crate::flows::slot::Role;
use crate::host_wishes::Left;
use crate::limits::{LENT_PORTS_LOOK_NS, PLACE_LOOK_NS, PORT_WAITS_MAX};
use crate::network::addresses::IpCidr;

impl Core {
    /// Applies what changed, and asks for next hops.
    pub(crate) fn exchange(&mut self, host: &mut dyn Host) {
        let mut are_links_old = false;
        while let Some(change) = host.next_change() {
            are_links_old |= matches!(
                change,
                Change::Mac(_) | Change::RouteAdded(_) | Change::RouteRemoved(_)
            );
            self.host_changed(change);
        }
        if are_links_old {
            self.forget_links();
        }
        self.exchange_transfers(host);
        while let Some(lease) = host.next_lease() {
            self.ports_came(lease);
        }
        for address in self.network.wanted.drain(..) {
            // A question that finds no room is asked again, like one that is not answered.
            let _ = host.ask(Wish::NextHop(address));
        }
        let wishes = &mut self.host_wishes;
        if !wishes.waiting.is_empty() && !wishes.is_asked {
            wishes.is_asked = host.ask(Wish::LocalPorts);
        }
        let now_ns = self.env.now_ns;
        let is_due = |at: Option<u64>| at.is_some_and(|due_ns| due_ns <= now_ns);
        let (places, ports) = (wishes.places_due_ns(), wishes.ports_look_ns);
        if is_due(places) {
            self.release_places(host);
        }
        if is_due(ports) {
            self.return_ports(host);
        }
    }

    /// An open that found no local port waits until the host has answered.
    #[cold]
    pub(crate) fn waits_for_port(&self, connect: &Connect) -> bool {
        let is_valid = connect.local.is_none_or(|local| local.port() == 0);
        self.network.has_host
            && is_valid
            && self.host_wishes.is_short
            && self.host_wishes.waiting.len() < PORT_WAITS_MAX
    }

    /// The host has lent more local ports, or has none: opens that wait begin, or fail.
    #[cold]
    fn ports_came(&mut self, lease: Result<(u16, u16), NoPorts>) {
        self.host_wishes.is_asked = false;
        if let Ok(ports) = lease {
            self.flows.ports.add(ports);
            self.host_wishes.ports_look_ns = Some(self.env.now_ns + LENT_PORTS_LOOK_NS);
        }
        for connect in std::mem::take(&mut self.host_wishes.waiting) {
            if lease.is_ok() {
                self.connect(connect);
            } else if let Some(socket) = self.flows.sockets.resolve(connect.socket)
                && self.flows.sockets.role(socket) == Role::Reserved
            {
                self.answer(socket, Err(Errno::ADDRNOTAVAIL), connect.answer);
            }
        }
    }

    /// Gives one block of lent ports back that nothing uses, if the others are plenty.
    #[cold]
    fn return_ports(&mut self, host: &mut dyn Host) {
        let idle = self.flows.idle_lent_ports();
        if let Some(ports) = idle.filter(|_| self.host_wishes.waiting.is_empty())
            && host.ask(Wish::ReturnPorts(ports.0, ports.1))
        {
            self.flows.ports.remove(ports);
        }
        let next = self.env.now_ns + LENT_PORTS_LOOK_NS;
        self.host_wishes.ports_look_ns = self.flows.ports.are_lent().then_some(next);
    }

    /// A bound socket or a listener is about to go: its address is released later.
    #[cold]
    pub(crate) fn leave_place(&mut self, socket: u32) {
        let Some((local, dual)) = self.flows.place_of(socket) else {
            return;
        };
        if local.ip().is_loopback() {
            return;
        }
        let other = SocketAddr::from((Ipv4Addr::UNSPECIFIED, local.port()));
        let other = (dual && local.ip().is_unspecified()).then_some(other);
        for local in std::iter::once(local).chain(other) {
            let is_told = false;
            self.host_wishes.left.push(Left { local, is_told });
        }
        self.host_wishes.look_ns = self.env.now_ns;
    }

    /// Releases places at which no connection is left. A wish that finds no room is made again.
    #[cold]
    fn release_places(&mut self, host: &mut dyn Host) {
        let is_transferring = self.is_transferring();
        let flows = &self.flows;
        self.host_wishes.left.retain_mut(|left| {
            let local = left.local;
            left.is_told = left.is_told || host.ask(Wish::Leave(local));
            let is_used = flows.has_flow_at((local.ip(), false), local.port());
            is_used || is_transferring || !left.is_told || !host.ask(Wish::Release(local))
        });
        self.host_wishes.look_ns = self.env.now_ns + PLACE_LOOK_NS;
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
            Change::Mtu(mtu) => {
                self.network.set_mtu(mtu as usize);
                self.narrow_connections();
            }
            Change::Complete | Change::Link { .. } | Change::Gone => {}
        }
    }

    /// Connections look for their next hop again, and make the headers of their frames anew.
    #[cold]
    fn forget_links(&mut self) {
        for slot in self.flows.sockets.warm_slots_mut() {
            slot.conn.forget_headers();
            // One that waits for a next hop looks again when the wait is over.
            if !slot.awaits_neighbour {
                slot.neighbour = None;
            }
        }
    }

    /// Connections send no longer segments than the link takes; the service drops longer ones.
    fn narrow_connections(&mut self) {
        for socket in 0..self.flows.sockets.span() {
            if self.flows.sockets.role(socket) != Role::Connection {
                continue;
            }
            let slot = self.flows.sockets.slot(socket);
            let mss = self.network.mss_for(slot.key.remote);
            if let Some(conn) = slot.live_mut() {
                let effects = conn.on_link_mss(&mut self.env.cx(), mss);
                self.settle(socket, effects);
            }
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
