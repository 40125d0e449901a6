//! The timer wheel: one entry per connection and per half-open handshake, at millisecond grain,
//! O(1) to set and to stop.
//!
//! Six levels of 64 slots: a slot of level *n* spans 64ⁿ ms. An entry is at the level of the
//! highest slot number in which its tick differs from the present. When the present reaches its
//! slot, the slot's entries move down, until they fire. Each level has a bitmap of slots in use, so
//! that finding the next wake-up or jumping over idle time takes a few instructions.
//!
//! The stack sets an entry only when a deadline moves *earlier*. If a deadline moves later (the
//! retransmission timer at every ACK), the entry fires in vain and is set again. An established
//! flow therefore touches the wheel only a few times a second.

use ring::huge_pages::PageSource;
use ring::tables::Table;

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 6;
const NONE: u32 = u32::MAX;
/// Value of `list` for a due entry, in the list of entries to fire.
const LIST_DUE: u16 = u16::MAX - 1;
const LIST_IDLE: u16 = u16::MAX;
const TICK_NS: u64 = 1_000_000;
/// Furthest tick from the present that an entry stores, about 24 days. An entry beyond it fires
/// then and is set again.
const AHEAD_MAX: u64 = i32::MAX as u64;
const _: () = assert!(AHEAD_MAX >> (SLOT_BITS * (LEVELS as u32 - 1)) < SLOTS as u64 / 2);

#[derive(Clone, Copy)]
struct Node {
    /// Low 32 bits of the entry's tick, which lies near the present.
    tick: u32,
    prev: u32,
    next: u32,
    /// Level × 64 + slot, or one of the special values above.
    list: u16,
}

/// Bytes of a node, for the account of a connection's memory.
pub(crate) const NODE_BYTES: usize = size_of::<Node>();
const _: () = assert!(NODE_BYTES == 16);

impl Node {
    /// The full tick of an entry that is set.
    #[inline]
    fn tick(&self, now_tick: u64) -> u64 {
        let ahead = self.tick.wrapping_sub(now_tick as u32) as i32;
        now_tick.wrapping_add_signed(i64::from(ahead))
    }

    const IDLE: Self = Self {
        tick: 0,
        prev: NONE,
        next: NONE,
        list: LIST_IDLE,
    };
}

/// The timer wheel. Entries are numbers below the capacity, chosen by the caller.
pub struct Wheel {
    now_tick: u64,
    occupied: [u64; LEVELS],
    heads: [[u32; SLOTS]; LEVELS],
    due: u32,
    nodes: Table<Node>,
    capacity: usize,
}

impl Wheel {
    /// Makes a wheel for entries `0..capacity` with the present `now_ns`.
    #[must_use]
    pub fn new(capacity: usize, now_ns: u64, source: &mut PageSource) -> Self {
        Self {
            now_tick: now_ns / TICK_NS,
            occupied: [0; LEVELS],
            heads: [[NONE; SLOTS]; LEVELS],
            due: NONE,
            nodes: Table::with_capacity(capacity, source),
            capacity,
        }
    }

    /// Makes `entry` fire at `deadline_ns`, or earlier if it was set for an earlier time.
    #[inline]
    pub fn set_at_latest(&mut self, entry: u32, deadline_ns: u64) {
        // Rounded up, because a timer must never fire early.
        let tick = deadline_ns.div_ceil(TICK_NS);
        match self.nodes.get(entry as usize) {
            Some(node) if node.list != LIST_IDLE && node.tick(self.now_tick) <= tick => {}
            _ => self.set(entry, tick),
        }
    }

    /// Removes `entry`, wherever it is.
    #[inline]
    pub fn stop(&mut self, entry: u32) {
        match self.nodes.get(entry as usize) {
            Some(node) if node.list != LIST_IDLE => self.unlink(entry),
            _ => {}
        }
    }

