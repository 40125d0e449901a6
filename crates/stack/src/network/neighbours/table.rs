//! The entries of the neighbour cache: finding one, making one, and choosing one to replace.

use wire::{Addr, MacAddr};

use super::waiting::Queue;
use super::{Entry, NeighbourError, NeighbourState, Neighbours, hash};

/// The reason for a new entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Newcomer {
    /// This stack wants to send to the neighbour.
    Wanted,
    /// The neighbour asked for us.
    Unasked,
}

/// Entries that are examined for replacement by a neighbour that asked for us.
const UNASKED_SEARCH_MAX: usize = 16;

impl Neighbours {
    pub(super) fn find(&self, port: u8, address: Addr) -> Option<u32> {
        self.index.find(self.hash(port, address), |index| {
            let entry = &self.entries[index as usize];
            entry.address == address && entry.port == port
        })
    }

    pub(super) fn insert(
        &mut self,
        port: u8,
        address: Addr,
        now_ns: u64,
        newcomer: Newcomer,
    ) -> Result<u32, NeighbourError> {
        let index = if self.entries.len() < self.entries_max {
            self.entries.push(Entry {
                address,
                until_ns: 0,
                used_ns: 0,
                generation: 0,
                queue: Queue::EMPTY,
                mac: MacAddr([0; 6]),
                port,
                state: NeighbourState::Failed,
                requests_sent: 0,
                is_timed: false,
            });
            (self.entries.len() - 1) as u32
        } else {
            let Some(index) = self.victim(newcomer) else {
                self.counters.table_full += 1;
                return Err(NeighbourError::TableFull);
            };
            self.evict(index);
            index
        };
        let entry = &mut self.entries[index as usize];
        entry.address = address;
        entry.port = port;
        entry.state = NeighbourState::Failed;
        entry.until_ns = 0;
        entry.used_ns = match newcomer {
            Newcomer::Wanted => now_ns,
            Newcomer::Unasked => 0,
        };
        self.index.insert(self.hash(port, address), index);
        self.draw_reachable_time();
        Ok(index)
    }

    /// The entry to replace; `None`: none may be replaced.
    fn victim(&mut self, newcomer: Newcomer) -> Option<u32> {
        if newcomer == Newcomer::Wanted {
            return (0..self.entries.len() as u32)
                .filter(|&index| self.entries[index as usize].state != NeighbourState::Permanent)
                .min_by_key(|&index| {
                    let entry = &self.entries[index as usize];
                    (entry.worth(), entry.used_ns)
                });
        }
        // A host that only asked for us may replace another such host, but no neighbour in use. The
        // search is short because outsiders can trigger it at will.
        for _ in 0..UNASKED_SEARCH_MAX.min(self.entries.len()) {
            self.eviction_hand = (self.eviction_hand + 1) % self.entries.len();
            let entry = &self.entries[self.eviction_hand];
            if entry.worth() == 0 || (entry.state == NeighbourState::Stale && entry.used_ns == 0) {
                return Some(self.eviction_hand as u32);
            }
        }
        None
    }

    fn evict(&mut self, index: u32) {
        self.counters.evicted += 1;
        let entry = &mut self.entries[index as usize];
        while let Some(token) = self.pools.pop_token(&mut entry.queue) {
            self.pools.push_token(&mut self.displaced, token);
            // `poll` reports the displaced connection at once.
            self.deadline_ns = 0;
        }
        self.counters.frames_dropped += u64::from(self.pools.clear(&mut entry.queue));
        entry.generation = entry.generation.wrapping_add(1);
        let (port, address) = (entry.port, entry.address);
        self.index.remove(self.hash(port, address), index, |other| {
            let entry = &self.entries[other as usize];
            hash(self.key, entry.port, entry.address)
        });
    }
}
