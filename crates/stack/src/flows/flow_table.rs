//! The flow table: from a flow's keyed hash to its connection, handshake or compact entry. The
//! stack owns it; `demux` looks up each segment once.
//!
//! ```text
//! bucket (one 64-byte line):  value × 10 | tag × 10 | overflow
//! ```
//!
//! A look-up reads the home bucket, compares ten 16-bit tags, and asks the caller to compare the
//! key of a candidate. It reads the next bucket only if `overflow` says that entries passed this
//! one, so removed entries leave no tombstones. The table is built for its limit and never grows.
//! No entry lies more than [`FLOW_PROBES_MAX`] buckets from its home. If an outsider finds out the
//! hash, a flood of one bucket is therefore refused.

use ring::huge_pages::PageSource;
use ring::tables::Table;

use crate::limits::FLOW_PROBES_MAX;

/// The entry of a flow, in 32 bits: two for the kind, the other bits an index into that kind's
/// table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEntry {
    /// A full connection, by socket index.
    Connection(u32),
    /// A handshake in progress, by its index in the SYN queue.
    HalfOpen(u32),
    /// A compact entry of TIME_WAIT or FIN_WAIT_2, by its index.
    TimeWait(u32),
}

impl FlowEntry {
    const INDEX_BITS: u32 = 30;

    fn pack(self) -> u32 {
        let (kind, index) = match self {
            Self::Connection(index) => (0, index),
            Self::HalfOpen(index) => (1, index),
            Self::TimeWait(index) => (2, index),
        };
        debug_assert!(index < 1 << Self::INDEX_BITS);
        kind << Self::INDEX_BITS | index
    }

    fn unpack(value: u32) -> Self {
        let index = value & ((1 << Self::INDEX_BITS) - 1);
        match value >> Self::INDEX_BITS {
            0 => Self::Connection(index),
            1 => Self::HalfOpen(index),
            _ => Self::TimeWait(index),
        }
    }
}

const WAYS: usize = 10;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    values: [u32; WAYS],
    /// Upper bits of the hash, never zero; zero marks a free slot.
    tags: [u16; WAYS],
    /// Number of entries that lie in a later bucket because this one was full.
    overflow: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    const EMPTY: Self = Self {
        values: [0; WAYS],
        tags: [0; WAYS],
        overflow: 0,
    };

    /// Positions with this tag, as a bit mask.
    #[inline(always)]
    fn places_of(&self, tag: u16) -> u32 {
        let mut ways = 0;
        for (way, &held) in self.tags.iter().enumerate() {
            ways |= u32::from(held == tag) << way;
        }
        ways
    }

    #[inline(always)]
    fn find(&self, tag: u16, is_it: &mut impl FnMut(FlowEntry) -> bool) -> Option<FlowEntry> {
        let mut found = self.places_of(tag);
        while found != 0 {
            let entry = FlowEntry::unpack(self.values[found.trailing_zeros() as usize]);
            if is_it(entry) {
                return Some(entry);
            }
            found &= found - 1;
        }
        None
    }

    #[inline(always)]
    fn has_overflowed(&self) -> bool {
        self.overflow != 0
    }
}

/// The table is full: the caller refuses or evicts by its own rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowTableFull;

/// See the module's documentation.
pub struct FlowTable {
    buckets: Table<Bucket>,
    mask: usize,
    len: usize,
    len_max: usize,
}

impl FlowTable {
    /// Buckets for `entries_max` flows at no more than about 70 % load.
    fn buckets(entries_max: usize) -> usize {
        (entries_max * 10 / (WAYS * 7) + 1).next_power_of_two()
    }

    /// Bytes of a table for `entries_max` flows.
    #[must_use]
    #[cfg(test)]
    pub fn bytes(entries_max: usize) -> usize {
        Self::buckets(entries_max) * size_of::<Bucket>()
    }

    /// A table that holds `entries_max` flows.
    #[must_use]
    pub fn new(entries_max: usize, source: &mut PageSource) -> Self {
        let count = Self::buckets(entries_max);
        Self {
            buckets: Table::filled(Bucket::EMPTY, count, source),
            mask: count - 1,
            len: 0,
            len_max: entries_max,
        }
    }

