//! The end of addresses that the interface has lost and that have not come back in time. Until then
//! they stay in the data plane and in applications. Called by `hosts` and once in each turn.

use std::net::IpAddr;
use std::time::Instant;

use packetio::mux::message::Change;

use super::Service;
use crate::plane::Plane;

impl<P: Plane> Service<P> {
    /// Ends addresses that have not come back in time.
    pub(super) fn lose_addresses(&mut self, now: Instant) {
        let over = self.leaving.take_over(now);
        self.lose(over);
    }

    /// Ends all addresses that have disappeared: the interface itself is gone.
    pub(super) fn lose_all_addresses(&mut self) {
        let all = self.leaving.take_all();
        self.lose(all);
    }

    fn lose(&mut self, over: Vec<(IpAddr, u8)>) {
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
