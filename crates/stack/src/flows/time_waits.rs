//! Connections in TIME_WAIT, and those in FIN_WAIT_2 whose application has gone, as compact
//! entries.
//!
//! All entries wait equally long in TIME_WAIT, so their list is sorted by construction. New and
//! restarted entries go to the end, and due ones are at the front. An entry whose socket was held
//! for a part of its wait comes late, and waits as long as the one before it. Entries in FIN_WAIT_2
//! wait as long as their sockets were told to (`TCP_LINGER2`): a timer wheel finds the due ones,
//! and a list the oldest.
//!
//! At the limit the oldest entry in TIME_WAIT is forgotten (`time_wait_evicted`), because its peer
//! is the likeliest to be gone. If there is none, the oldest entry in FIN_WAIT_2 gives way to a
//! newer one (`fin_wait_2_evicted`). Its peer may still be sending; the next segment then gets a
//! RST.

use ring::huge_pages::PageSource;
use tcp::time_wait::TimeWait;
use wire::FlowKey;

use crate::flows::slab::Slab;
use crate::schedule::timers::Wheel;

const NONE: u32 = u32::MAX;

/// Index of the list of entries in TIME_WAIT.
const IN_TIME_WAIT: usize = 0;
const IN_FIN_WAIT_2: usize = 1;

pub(crate) struct TimeWaitSlot {
    pub key: FlowKey,
    pub hash: u64,
    pub entry: TimeWait,
    /// `IP_TOS` of the former connection, which its last ACKs carry.
    pub dscp: u8,
    prev: u32,
    next: u32,
}

/// First and last entry of a list.
#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
}

impl Ends {
    const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
    };
}

pub(crate) struct TimeWaits {
    slots: Slab<TimeWaitSlot>,
    lists: [Ends; 2],
    /// Number of entries in FIN_WAIT_2.
    fin_wait_2: usize,
    /// Timers of the entries in FIN_WAIT_2.
    wheel: Wheel,
}

impl TimeWaits {
    pub fn new(capacity: usize, now_ns: u64, source: &mut PageSource) -> Self {
        Self {
            slots: Slab::new(capacity, source),
            lists: [Ends::EMPTY; 2],
            fin_wait_2: 0,
            wheel: Wheel::new(capacity, now_ns, source),
        }
    }

    /// Number of entries in both states.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Number of entries in FIN_WAIT_2.
    pub fn fin_wait_2(&self) -> usize {
        self.fin_wait_2
    }

    pub fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    /// Adds an entry at the end of its list. `None`: the table is full, and the caller must make
    /// room first.
    pub fn insert(&mut self, key: FlowKey, hash: u64, entry: TimeWait, dscp: u8) -> Option<u32> {
        let mut entry = entry;
        let is_fin_wait_2 = entry.is_fin_wait_2();
        let list = usize::from(is_fin_wait_2);
        let tail = self.lists[list].tail;
        if !is_fin_wait_2 && let Some(last) = self.slots.at(tail) {
            entry.wait_until(last.entry.deadline_ns());
        }
        let deadline_ns = entry.deadline_ns();
        let slot = TimeWaitSlot {
            key,
            hash,
            entry,
            dscp,
            prev: tail,
            next: NONE,
        };
        let index = self.slots.insert(slot).ok()?;
        self.follow(tail, index, list);
        if is_fin_wait_2 {
            self.fin_wait_2 += 1;
            self.wheel.set_at_latest(index, deadline_ns);
        }
        Some(index)
    }

    /// One more than the largest index in use.
    pub fn span(&self) -> u32 {
        self.slots.span()
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

    /// Removes an entry. Returns its hash, and whether it was in FIN_WAIT_2.
    #[inline]
    pub fn remove(&mut self, index: u32) -> Option<(u64, bool)> {
        let slot = self.slots.at(index)?;
        let gone = (slot.hash, slot.entry.is_fin_wait_2());
        if gone.1 {
            self.leave_fin_wait_2(index);
        } else {
            self.unlink(index, IN_TIME_WAIT);
        }
        self.slots.remove(index);
        Some(gone)
    }

    /// Moves an entry to the end of its list, because its wait in TIME_WAIT restarted.
    pub fn restarted(&mut self, index: u32) {
        self.unlink(index, IN_TIME_WAIT);
        self.link_in_time_wait(index);
    }

    /// Moves an entry from the list of FIN_WAIT_2 to that of TIME_WAIT.
    pub fn entered_time_wait(&mut self, index: u32) {
        self.leave_fin_wait_2(index);
        self.link_in_time_wait(index);
    }

    /// Prefetches the memory of an entry.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        self.slots.prefetch(index);
    }