    /// Number of flows in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The entry under `hash` for which `is_it` confirms that the key matches.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(FlowEntry) -> bool) -> Option<FlowEntry> {
        let bucket = &self.buckets[hash as usize & self.mask];
        let found = bucket.find(tag_of(hash), &mut is_it);
        if found.is_some() || !bucket.has_overflowed() {
            return found;
        }
        self.find_further(hash, is_it)
    }

    /// Searches the buckets behind the home bucket.
    #[cold]
    fn find_further(
        &self,
        hash: u64,
        mut is_it: impl FnMut(FlowEntry) -> bool,
    ) -> Option<FlowEntry> {
        for probes in 1..FLOW_PROBES_MAX {
            let bucket = &self.buckets[(hash as usize + probes) & self.mask];
            let found = bucket.find(tag_of(hash), &mut is_it);
            if found.is_some() || !bucket.has_overflowed() {
                return found;
            }
        }
        None
    }

    /// Prefetches the bucket in which [`find`](Self::find) looks first.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        ring::prefetch::read(&self.buckets[hash as usize & self.mask]);
    }

    /// The entry that [`find`](Self::find) will probably ask about first, so that a caller can
    /// prefetch it.
    #[inline]
    pub fn likely(&self, hash: u64) -> Option<FlowEntry> {
        let bucket = &self.buckets[hash as usize & self.mask];
        let found = bucket.places_of(tag_of(hash));
        (found != 0).then(|| FlowEntry::unpack(bucket.values[found.trailing_zeros() as usize]))
    }

    /// Adds an entry. The caller has checked by [`find`](Self::find) that the flow is not in the
    /// table.
    pub fn insert(&mut self, hash: u64, entry: FlowEntry) -> Result<(), FlowTableFull> {
        if self.len == self.len_max {
            return Err(FlowTableFull);
        }
        let home = hash as usize & self.mask;
        for probes in 0..FLOW_PROBES_MAX {
            let bucket = &mut self.buckets[(home + probes) & self.mask];
            let free = bucket.places_of(0);
            if free != 0 {
                let way = free.trailing_zeros() as usize;
                bucket.tags[way] = tag_of(hash);
                bucket.values[way] = entry.pack();
                for passed in 0..probes {
                    self.buckets[(home + passed) & self.mask].overflow += 1;
                }
                self.len += 1;
                return Ok(());
            }
        }
        Err(FlowTableFull)
    }

    /// Replaces `old` by `new`, when a flow changes its kind (half-open → connection → TIME_WAIT).
    /// False: `old` is not present.
    #[must_use]
    pub fn replace(&mut self, hash: u64, old: FlowEntry, new: FlowEntry) -> bool {
        match self.locate(hash, old) {
            Some((index, way)) => {
                self.buckets[index].values[way] = new.pack();
                true
            }
            None => false,
        }
    }

    /// Removes an entry. False: it was not in the table.
    #[must_use]
    pub fn remove(&mut self, hash: u64, entry: FlowEntry) -> bool {
        let Some((found, way)) = self.locate(hash, entry) else {
            return false;
        };
        self.buckets[found].tags[way] = 0;
        let mut index = hash as usize & self.mask;
        while index != found {
            self.buckets[index].overflow -= 1;
            index = (index + 1) & self.mask;
        }
        self.len -= 1;
        true
    }

    fn locate(&self, hash: u64, entry: FlowEntry) -> Option<(usize, usize)> {
        let (tag, value) = (tag_of(hash), entry.pack());
        let mut index = hash as usize & self.mask;
        for _ in 0..FLOW_PROBES_MAX {
            let bucket = &self.buckets[index];
            let mut found = bucket.places_of(tag);
            while found != 0 {
                let way = found.trailing_zeros() as usize;
                if bucket.values[way] == value {
                    return Some((index, way));
                }
                found &= found - 1;
            }
            if !bucket.has_overflowed() {
                return None;
            }
            index = (index + 1) & self.mask;
        }
        None
    }
}

#[inline]
fn tag_of(hash: u64) -> u16 {
    (hash >> 48) as u16 | 1
}

#[cfg(test)]
mod tests;
