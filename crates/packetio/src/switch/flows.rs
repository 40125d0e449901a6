//! Bounded table of flow owners, by keyed hash.
//!
//! ```text
//!  set     8 entries of 8 bytes, the newest first; the hash's lower bits say which set
//!  entry   [ hash, upper 55 bits | rank, 3 | member, 6 ]
//! ```
//!
//! An entry stays until another flow needs its place. An old entry does no harm: a new connection
//! begins with a SYN, which overwrites the entry. In a full set the lowest [`Rank`] gives way, and
//! among equals the oldest entry. A SYN from the wire replaces only an entry of its own rank or
//! below. Therefore neither ended flows nor SYNs from forged addresses displace an open flow.

use std::cmp::Reverse;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use ring::prefetch::{self, LINE_BYTES};
use wire::{FlowHasher, FlowKey};

use crate::limits::SWITCH_MEMBERS_MAX;

/// Entries of one set, which fill a cache line.
const WAYS: usize = 8;
const MEMBER: u64 = 0x3f;
const RANK_AT: u32 = 6;
const NAME: u64 = !0x1ff;

const _: () = assert!(SWITCH_MEMBERS_MAX <= MEMBER as usize + 1);

/// The value of an entry, lowest first: entries of low rank are displaced first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rank {
    /// The place is free.
    Free,
    /// The owner has sent a FIN or a RST.
    Ended,
    /// Only a SYN from the wire was seen.
    Doubtful,
    /// The owner probably knows the flow: it sent the flow's SYN, or the wire sent a RST that may
    /// not be the peer's.
    Likely,
    /// The owner has sent more than a SYN or a SYN-ACK.
    Open,
}

/// The owner and rank of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowOwner {
    pub member: usize,
    pub rank: Rank,
}

/// The table of flow owners.
pub struct Flows {
    hasher: FlowHasher,
    /// All entries; sets begin at index `first`, which is aligned to a cache line.
    entries: Vec<u64>,
    first: usize,
    /// Number of sets minus one, a mask for the hash.
    mask: usize,
}

fn rank(entry: u64) -> Rank {
    match entry >> RANK_AT & 7 {
        0 => Rank::Free,
        1 => Rank::Ended,
        2 => Rank::Doubtful,
        3 => Rank::Likely,
        _ => Rank::Open,
    }
}

fn member(entry: u64) -> usize {
    (entry & MEMBER) as usize
}

fn place(set: &[u64], hash: u64) -> Option<usize> {
    let is_it = |&entry: &u64| (entry ^ hash) & NAME == 0 && rank(entry) != Rank::Free;
    set.iter().position(is_it)
}

impl Flows {
    /// Makes a table of `flows` entries, a power of two.
    pub fn new(flows: usize) -> Self {
        let sets = (flows / WAYS).max(1);
        debug_assert!(sets.is_power_of_two());
        let entries = vec![0; (sets + 1) * WAYS];
        let random = RandomState::new();
        Self {
            // The secret is drawn for each process, so that no sender can aim flows at one set.
            hasher: FlowHasher::new([random.hash_one(0), random.hash_one(1)]),
            first: entries.as_ptr().align_offset(LINE_BYTES).min(WAYS),
            entries,
            mask: sets - 1,
        }
    }

    pub fn hash(&self, flow: &FlowKey) -> u64 {
        self.hasher.hash(flow)
    }

    /// Prefetches the set that [`find`](Self::find) will read.
    pub fn prefetch(&self, hash: u64) {
        prefetch::line(self.entries[self.set(hash)].as_ptr().cast());
    }

    /// The range of a set's entries.
    fn set(&self, hash: u64) -> Range<usize> {
        let at = self.first + (hash as usize & self.mask) * WAYS;
        at..at + WAYS
    }

    pub fn find(&self, hash: u64) -> Option<FlowOwner> {
        let set = &self.entries[self.set(hash)];
        place(set, hash).map(|at| FlowOwner {
            member: member(set[at]),
            rank: rank(set[at]),
        })
    }

    /// Stores a flow, unless its rank is [`Doubtful`](Rank::Doubtful) and all entries of its set
    /// rank higher. Returns the owner of a displaced flow that may still be open.
    pub fn keep(&mut self, hash: u64, kept: FlowOwner) -> Option<usize> {
        let entry = hash & NAME | (kept.rank as u64) << RANK_AT | kept.member as u64;
        let set = self.set(hash);
        let set = &mut self.entries[set];
        if let Some(at) = place(set, hash) {
            set[at] = entry;
            return None;
        }
        let least = (0..WAYS).min_by_key(|&at| (rank(set[at]), Reverse(at)));
        let least = least.unwrap_or(WAYS - 1);
        let forgotten = set[least];
        if kept.rank == Rank::Doubtful && rank(forgotten) > kept.rank {
            return None;
        }
        set.copy_within(..least, 1);
        set[0] = entry;
        (rank(forgotten) > Rank::Ended).then(|| member(forgotten))
    }
}

#[cfg(test)]
mod tests;
