//! Next hops that do not answer.
//!
//! Each is an entry of the host's table of neighbours, and counts for its user's share. The kernel
//! goes on asking for it. An application that still needs it asks again, so it is forgotten a while
//! after it was last asked for. Called by `requests` and `hosts`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use super::{Service, after_ns};
use crate::limits::NEXT_HOP_SILENT_NS_MAX;
use crate::plane::Plane;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct SilentHops {
    /// When each is forgotten.
    until: BTreeMap<IpAddr, Instant>,
    /// How many were forgotten.
    pub(super) forgotten: u64,
}

impl SilentHops {
    pub(super) fn is_empty(&self) -> bool {
        self.until.is_empty()
    }

    /// The next hop was asked for, or has lost its MAC address.
    pub(super) fn expect(&mut self, address: IpAddr) {
        self.until.insert(address, after_ns(NEXT_HOP_SILENT_NS_MAX));
    }

    /// The next hop has a MAC address.
    pub(super) fn answered(&mut self, address: IpAddr) {
        self.until.remove(&address);
    }
}

impl<P: Plane> Service<P> {
    /// Forgets next hops that were silent for too long.
    pub(super) fn forget_silent_hops(&mut self, now: Instant) {
        let over = self
            .silent_hops
            .until
            .extract_if(.., |_, until| *until <= now);
        let over: Vec<IpAddr> = over.map(|(address, _)| address).collect();
        if over.is_empty() {
            return;
        }
        let asked: Vec<IpAddr> = self.mirror.neighbours().map(|(one, _)| one).collect();
        for address in over {
            // Its applications may have ended meanwhile.
            self.silent_hops.forgotten += u64::from(asked.contains(&address));
            for application in self.applications.values_mut() {
                application.next_hops.remove(&address);
            }
        }
        self.forget_next_hops();
    }
}
