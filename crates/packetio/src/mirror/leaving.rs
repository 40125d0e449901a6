//! Addresses that the interface has lost a moment ago.
//!
//! A tool that changes a prefix (`ip address`, a DHCP client) may remove the address before it adds
//! the address again. Connections should outlast that. So an address that disappears goes on for a
//! short time, and ends if it has not come back. The service `mill mux` and the follower of
//! `xdp:IFACE,mirror` own one table each.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::limits::ADDRESS_GRACE_NS;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Leaving(BTreeMap<IpAddr, (u8, Instant)>);

impl Leaving {
    /// True if no address is leaving.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Notes an address that has disappeared, with its prefix.
    pub fn begin(&mut self, address: IpAddr, prefix: u8, now: Instant) {
        let until = now + Duration::from_nanos(ADDRESS_GRACE_NS);
        self.0.insert(address, (prefix, until));
    }

    /// The address has come back.
    pub fn end(&mut self, address: IpAddr) {
        self.0.remove(&address);
    }

    /// The addresses that have disappeared and not ended.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.0.keys().copied()
    }

    /// When the first address ends; `None`: no address is leaving.
    pub fn next_end(&self) -> Option<Instant> {
        self.0.values().map(|(_, until)| *until).min()
    }

    /// Takes the addresses that have not come back in time, each with its prefix.
    pub fn take_over(&mut self, now: Instant) -> Vec<(IpAddr, u8)> {
        let over = self.0.extract_if(.., |_, (_, until)| *until <= now);
        over.map(|(address, (prefix, _))| (address, prefix))
            .collect()
    }

    /// Takes all addresses that have disappeared: the interface itself is gone.
    pub fn take_all(&mut self) -> Vec<(IpAddr, u8)> {
        let all = std::mem::take(&mut self.0);
        let all = all.into_iter();
        all.map(|(address, (prefix, _))| (address, prefix))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_nanos(ADDRESS_GRACE_NS);

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn address_that_stays_away_is_over_and_one_that_is_back_is_not() {
        let now = Instant::now();
        let mut leaving = Leaving::default();
        leaving.begin(address(1), 24, now);
        leaving.begin(address(2), 16, now);
        assert_eq!(leaving.next_end(), Some(now + GRACE));
        leaving.end(address(2));
        assert_eq!(leaving.addresses().collect::<Vec<_>>(), [address(1)]);
        assert_eq!(leaving.take_over(now), []);
        assert_eq!(leaving.take_over(now + GRACE), [(address(1), 24)]);
        assert!(leaving.is_empty());
        assert_eq!(leaving.next_end(), None);
    }

    #[test]
    fn all_addresses_go_with_their_interface() {
        let mut leaving = Leaving::default();
        leaving.begin(address(1), 24, Instant::now());
        assert_eq!(leaving.take_all(), [(address(1), 24)]);
        assert!(leaving.is_empty());
    }
}
