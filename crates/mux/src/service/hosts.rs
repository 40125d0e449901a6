//! Changes of the NIC's addresses, routes, neighbours, MTU, MAC and link.
//!
//! The data plane follows a change before applications hear of it, so that frames which they send
//! after the news pass.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Instant;

use packetio::MacAddr;
use packetio::mux::message::{Change, Message, PROTOCOL_TCP, Tuple};
use rustix::io::Errno;

use super::clients::ClientId;
use super::{Service, after_ns};
use crate::limits::{MTU_MAX, NIC_RETRY_NS};
use crate::plane::Plane;

impl<P: Plane> Service<P> {
    /// Applies the whole state at the start.
    pub(super) fn learn_host(&mut self) {
        for change in self.mirror.host().all() {
            self.apply(change);
        }
        self.forget_addresses();
    }

    /// Takes away addresses that the NIC and its subnets do not have: those of before a restart,
    /// and broadcast addresses of addresses that are gone.
    pub(super) fn forget_addresses(&mut self) {
        let own = self.mirror.host().addresses.iter();
        let mut own: BTreeSet<IpAddr> = own
            .flat_map(|one| [Some(one.address), one.broadcast])
            .flatten()
            .collect();
        own.extend(self.leaving.addresses());
        for gone in self.plane.addresses() {
            if !own.contains(&gone) {
                self.plane.address_remove(gone);
            }
        }
    }

    /// Takes away next hops of the service before this one that no application has asked for again.
    pub(super) fn forget_old_hops(&mut self, now: Instant) {
        if self.old_hops_until.is_none_or(|until| until > now) {
            return;
        }
        self.old_hops_until = None;
        let mut used = self.macs();
        used.extend(self.plane.own_hop());
        for gone in self.plane.next_hops() {
            if !used.contains(&gone) {
                self.plane.next_hop_set(gone, false);
            }
        }
    }

    /// Applies the kernel's notifications.
    pub(super) fn follow_host(&mut self) {
        let old = self.macs();
        let changes = match self.mirror.changes() {
            Ok(changes) => changes,
            Err(errno) => {
                return (self.say)(&format!(
                    "rtnetlink: {errno}; looking again at the next change"
                ));
            }
        };
        let is_removed = |change: &Change| matches!(change, Change::AddressRemoved { .. });
        let has_less = changes.iter().any(is_removed);
        for change in changes {
            let change = bounded(change);
            // No address comes back without its interface.
            if change == Change::Gone {
                self.lose_all_addresses();
            }
            self.apply(change);
            match change {
                Change::NextHop { address, mac } => self.tell_next_hop(address, mac),
                // Applications are told later, if the address does not come back.
                Change::AddressRemoved { .. } => {}
                change => self.tell_all(change),
            }
            if let Change::Mac(mac) = change {
                self.announce(mac);
            }
        }
        if has_less {
            self.forget_addresses();
        }
        // Only now, since another address may have got the MAC address.
        let new = self.macs();
        for gone in old.into_iter().filter(|mac| !new.contains(mac)) {
            self.plane.next_hop_set(gone, false);
        }
    }

    fn macs(&self) -> Vec<MacAddr> {
        self.mirror
            .neighbours()
            .filter_map(|(_, mac)| mac)
            .collect()
    }

    /// Applies the data plane's part of a change.
    fn apply(&mut self, change: Change) {
        match change {
            Change::AddressAdded { address, .. } => {
                let mut known = self.mirror.host().addresses.iter();
                let found = known.find(|one| one.address == address);
                let broadcast = found.and_then(|one| one.broadcast);
                self.plane.address_add(address, broadcast);
                self.leaving.end(address);
            }
            Change::AddressRemoved { address, prefix } => {
                self.leaving.begin(address, prefix, Instant::now());
            }
            Change::Mac(_) => self.set_host(),
            Change::Mtu(_) => {
                self.set_host();
                self.warn_of_mtu();
            }
            Change::NextHop { mac: Some(mac), .. } => self.plane.next_hop_set(mac, true),
            Change::Gone => {
                self.retry_nic = None;
                (self.say)(&format!(
                    "{}: the interface was removed; its applications wait until it is back",
                    self.options.interface
                ));
            }
            Change::Complete => self.take_nic_back(),
            Change::Link { .. }
            | Change::RouteAdded(_)
            | Change::RouteRemoved(_)
            | Change::OwnHop(_)
            | Change::NextHop { mac: None, .. } => {}
        }
    }

    fn set_host(&mut self) {
        if let Some(link) = &self.mirror.host().link
            && let Some(mac) = link.mac
        {
            self.plane.host_set(mac, link.mtu.min(MTU_MAX as u32));
        }
    }

    fn warn_of_mtu(&self) {
        let mtu = self.mirror.host().link.as_ref().map_or(0, |link| link.mtu);
        if mtu as usize > MTU_MAX {
            (self.say)(&format!(
                "{}: the interface has MTU {mtu} now, and virtual ports carry {MTU_MAX} bytes at \
                 most: applications keep to that",
                self.options.interface
            ));
        }
    }

