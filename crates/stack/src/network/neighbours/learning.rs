//! How received claims of neighbours change the cache (RFC 4861 sections 7.2.3 and 7.2.5). `arp_nd`
//! calls it.

use core::net::IpAddr;

use wire::{Addr, MacAddr};

use super::table::Newcomer;
use super::{Advertisement, NeighbourId, NeighbourState, Neighbours};

impl Neighbours {
    /// Processes an answer or announcement of a neighbour (RFC 4861 section 7.2.5). Unknown
    /// addresses are not learned from it. Returns the entry if it became usable and something waits
    /// for it: call [`Neighbours::release`].
    #[must_use]
    pub fn on_advertisement(
        &mut self,
        port: u8,
        address: IpAddr,
        said: Advertisement,
        now_ns: u64,
    ) -> Option<NeighbourId> {
        use NeighbourState::{Failed, Incomplete, Permanent, Reachable, Stale};
        let index = self.find(port, Addr::from(address))?;
        let reachable_until_ns = now_ns + self.reachable_ns;
        let entry = &mut self.entries[index as usize];
        match (entry.state, said.mac) {
            (Permanent, _) | (Incomplete | Failed, None) => return None,
            (Incomplete | Failed, Some(mac)) => {
                entry.mac = mac;
                entry.state = Stale;
            }
            (_, Some(mac)) if mac != entry.mac && !said.overrides => {
                if entry.state == Reachable {
                    entry.state = Stale;
                }
                return None;
            }
            (_, Some(mac)) if mac != entry.mac => {
                entry.mac = mac;
                entry.state = Stale;
            }
            _ => {}
        }
        if said.solicited {
            entry.state = Reachable;
            entry.until_ns = reachable_until_ns;
        }
        (!entry.queue.is_empty()).then(|| self.id(index))
    }

    /// Processes a neighbour's question that names its own MAC address (RFC 4861 section 7.2.3, RFC
    /// 826). `create`: the question was about our address, so an unknown neighbour is learned.
    /// Returns the entry to release, like [`Neighbours::on_advertisement`].
    #[must_use]
    pub fn on_solicitation(
        &mut self,
        port: u8,
        address: IpAddr,
        mac: MacAddr,
        create: bool,
        now_ns: u64,
    ) -> Option<NeighbourId> {
        let address = Addr::from(address);
        let index = match self.find(port, address) {
            Some(index) => index,
            None if create => self.insert(port, address, now_ns, Newcomer::Unasked).ok()?,
            None => return None,
        };
        let entry = &mut self.entries[index as usize];
        if entry.state == NeighbourState::Permanent {
            return None;
        }
        if !entry.has_mac() || entry.mac != mac {
            entry.mac = mac;
            entry.state = NeighbourState::Stale;
        }
        (!entry.queue.is_empty()).then(|| self.id(index))
    }
}
