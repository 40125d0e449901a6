//! The hash index of the neighbour cache: open addressing with linear probing, never more than half
//! full. It holds entry numbers only; `Neighbours` keeps the keys.

/// A map from a hash to an entry's number.
#[derive(Debug)]
pub(super) struct Index {
    /// Entry number plus one; 0: the slot is free.
    slots: Vec<u32>,
}

impl Index {
    pub(super) fn new(entries_max: usize) -> Index {
        Index {
            slots: vec![0; (entries_max * 2).next_power_of_two()],
        }
    }

    pub(super) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        while self.slots[at] != 0 {
            let entry = self.slots[at] - 1;
            if is_it(entry) {
                return Some(entry);
            }
            at = self.after(at);
        }
        None
    }

    pub(super) fn insert(&mut self, hash: u32, entry: u32) {
        let mut at = self.home(hash);
        while self.slots[at] != 0 {
            at = self.after(at);
        }
        self.slots[at] = entry + 1;
    }

    /// Removes `entry`, and moves entries behind it up that could not be found otherwise.
    pub(super) fn remove(&mut self, hash: u32, entry: u32, hash_of: impl Fn(u32) -> u32) {
        let mut hole = self.home(hash);
        while self.slots[hole] != entry + 1 {
            if self.slots[hole] == 0 {
                debug_assert!(false, "entry is not in the index");
                return;
            }
            hole = self.after(hole);
        }
        let mut at = self.after(hole);
        while self.slots[at] != 0 {
            let home = self.home(hash_of(self.slots[at] - 1));
            if self.distance(home, at) >= self.distance(hole, at) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.after(at);
        }
        self.slots[hole] = 0;
    }

    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.slots.len() - 1)
    }
}
