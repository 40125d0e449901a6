//! The kernel's state of one interface, and the differences between two states.
//!
//! After every notification the mirror reads the whole state and compares. The difference is right
//! even if notifications were lost or reordered. `mirror` calls the module.

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
    pub fn has(&self, address: std::net::IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// The whole state as changes from an empty one, without [`Change::Complete`].
    pub fn all(&self) -> Vec<Change> {
        Self::default().changes_to(self)
    }

    /// The changes from this state to `next`. Addresses are added before routes that use them, and
    /// removed after them.
    pub fn changes_to(&self, next: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        let removed = |changes: &mut Vec<Change>| {
            for route in self.routes.iter().filter(|one| !next.routes.contains(one)) {
                changes.push(Change::RouteRemoved(told_route(route)));
            }
            for old in &self.addresses {
                if !next.addresses.iter().any(|new| is_same(old, new)) {
                    changes.push(Change::AddressRemoved {
                        address: old.address,
                        prefix: old.prefix,
                    });
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
        for new in &next.addresses {
            if !self.addresses.iter().any(|old| is_same(old, new)) {
                changes.push(Change::AddressAdded {
                    address: new.address,
                    prefix: new.prefix,
                });
            }
        }
        for route in next.routes.iter().filter(|one| !self.routes.contains(one)) {
            changes.push(Change::RouteAdded(told_route(route)));
        }
        changes
    }
}

fn is_same(one: &Address, other: &Address) -> bool {
    one.address == other.address && one.prefix == other.prefix
}

fn told_route(route: &Route) -> mux::Route {
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
