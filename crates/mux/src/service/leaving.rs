//! Addresses that the interface has lost a moment ago.
//!
//! A tool that changes a prefix (`ip address`, a DHCP client) may remove the address before adding
//! it again. Connections should outlast that. So an address that disappears stays for a short time
//! in the data plane and in applications, and ends if it has not come back. Called by `hosts`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use packetio::mux::message::Change;

use super::{Service, after_ns};
use crate::limits::ADDRESS_GRACE_NS;
use crate::plane::Plane;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Leaving(BTreeMap<IpAddr, (u8, Instant)>);

impl Leaving {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes an address that has disappeared, with its prefix.
    pub(super) fn begin(&mut self, address: IpAddr, prefix: u8) {
        self.0.insert(address, (prefix, after_ns(ADDRESS_GRACE_NS)));
    }

    /// The address has come back.
    pub(super) fn end(&mut self, address: IpAddr) {
        self.0.remove(&address);
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.0.keys().copied()
    }
}

impl<P: Plane> Service<P> {
    /// Ends addresses that have not come back in time.
    pub(super) fn lose_addresses(&mut self, now: Instant) {
        self.lose_those(|until| until <= now);
    }

    /// Ends all addresses that have disappeared: the interface itself is gone.
    pub(super) fn lose_all_addresses(&mut self) {
        self.lose_those(|_| true);
    }

    fn lose_those(&mut self, is_over: impl Fn(Instant) -> bool) {
        let over = self
            .leaving
            .0
            .extract_if(.., |_, (_, until)| is_over(*until));
        let over: Vec<(IpAddr, u8)> = over
            .map(|(address, (prefix, _))| (address, prefix))
            .collect();
        if over.is_empty() {
            return;
        }
        for (address, prefix) in over {
            self.lose_address(address);
            self.tell_all(Change::AddressRemoved { address, prefix });
        }
        self.forget_addresses();
    }
}
