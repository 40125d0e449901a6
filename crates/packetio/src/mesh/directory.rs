//! The knowledge that the contexts of a mesh share: who has a flow, who listens, who is there.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::doorbell::StackBell;
use ring::flow_owners::FlowOwners;
use ring::port_masks::PortMasks;
use ring::published::Published64;

/// Time by which cookies are expected longer than they are good.
const COOKIES_GRAIN_NS: u64 = 1_000_000_000;

/// State that all ends share.
pub(super) struct Shared {
    pub flows: FlowOwners,
    /// For each port the contexts that listen there. Written under the lock of `listeners`.
    pub listening: PortMasks,
    /// For each port with a listener, the number of sockets of each context that listen there.
    pub listeners: Mutex<Vec<(u16, Vec<u16>)>>,
    /// The contexts that are there, a bit each. Written under the lock of `listeners`.
    pub present: Published64,
    /// Until when a SYN cookie of any context may come back, a moment more at most; written by all.
    pub cookies_out_until_ns: Published64,
    /// The bells of the contexts' stacks.
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

/// One context's view of the others.
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

    /// The context goes: its flows belong to nobody, and it listens nowhere.
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

    /// The other contexts that are there, a bit each.
    #[must_use]
    pub fn others(&self) -> u64 {
        self.shared.present.load() & !(1 << self.index)
    }

    /// The context has a flow of this hash from now on. False: there is no room to say so. A
    /// segment of the flow that reaches another context is then answered as one of no flow.
    #[must_use]
    pub fn add(&self, hash: u64) -> bool {
        self.shared.flows.insert(hash, self.index)
    }

    /// The context has the flow no more.
    pub fn remove(&self, hash: u64) {
        self.shared.flows.remove(hash, self.index);
    }

    /// Another context that has the flow.
    #[must_use]
    pub fn owner(&self, hash: u64) -> Option<usize> {
        let owner = self.shared.flows.find(hash)?;
        (self.others() >> owner & 1 == 1).then_some(owner)
    }

    /// Another context that listens at the port: of several the one whose hash with the flow's is
    /// the highest (rendezvous hashing), so that all contexts name the same.
    #[must_use]
    pub fn listener(&self, port: u16, hash: u64) -> Option<usize> {
        let listening = self.shared.listening.at(port) & self.others();
        let each = (0..self.shared.bells.len()).filter(|index| listening >> index & 1 == 1);
        each.max_by_key(|&index| mix(hash ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Until when a SYN cookie of any context may come back, in ns of the monotonic clock; 0: none
    /// was sent.
    #[must_use]
    pub fn cookies_out_until_ns(&self) -> u64 {
        self.shared.cookies_out_until_ns.load()
    }

    /// The context has sent a SYN cookie that may come back until then, to whichever context. In a
    /// flood the line that all read is written once a second: the time is rounded up.
    pub fn expect_cookies_until(&self, until_ns: u64) {
        if self.cookies_out_until_ns() < until_ns {
            // Of two writers the later one may name the earlier time. The second covers that.
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

/// Spreads every bit over the word (the finish of SplitMix64). The hash is keyed, so no sender
/// knows where its flows go.
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
