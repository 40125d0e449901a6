//! The owners of flows: one table that all contexts of a process read and write without locks.
//!
//! ```text
//!  set     8 words, a cache line; a flow's lower hash bits name one set, its upper ones another
//!  word    [ hash, upper 57 bits | taken, 1 | owner, 6 ]; 0: the word is free
//! ```
//!
//! A context adds a flow when its flow table gets it, and removes the flow when that table loses
//! it. So this table is the union of the contexts' flow tables. A context reads it for segments of
//! flows that it does not have. A word is taken by compare-and-swap, so no two writers take the
//! same one. `packetio::mesh` owns the table.

use crate::sync::Ordering;
use crate::zeroed::{LINE_WORDS, Line, lines};

const OWNER: u64 = 0x3f;
const TAKEN: u64 = 0x40;
const NAME: u64 = !0x7f;
/// Bits by which the hash is shifted for the second set.
const SECOND_SET: u32 = 32;

/// Owners that the table can name.
pub const OWNERS_MAX: usize = OWNER as usize + 1;

/// A table of flows and their owners.
///
/// ```
/// use ring::flow_owners::FlowOwners;
/// let owners = FlowOwners::new(1024);
/// assert!(owners.insert(0x1234_5678_9abc_def0, 3));
/// assert_eq!(owners.find(0x1234_5678_9abc_def0), Some(3));
/// assert!(owners.remove(0x1234_5678_9abc_def0, 3));
/// ```
pub struct FlowOwners {
    sets: Box<[Line]>,
    mask: usize,
}

fn word(hash: u64, owner: usize) -> u64 {
    hash & NAME | TAKEN | owner as u64 & OWNER
}

impl FlowOwners {
    /// A table with room for `flows` flows, rounded up to a power of two. Up to half of that room,
    /// fewer than one flow in a thousand finds both of its sets full.
    ///
    /// ```
    /// let owners = ring::flow_owners::FlowOwners::new(1);
    /// assert!(owners.insert(7 << 40, 0));
    /// ```
    #[must_use]
    pub fn new(flows: usize) -> Self {
        let count = flows.div_ceil(LINE_WORDS).max(1).next_power_of_two();
        Self {
            sets: lines(count),
            mask: count - 1,
        }
    }

    fn sets_of(&self, hash: u64) -> [&Line; 2] {
        let at = |hash: u64| &self.sets[hash as usize & self.mask];
        [at(hash), at(hash >> SECOND_SET)]
    }

    /// Notes that `owner` has the flow. False: both sets of the flow are full, so `find` will not
    /// find it.
    ///
    /// ```
    /// let owners = ring::flow_owners::FlowOwners::new(8);
    /// assert!((1..=8).all(|flow| owners.insert(flow << 40, 0)));
    /// assert!(!owners.insert(9 << 40, 0));
    /// ```
    pub fn insert(&self, hash: u64, owner: usize) -> bool {
        let new = word(hash, owner);
        let words = self.sets_of(hash).into_iter().flat_map(|set| &set.0);
        for word in words {
            if word.load(Ordering::Relaxed) == 0
                && word
                    .compare_exchange(0, new, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                return true;
            }
        }
        false
    }

    /// Forgets that `owner` has the flow. False: the table had no such entry.
    ///
    /// ```
    /// let owners = ring::flow_owners::FlowOwners::new(8);
    /// assert!(owners.insert(7 << 40, 1));
    /// assert!(!owners.remove(7 << 40, 2), "another's");
    /// assert!(owners.remove(7 << 40, 1));
    /// ```
    pub fn remove(&self, hash: u64, owner: usize) -> bool {
        let old = word(hash, owner);
        let words = self.sets_of(hash).into_iter().flat_map(|set| &set.0);
        for word in words {
            // A taken word is written only by its owner.
            if word.load(Ordering::Relaxed) == old {
                word.store(0, Ordering::Release);
                return true;
            }
        }
        false
    }

    /// The owner of the flow. A different flow is mistaken for it with a probability below 2^-50.
    ///
    /// ```
    /// assert_eq!(ring::flow_owners::FlowOwners::new(8).find(7 << 40), None);
    /// ```
    #[must_use]
    pub fn find(&self, hash: u64) -> Option<usize> {
        let words = self.sets_of(hash).into_iter().flat_map(|set| &set.0);
        for word in words {
            let held = word.load(Ordering::Acquire);
            if (held ^ hash) & NAME == 0 && held & TAKEN != 0 {
                return Some((held & OWNER) as usize);
            }
        }
        None
    }

    /// Forgets all flows of an owner that has gone. Reads the whole table.
    ///
    /// ```
    /// let owners = ring::flow_owners::FlowOwners::new(8);
    /// owners.insert(7 << 40, 1);
    /// owners.forget(1);
    /// assert_eq!(owners.find(7 << 40), None);
    /// ```
    pub fn forget(&self, owner: usize) {
        for word in self.sets.iter().flat_map(|set| &set.0) {
            let held = word.load(Ordering::Relaxed);
            if held & TAKEN != 0 && (held & OWNER) as usize == owner {
                word.store(0, Ordering::Release);
            }
        }
    }
}
