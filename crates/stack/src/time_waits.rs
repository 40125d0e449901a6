//! Connections in TIME_WAIT, as compact entries in the order in which they end.
//!
//! All wait equally long, so the list is sorted by construction: a new entry, or one whose wait began anew, goes to the end, and what is due or must
//! give way is at the front. An entry that comes late, since its application held the socket for a part of the wait, waits as long as the one before it. At the limit the oldest is forgotten, as its peer is the likeliest to be gone (`time_wait_evicted`).

use tcp::time_wait::TimeWait;
use wire::FlowKey;

use crate::slab::Slab;

const NONE: u32 = u32::MAX;

pub(crate) struct TimeWaitSlot {
    pub key: FlowKey,
    pub hash: u64,
    pub entry: TimeWait,
    /// `IP_TOS` of the connection that was, which its last ACKs bear.
    pub dscp: u8,
    prev: u32,
    next: u32,
}

pub(crate) struct TimeWaits {
    slots: Slab<TimeWaitSlot>,
    head: u32,
    tail: u32,
}

impl TimeWaits {
    pub fn new(capacity: usize) -> Self {
        Self {
            slots: Slab::new(capacity),
            head: NONE,
            tail: NONE,
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    /// Adds an entry at the end; `None` when the table is full: the caller makes room first.
    pub fn insert(&mut self, key: FlowKey, hash: u64, entry: TimeWait, dscp: u8) -> Option<u32> {
        let mut entry = entry;
        if let Some(last) = self.slots.at(self.tail) {
            entry.wait_until(last.entry.deadline_ns());
        }
        let slot = TimeWaitSlot {
            key,
            hash,
            entry,
            dscp,
            prev: NONE,
            next: NONE,
        };
        let index = self.slots.insert(slot).ok()?;
        self.link_last(index);
        Some(index)
    }

    /// The flows of all entries.
    pub fn keys(&self) -> impl Iterator<Item = &FlowKey> {
        self.slots.iter().map(|(_, slot)| &slot.key)
    }

    pub fn at(&self, index: u32) -> Option<&TimeWaitSlot> {
        self.slots.at(index)
    }

    pub fn at_mut(&mut self, index: u32) -> Option<&mut TimeWaitSlot> {
        self.slots.at_mut(index)
    }

    pub fn remove(&mut self, index: u32) -> Option<TimeWaitSlot> {
        self.slots.at(index)?;
        self.unlink(index);
        self.slots.remove(index)
    }

    /// The entry's wait began anew.
    pub fn restarted(&mut self, index: u32) {
        if self.slots.at(index).is_some() {
            self.unlink(index);
            self.link_last(index);
        }
    }

    /// Asks for the memory of an entry.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        self.slots.prefetch(index);
    }

    /// Asks for the memory of the one behind the oldest, and says under which hash the oldest lies: for who evicts one after another.
    #[inline]
    pub fn look_ahead(&self) -> Option<u64> {
        let oldest = self.slots.at(self.head)?;
        self.slots.prefetch(oldest.next);
        Some(oldest.hash)
    }

    /// The one that ends first, with the time at which it does.
    pub fn first(&self) -> Option<(u32, u64)> {
        self.slots
            .at(self.head)
            .map(|slot| (self.head, slot.entry.deadline_ns()))
    }

    fn link_last(&mut self, index: u32) {
        let tail = std::mem::replace(&mut self.tail, index);
        if let Some(slot) = self.slots.at_mut(index) {
            (slot.prev, slot.next) = (tail, NONE);
        }
        match self.slots.at_mut(tail) {
            Some(last) => last.next = index,
            None => self.head = index,
        }
    }

    fn unlink(&mut self, index: u32) {
        let Some(&TimeWaitSlot { prev, next, .. }) = self.slots.at(index) else {
            return;
        };
        match self.slots.at_mut(prev) {
            Some(before) => before.next = next,
            None => self.head = next,
        }
        match self.slots.at_mut(next) {
            Some(after) => after.prev = prev,
            None => self.tail = prev,
        }
    }
}