    /// The hash of the oldest entry in TIME_WAIT. Also prefetches the entry behind it, for a caller
    /// that evicts several in a row.
    #[inline]
    pub fn look_ahead(&self) -> Option<u64> {
        let oldest = self.slots.at(self.lists[IN_TIME_WAIT].head)?;
        self.slots.prefetch(oldest.next);
        Some(oldest.hash)
    }

    /// The entry to evict at the limit. `to_fin_wait_2`: the newcomer is in FIN_WAIT_2. `None`: the
    /// newcomer gets no place.
    #[inline]
    pub fn gives_way(&self, to_fin_wait_2: bool) -> Option<u32> {
        let in_time_wait = Some(self.lists[IN_TIME_WAIT].head).filter(|&head| head != NONE);
        in_time_wait.or_else(|| self.oldest_in_fin_wait_2().filter(|_| to_fin_wait_2))
    }

    /// An entry whose wait is over; the caller removes it.
    #[inline]
    pub fn due(&mut self, now_ns: u64) -> Option<u32> {
        let head = self.lists[IN_TIME_WAIT].head;
        match self.slots.at(head) {
            Some(slot) if slot.entry.deadline_ns() <= now_ns => Some(head),
            _ if self.fin_wait_2 > 0 => self.due_in_fin_wait_2(now_ns),
            _ => None,
        }
    }

    fn due_in_fin_wait_2(&mut self, now_ns: u64) -> Option<u32> {
        while let Some(index) = self.wheel.poll(now_ns) {
            match self.slots.at(index) {
                // The wheel was not polled for so long that it fired too early for this deadline.
                Some(slot) if slot.entry.deadline_ns() > now_ns => {
                    let deadline_ns = slot.entry.deadline_ns();
                    self.wheel.set_at_latest(index, deadline_ns);
                }
                _ => return Some(index),
            }
        }
        None
    }

    /// Time at which [`due`](Self::due) next finds an entry, ns.
    pub fn next_ns(&self) -> Option<u64> {
        let head = self.lists[IN_TIME_WAIT].head;
        let time_wait_ns = self.slots.at(head).map(|slot| slot.entry.deadline_ns());
        if self.fin_wait_2 == 0 {
            return time_wait_ns;
        }
        let fin_wait_2_ns = self.wheel.next_ns();
        [time_wait_ns, fin_wait_2_ns].into_iter().flatten().min()
    }

    /// The entry that has been in FIN_WAIT_2 longest.
    pub fn oldest_in_fin_wait_2(&self) -> Option<u32> {
        Some(self.lists[IN_FIN_WAIT_2].head).filter(|&head| head != NONE)
    }

    fn link_in_time_wait(&mut self, index: u32) {
        let tail = self.lists[IN_TIME_WAIT].tail;
        let last_ns = self.slots.at(tail).map(|slot| slot.entry.deadline_ns());
        if let Some(slot) = self.slots.at_mut(index) {
            slot.entry.wait_until(last_ns.unwrap_or(0));
            (slot.prev, slot.next) = (tail, NONE);
        }
        self.follow(tail, index, IN_TIME_WAIT);
    }

    fn leave_fin_wait_2(&mut self, index: u32) {
        self.fin_wait_2 -= 1;
        self.wheel.stop(index);
        self.unlink(index, IN_FIN_WAIT_2);
    }

    /// Links `index` behind the last entry of a list.
    fn follow(&mut self, tail: u32, index: u32, list: usize) {
        self.lists[list].tail = index;
        match self.slots.at_mut(tail) {
            Some(last) => last.next = index,
            None => self.lists[list].head = index,
        }
    }

    fn unlink(&mut self, index: u32, list: usize) {
        let Some(&TimeWaitSlot { prev, next, .. }) = self.slots.at(index) else {
            return;
        };
        match self.slots.at_mut(prev) {
            Some(before) => before.next = next,
            None => self.lists[list].head = next,
        }
        match self.slots.at_mut(next) {
            Some(after) => after.prev = prev,
            None => self.lists[list].tail = prev,
        }
    }
}
