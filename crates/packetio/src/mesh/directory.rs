//! State that the contexts of a mesh share: flows, listeners, and which contexts are present.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::doorbell::StackBell;
use ring::flow_owners::FlowOwners;
use ring::port_masks::PortMasks;
use ring::published::Published64;

/// Time for which cookies are expected beyond their validity, ns.
const COOKIES_GRAIN_NS: u64 = 1_000_000_000;

/// The state that all ends of a mesh share.
pub(super) struct Shared {
    pub flows: FlowOwners,
    /// Contexts that listen, by port, as bit masks. Written under the lock of `listeners`.
    pub listening: PortMasks,
    /// For each port with listeners, their number in each context.
    pub listeners: Mutex<Vec<(u16, Vec<u16>)>>,
    /// Contexts that are present, one bit each. Written under the lock of `listeners`.
    pub present: Published64,
    /// Time until which a SYN cookie of any context may come back, rounded up, ns; 0: none was
    /// sent. All contexts write it.
    pub cookies_out_until_ns: Published64,
    /// The bells of the stacks, by context.
    pub bells: Vec<StackBell>,
}

impl Shared {
    fn listeners(&self) -> MutexGuard<'_, Vec<(u16, Vec<u16>)>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn listens(&self, index: usize, port: u16, on: bool) {
        let mut listeners = self.listeners();
        let at = match listeners.iter().position(|(known, _)| *known == port) {
            Some(at) => at,
            None => {
                listeners.push((port, vec![0; self.bells.len()]));
                listeners.len() - 1
            }
        };
        let counts = &mut listeners[at].1;
        if let Some(count) = counts.get_mut(index) {
            *count = match on {
                true => count.saturating_add(1),
                false => count.saturating_sub(1),
            };
        }
        let bit = |(index, &count): (usize, &u16)| u64::from(count > 0) << index;
        let mask = counts.iter().enumerate().map(bit).sum();
        self.listening.set(port, mask);
        if mask == 0 {
            listeners.swap_remove(at);
        }
    }
}

/// One context's view of the shared state.
#[derive(Clone)]
pub struct Directory {
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
}

impl Directory {
    pub(super) fn come(&self) {
        let _listeners = self.shared.listeners();
        let present = self.shared.present.load();
        self.shared.present.store(present | 1 << self.index);
    }

    /// Removes the context: its flows have no owner, and it listens nowhere.
    pub(super) fn go(&self) {
        let mut listeners = self.shared.listeners();
        let present = self.shared.present.load();
        self.shared.present.store(present & !(1 << self.index));
        for (port, counts) in listeners.iter_mut() {
            counts[self.index] = 0;
            let mask = self.shared.listening.at(*port);
            self.shared.listening.set(*port, mask & !(1 << self.index));
        }
        self.shared.flows.forget(self.index);
    }

    /// The other contexts that are present, one bit each.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.shared.present.load() & !(1 << self.index)
    }

    /// Lists a flow of this context. False: there is no room, and other contexts will answer its
    /// segments as those of no flow.
    #[must_use]
    pub fn add(&self, hash: u64) -> bool {
        self.shared.flows.insert(hash, self.index)
    }

    /// Removes a flow of this context from the list.
    pub fn remove(&self, hash: u64) {
        self.shared.flows.remove(hash, self.index);
    }

    /// The other context that has the flow.
    #[must_use]
    pub fn owner(&self, hash: u64) -> Option<usize> {
        let owner = self.shared.flows.find(hash)?;
        (self.others() >> owner & 1 == 1).then_some(owner)
    }

    /// Another context that listens at the port. Among several the one with the highest hash of
    /// context and flow is chosen (rendezvous hashing), so that all contexts agree.
    #[must_use]
    pub fn listener(&self, port: u16, hash: u64) -> Option<usize> {
        let listening = self.shared.listening.at(port) & self.others();
        let each = (0..self.shared.bells.len()).filter(|index| listening >> index & 1 == 1);
        each.max_by_key(|&index| mix(hash ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Time until which a SYN cookie of any context may come back, ns of the monotonic clock; 0:
    /// none was sent.
    #[must_use]
    pub fn cookies_out_until_ns(&self) -> u64 {
        self.shared.cookies_out_until_ns.load()
    }

    /// Notes that this context sent a SYN cookie whose ACK may reach any context until `until_ns`.
    /// The time is rounded up, so that a flood writes the shared cache line only once per second.
    pub fn expect_cookies_until(&self, until_ns: u64) {
        if self.cookies_out_until_ns() < until_ns {
            // Of two writers the later may store the earlier time; the added second covers that.
            let rounded_ns = until_ns.saturating_add(COOKIES_GRAIN_NS);
            self.shared.cookies_out_until_ns.store(rounded_ns);
        }
    }

    pub(super) fn ring(&self, contexts: u64) {
        let mut left = contexts;
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            self.shared.bells[index].ring();
            left &= left - 1;
        }
    }
}

/// Spreads every bit over the word (the final step of SplitMix64). The hash is keyed, so no sender
/// knows which context its flow gets.
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
