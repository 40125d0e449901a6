//! The kernel's state of one interface, and the differences between two states.
//!
//! After every notification the mirror reads the whole state and compares. The difference is right
//! even if notifications were lost or reordered. `mirror` calls the module.

use std::net::IpAddr;

use super::message::{Address, Link, Route};
use crate::mux::message as mux;
use crate::mux::message::Change;

/// One interface's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The interface; `None` if it does not exist.
    pub link: Option<Link>,
    /// Usable addresses of the interface.
    pub addresses: Vec<Address>,
    /// Unicast routes of the main table through the interface.
    pub routes: Vec<Route>,
}

impl Host {
    /// True if the interface has `address`.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// Each address once, with the first of its prefixes. The kernel may have an address with
    /// several prefixes; their networks are reported by routes.
    fn reported_addresses(&self) -> impl Iterator<Item = (IpAddr, u8)> + '_ {
        let all = self.addresses.iter().enumerate();
        let is_first = |at: usize, one: &Address| {
            self.addresses[..at]
                .iter()
                .all(|o| o.address != one.address)
        };
        all.filter(move |(at, one)| is_first(*at, one))
            .map(|(_, one)| (one.address, one.prefix))
    }

    /// The whole state as changes from an empty one, without [`Change::Complete`].
    pub fn all(&self) -> Vec<Change> {
        Self::default().changes_to(self)
    }

    /// The changes that lead from this state to `next`. Addresses come before the routes that use
    /// them, and go after them. An address goes with the last of its entries. One that gets another
    /// prefix is told again with that.
    pub fn changes_to(&self, next: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        let removed = |changes: &mut Vec<Change>| {
            for route in self.routes.iter().filter(|one| !next.routes.contains(one)) {
                changes.push(Change::RouteRemoved(reported_route(route)));
            }
            for (address, prefix) in self.reported_addresses() {
                if !next.has(address) {
                    changes.push(Change::AddressRemoved { address, prefix });
                }
            }
        };
        let Some(link) = &next.link else {
            removed(&mut changes);
            if self.link.is_some() {
                changes.push(Change::Gone);
            }
            return changes;
        };
        let old = self.link.as_ref();
        if let Some(mac) = link.mac
            && old.and_then(|old| old.mac) != Some(mac)
        {
            changes.push(Change::Mac(mac));
        }
        if old.map(|old| old.mtu) != Some(link.mtu) {
            changes.push(Change::Mtu(link.mtu));
        }
        if old.map(|old| old.is_up) != Some(link.is_up) {
            changes.push(Change::Link { is_up: link.is_up });
        }
        removed(&mut changes);
        for (address, prefix) in next.reported_addresses() {
            if !self
                .reported_addresses()
                .any(|old| old == (address, prefix))
            {
                changes.push(Change::AddressAdded { address, prefix });
            }
        }
        for route in next.routes.iter().filter(|one| !self.routes.contains(one)) {
            changes.push(Change::RouteAdded(reported_route(route)));
        }
        changes
    }
}

fn reported_route(route: &Route) -> mux::Route {
    mux::Route {
        destination: route.destination,
        prefix: route.prefix,
        gateway: route.gateway,
        source: route.source,
        mtu: route.mtu,
        metric: route.metric,
    }
}

#[cfg(test)]
mod tests;