    /// Announces a changed MAC address. Otherwise neighbours would send to the old one until they
    /// doubt it, and transfers would stall.
    fn announce(&self, mac: MacAddr) {
        let interface = &self.options.interface;
        match self.mirror.announce() {
            Ok(()) => (self.say)(&format!(
                "{interface}: the interface has MAC address {mac} now"
            )),
            Err(errno) => (self.say)(&format!(
                "{interface}: the interface has MAC address {mac} now, but its neighbours could not \
                 be told: {errno}"
            )),
        }
    }

    /// Attaches to an interface that came back. While this fails, for example because another XDP
    /// program is attached, the service says so once and retries.
    pub(super) fn take_nic_back(&mut self) {
        let interface = &self.options.interface;
        let is_first = self.retry_nic.is_none();
        self.retry_nic = None;
        match self.plane.nic_back() {
            Ok(()) => (self.say)(&format!("{interface}: the interface is back")),
            Err(cause) => {
                if is_first {
                    (self.say)(&format!("{interface}: the interface is back, but {cause}"));
                }
                self.retry_nic = Some(after_ns(NIC_RETRY_NS));
            }
        }
    }

    /// Handles the loss of an address: its claims end, wildcards stay.
    pub(super) fn lose_address(&mut self, address: IpAddr) {
        if self.mirror.host().has(address) {
            // Only the prefix has changed.
            return;
        }
        self.plane.address_remove(address);
        for (endpoint, claim) in self.ownership.take_address(address) {
            self.plane.claim_remove(endpoint);
            self.are_notes_old = true;
            let application = self.applications.get(&claim.application);
            let ids = application.map(|one| one.clients.clone());
            for id in ids.into_iter().flatten() {
                let tuple = Tuple {
                    protocol: PROTOCOL_TCP,
                    address,
                    port: endpoint.port(),
                };
                let errno = Errno::NETDOWN.raw_os_error() as u16;
                self.send(id, &Message::Revoke { tuple, errno });
            }
        }
    }

    /// Answers requests that wait for the next hop, and tells applications that use it.
    fn tell_next_hop(&mut self, address: IpAddr, mac: Option<MacAddr>) {
        if let Some(mac) = mac {
            let answered: Vec<(ClientId, u32)> = self
                .resolving
                .extract_if(.., |waiting| waiting.address == address)
                .map(|waiting| (waiting.client, waiting.request))
                .collect();
            for (id, request) in answered {
                let answer = Message::NextHop {
                    request,
                    address,
                    mac,
                };
                self.send(id, &answer);
            }
        }
        match mac {
            Some(_) => self.silent_hops.answered(address),
            None => self.silent_hops.expect(address),
        }
        let users = self
            .applications
            .values()
            .filter(|one| one.next_hops.contains(&address));
        let users: Vec<ClientId> = users.flat_map(|one| one.clients.iter().copied()).collect();
        for id in users {
            self.send(id, &Message::Change(Change::NextHop { address, mac }));
        }
    }

    /// Refuses next-hop requests that waited too long.
    pub(super) fn give_up_resolving(&mut self, now: Instant) {
        let late: Vec<(ClientId, u32)> = self
            .resolving
            .extract_if(.., |waiting| waiting.deadline <= now)
            .map(|waiting| (waiting.client, waiting.request))
            .collect();
        for (id, request) in late {
            self.refuse(id, request, Errno::HOSTUNREACH);
        }
    }

    /// True if frames may go to this address directly: it is on a link of the NIC, and is a gateway
    /// or matches a route without one.
    pub(super) fn is_next_hop(&self, address: IpAddr) -> bool {
        let host = self.mirror.host();
        let is_group = match address {
            IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_multicast(),
        };
        let is_own = host
            .addresses
            .iter()
            .any(|own| own.address == address || own.broadcast == Some(address));
        if is_group || is_own || address.is_loopback() || address.is_unspecified() {
            return false;
        }
        host.routes.iter().any(|route| match route.gateway {
            Some(gateway) => gateway == address,
            None => covers(route.destination, route.prefix, address),
        })
    }

    /// Forgets next hops that no application uses any more.
    pub(super) fn forget_next_hops(&mut self) {
        let used = |address: &IpAddr| {
            let mut applications = self.applications.values();
            applications.any(|one| one.next_hops.contains(address))
        };
        let all: Vec<(IpAddr, Option<MacAddr>)> = self.mirror.neighbours().collect();
        let unused: Vec<_> = all.iter().filter(|(address, _)| !used(address)).collect();
        for (address, _) in &unused {
            self.mirror.forget(*address);
        }
        let left = self.macs();
        for mac in unused.into_iter().filter_map(|(_, mac)| *mac) {
            if !left.contains(&mac) {
                self.plane.next_hop_set(mac, false);
            }
        }
    }
}

/// A change as applications hear of it: no MTU is above what virtual ports carry.
pub(super) fn bounded(change: Change) -> Change {
    match change {
        Change::Mtu(mtu) => Change::Mtu(mtu.min(MTU_MAX as u32)),
        change => change,
    }
}

/// True if the network of `prefix` bits contains `address`.
fn covers(network: IpAddr, prefix: u8, address: IpAddr) -> bool {
    let (network, address, bits) = match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            (network.to_bits().into(), address.to_bits().into(), 32)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => (network.to_bits(), address.to_bits(), 128),
        _ => return false,
    };
    let differing: u128 = network ^ address;
    let host_bits = bits - u32::from(prefix).min(bits);
    differing.checked_shr(host_bits).unwrap_or(0) == 0
}