    /// Removes and returns an entry that is due at `now_ns`; `None`: none is due.
    pub fn poll(&mut self, now_ns: u64) -> Option<u32> {
        let now_tick = now_ns / TICK_NS;
        loop {
            if self.due != NONE {
                let entry = self.due;
                self.unlink(entry);
                return Some(entry);
            }
            match self.next_slot() {
                Some((level, slot, tick)) if tick <= now_tick => {
                    self.now_tick = tick.max(self.now_tick);
                    self.descend(level, slot);
                }
                _ => {
                    self.now_tick = now_tick.max(self.now_tick);
                    return None;
                }
            }
        }
    }

    /// Time at which to call [`poll`](Self::poll) next: never later than the earliest entry,
    /// perhaps earlier. `None`: no entry is set.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        if self.due != NONE {
            return Some(self.now_tick * TICK_NS);
        }
        self.next_slot().map(|(_, _, tick)| tick * TICK_NS)
    }

    #[cold]
    fn grow_to(&mut self, entry: u32) {
        debug_assert!((entry as usize) < self.capacity, "within what was reserved");
        self.nodes.extend_to(entry as usize + 1, &Node::IDLE);
    }

    fn set(&mut self, entry: u32, tick: u64) {
        if entry as usize >= self.nodes.len() {
            self.grow_to(entry);
        } else if self.nodes[entry as usize].list != LIST_IDLE {
            self.unlink(entry);
        }
        self.nodes[entry as usize].tick = tick.min(self.now_tick + AHEAD_MAX) as u32;
        self.link(entry);
    }

    fn link(&mut self, entry: u32) {
        let tick = self.nodes[entry as usize].tick(self.now_tick);
        if tick <= self.now_tick {
            let head = self.due;
            self.due = self.push_front(entry, head, LIST_DUE);
            return;
        }
        // No entry lies more than three slots of the highest level ahead. So the highest level also
        // serves entries behind the end of its turn, in the slots from 0 on.
        let level = ((63 - (tick ^ self.now_tick).leading_zeros()) / SLOT_BITS) as usize;
        let level = level.min(LEVELS - 1);
        let slot = (tick >> (level as u32 * SLOT_BITS)) as usize % SLOTS;
        let head = self.heads[level][slot];
        self.heads[level][slot] = self.push_front(entry, head, (level * SLOTS + slot) as u16);
        self.occupied[level] |= 1 << slot;
    }

    fn push_front(&mut self, entry: u32, head: u32, list: u16) -> u32 {
        if head != NONE {
            self.nodes[head as usize].prev = entry;
        }
        let node = &mut self.nodes[entry as usize];
        (node.prev, node.next, node.list) = (NONE, head, list);
        entry
    }

    fn unlink(&mut self, entry: u32) {
        let Node {
            prev, next, list, ..
        } = self.nodes[entry as usize];
        self.nodes[entry as usize].list = LIST_IDLE;
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
        if prev != NONE {
            self.nodes[prev as usize].next = next;
        } else if list == LIST_DUE {
            self.due = next;
        } else {
            let (level, slot) = (list as usize / SLOTS, list as usize % SLOTS);
            self.heads[level][slot] = next;
            if next == NONE {
                self.occupied[level] &= !(1 << slot);
            }
        }
    }

    /// The next slot in use, and the tick at which it begins. Entries of lower levels are nearer
    /// than those of higher ones.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        for level in 0..LEVELS {
            if self.occupied[level] == 0 {
                continue;
            }
            let shift = level as u32 * SLOT_BITS;
            let here = (self.now_tick >> shift) as u32 % SLOTS as u32;
            // A level's entries lie ahead of the present's slot, within the same slot of the level
            // above.
            let ahead = self.occupied[level].rotate_right(here).trailing_zeros();
            let slot = (here + ahead) % SLOTS as u32;
            let tick = ((self.now_tick >> shift) + u64::from(ahead)) << shift;
            return Some((level, slot as usize, tick));
        }
        None
    }

    fn descend(&mut self, level: usize, slot: usize) {
        let mut entry = std::mem::replace(&mut self.heads[level][slot], NONE);
        self.occupied[level] &= !(1 << slot);
        while entry != NONE {
            let next = self.nodes[entry as usize].next;
            self.link(entry);
            entry = next;
        }
    }
}

#[cfg(test)]
mod tests;
