//! Records of data in flight: the last transmission time of each segment, and its state.
//!
//! A record is a run of adjacent segments that were sent in one burst and have the same state. It
//! is cut at a segment boundary when a SACK, a loss mark, a retransmission or an ACK affects only
//! some of its segments. One [`RecordPool`] holds the records of all connections of a stack; each
//! connection holds the ends of its own chain ([`Chain`]), in sequence order.
//!
//! ```text
//!   snd.una()                                                        snd.nxt()
//!      │ 10 × 1460  │ 1 × 1460, lost, sent again │ 3 × 1460, SACKed │ 700 │
//!      └─ head                                                      tail ─┘
//! ```
//!
//! The stack owns the pool and lends it through `Cx`. A pool never fails: a connection always gets
//! its first record. When there is no room for another one, runs stay whole and their state is less
//! precise. No connection may have more records than are left for all others, so a few peers that
//! fragment their flights cannot take them all.

use alloc::vec::Vec;
use wire::SeqNumber;

/// Index of a record in its pool.
pub(crate) type Index = u32;

/// Index that stands for no record.
pub(crate) const NONE: Index = u32::MAX;

/// The state of a record's segments (Linux's tags S, L, R and "ever retransmitted").
pub(crate) mod tag {
    /// The receiver has it (SACKed).
    pub const SACKED: u16 = 1;
    /// Presumed lost.
    pub const LOST: u16 = 1 << 1;
    /// Sent again, and the retransmission may still be in the network.
    pub const RETRANS: u16 = 1 << 2;
    /// Sent more than once, whatever happened to it (Karn).
    pub const EVER_RETRANS: u16 = 1 << 3;
    /// The record ends with a FIN; such a record is one segment.
    pub const FIN: u16 = 1 << 4;
    /// RACK skips it: it was marked lost, or SACKed, since it was last sent.
    pub const SETTLED: u16 = 1 << 5;
    /// Sent when the application, not the window, was the limit.
    pub const APP_LIMITED: u16 = 1 << 6;
    /// Its delivery was sampled for the delivery rate.
    pub const SAMPLED: u16 = 1 << 7;
    /// The last segment carries PSH, also when it is sent again.
    pub const PUSHED: u16 = 1 << 8;

    /// The tags for the end of a new segment.
    #[inline]
    pub fn of_end(fin: bool, pushed: bool) -> u16 {
        (u16::from(fin) * FIN) | (u16::from(pushed) * PUSHED)
    }
}

/// A run of segments in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Time at which the run was last sent, ns.
    pub sent_ns: u64,
    /// First sequence number.
    pub seq: SeqNumber,
    /// Sequence number behind the last.
    pub end: SeqNumber,
    /// Segments delivered on the connection when the run was sent.
    pub delivered: u32,
    /// Time from the last delivery to `sent_ns`, in microseconds.
    pub delivered_age_us: u32,
    /// Time from the transmission of the flight's first segment to `sent_ns`, in microseconds.
    pub first_sent_age_us: u32,
    /// Payload bytes of each segment but the last.
    pub mss: u16,
    /// The record's state: bits of [`tag`].
    pub tags: u16,
    prev: Index,
    next: Index,
}

impl Record {
    /// A record of one segment or a run, not in any chain yet.
    pub fn new(seq: SeqNumber, end: SeqNumber, mss: u16, sent_ns: u64, tags: u16) -> Self {
        Record {
            sent_ns,
            seq,
            end,
            delivered: 0,
            delivered_age_us: 0,
            first_sent_age_us: 0,
            mss: mss.max(1),
            tags,
            prev: NONE,
            next: NONE,
        }
    }

    /// True if all of `tags` are set.
    #[inline]
    pub fn has(&self, tags: u16) -> bool {
        self.tags & tags == tags
    }

    /// True if at least one of `tags` is set.
    #[inline]
    pub fn any(&self, tags: u16) -> bool {
        self.tags & tags != 0
    }

    /// Sequence numbers that the record covers, the FIN's included.
    #[inline]
    pub fn len(&self) -> u32 {
        self.end.since(self.seq)
    }

    /// Payload bytes.
    #[inline]
    pub fn payload(&self) -> u32 {
        self.len() - u32::from(self.has(tag::FIN))
    }

    /// Number of segments. A FIN belongs to the last one, or is one alone.
    #[inline]
    pub fn count(&self) -> u32 {
        segments(self.payload(), self.mss).max(1)
    }

    /// True if all segments are full, so that the run may continue.
    fn is_full(&self) -> bool {
        !self.has(tag::FIN) && self.len().is_multiple_of(u32::from(self.mss))
    }

    /// True if `next` was sent directly behind this run at the same moment, and has the same state.
    fn takes(&self, next: &Record) -> bool {
        self.end == next.seq
            && self.sent_ns == next.sent_ns
            && self.tags == next.tags & !tag::PUSHED
            && self.is_full()
            && next.mss == self.mss
            && self.delivered == next.delivered
            && self.delivered_age_us == next.delivered_age_us
            && self.first_sent_age_us == next.first_sent_age_us
    }
}

/// Number of segments of at most `mss` bytes that carry `bytes`.
#[inline]
fn segments(bytes: u32, mss: u16) -> u32 {
    let mss = u32::from(mss.max(1));
    if bytes <= mss {
        u32::from(bytes > 0)
    } else {
        bytes.div_ceil(mss)
    }
}

/// All records of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordPool {
    nodes: Vec<Record>,
    /// First of the free records, linked by `next`.
    free: Index,
    /// Records not in use.
    available: u32,
    /// Number of connections that hold no record; each has a claim on one.
    claims: u32,
    /// Records in all.
    total: u32,
    /// Number of refused records.
    refused: u64,
}

impl RecordPool {
    /// A pool of `records_max` records, or of one for each of `connections_max` connections if that
    /// is more.
    #[must_use]
    pub fn new(records_max: usize, connections_max: usize) -> Self {
        let claims = connections_max.clamp(1, NONE as usize - 1);
        let records = records_max.clamp(claims, NONE as usize - 1);
        RecordPool {
            nodes: Vec::with_capacity(records),
            free: NONE,
            available: records as u32,
            claims: claims as u32,
            total: records as u32,
            refused: 0,
        }
    }

    /// Records not in use.
    #[must_use]
    pub fn available(&self) -> usize {
        self.available as usize
    }

    /// Records in use: zero when nothing is in flight.
    #[must_use]
    pub fn in_use(&self) -> usize {
        (self.total - self.available) as usize
    }

    /// Number of times that a connection got no further record.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes a record for a connection that holds `held`. `None`: the others are reserved, or the
    /// connection has its share.
    fn take(&mut self, record: Record, held: u32) -> Option<Index> {
        let first = held == 0;
        if first {
            self.claims = self.claims.saturating_sub(1);
        }
        let reserve = if first { 0 } else { self.claims };
        let spare = self.available.saturating_sub(reserve);
        if spare == 0 || held > spare {
            self.refused += 1;
            if first {
                self.claims += 1;
            }
            return None;
        }
        self.available -= 1;
        let index = self.free;
        if let Some(node) = self.nodes.get_mut(index as usize) {
            self.free = node.next;
            *node = record;
            return Some(index);
        }
        self.nodes.push(record);
        Some(self.nodes.len() as Index - 1)
    }

    #[inline]
    fn give_back(&mut self, index: Index) {
        let free = self.free;
        if let Some(node) = self.nodes.get_mut(index as usize) {
            node.next = free;
            self.free = index;
            self.available += 1;
        }
    }

    /// The record at `index`, if there is one.
    #[inline]
    pub(crate) fn get(&self, index: Index) -> Option<&Record> {
        self.nodes.get(index as usize)
    }

    /// The record at `index`, if there is one.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: Index) -> Option<&mut Record> {
        self.nodes.get_mut(index as usize)
    }

    /// The record behind `index` in its chain.
    #[inline]
    pub(crate) fn next(&self, index: Index) -> Index {
        self.get(index).map_or(NONE, |record| record.next)
    }

    /// The record before `index` in its chain.
    #[inline]
    pub(crate) fn prev(&self, index: Index) -> Index {
        self.get(index).map_or(NONE, |record| record.prev)
    }

    fn link(&mut self, before: Index, after: Index) {
        if let Some(node) = self.get_mut(before) {
            node.next = after;
        }
        if let Some(node) = self.get_mut(after) {
            node.prev = before;
        }
    }
}

/// The ends of a connection's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain {
    /// The record that holds SND.UNA.
    pub head: Index,
    /// The record that ends at SND.NXT.
    pub tail: Index,
    /// Number of records in the chain.
    len: u32,
}

impl Chain {
    /// The chain of a connection without data in flight.
    pub const EMPTY: Chain = Chain {
        head: NONE,
        tail: NONE,
        len: 0,
    };

    /// True if nothing is in flight.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Adds a segment behind all others. `joins`: it belongs to the same burst as the one before,
    /// and may share its record. Returns the number of segments by which the chain grew. `None`:
    /// the pool has no room, so the last run must [swallow](Self::swallow) the segment.
    pub fn push(&mut self, pool: &mut RecordPool, record: Record, joins: bool) -> Option<u32> {
        if joins
            && let Some(tail) = pool.get_mut(self.tail)
            && tail.takes(&record)
        {
            tail.end = record.end;
            tail.tags |= record.tags;
            return Some(record.count());
        }
        let index = pool.take(record, self.len)?;
        self.len += 1;
        let tail = self.tail;
        pool.link(tail, index);
        if let Some(node) = pool.get_mut(index) {
            node.prev = tail;
            node.next = NONE;
        }
        if self.is_empty() {
            self.head = index;
        }
        self.tail = index;
        Some(record.count())
    }

    /// Lets the last record grow, because no record is free. It keeps only the tags that also hold
    /// for `record`. Returns the number of segments added, which need not be one.
    #[cold]
    pub fn swallow(&mut self, pool: &mut RecordPool, record: Record) -> u32 {
        let Some(tail) = pool.get_mut(self.tail) else {
            return 0;
        };
        let before = tail.count();
        tail.end = record.end;
        tail.sent_ns = record.sent_ns;
        tail.tags |= record.tags & (tag::FIN | tag::PUSHED);
        tail.count() - before
    }

    /// Cuts the record at `index` before `at`, which must be a segment boundary inside it. Returns
    /// the index of the part from `at` on; `None` if the pool has no room.
    pub fn split(&mut self, pool: &mut RecordPool, index: Index, at: SeqNumber) -> Option<Index> {
        let whole = *pool.get(index)?;
        let mut rest = whole;
        rest.seq = at;
        rest.prev = index;
        let new = pool.take(rest, self.len.max(1))?;
        self.len += 1;
        pool.link(new, whole.next);
        if let Some(node) = pool.get_mut(index) {
            node.end = at;
            node.tags &= !(tag::FIN | tag::PUSHED);
            node.next = new;
        }
        if self.tail == index {
            self.tail = new;
        }
        Some(new)
    }

    /// Merges the record behind `index` into it, if the receiver has both, neither is being
    /// retransmitted, and both or neither were sent more than once (which a later D-SACK needs).
    /// Their transmission times no longer matter. Returns whether they were merged.
    pub fn merge_sacked(&mut self, pool: &mut RecordPool, index: Index) -> bool {
        let next = pool.next(index);
        let (Some(&a), Some(&b)) = (pool.get(index), pool.get(next)) else {
            return false;
        };
        let apart = tag::SACKED | tag::LOST | tag::RETRANS | tag::FIN;
        if a.tags & apart != tag::SACKED
            || b.tags & apart != tag::SACKED
            || (a.tags ^ b.tags) & tag::EVER_RETRANS != 0
            || a.end != b.seq
            || a.mss != b.mss
            || !a.is_full()
        {
            return false;
        }
        if let Some(node) = pool.get_mut(index) {
            node.end = b.end;
            node.tags |= b.tags & tag::PUSHED;
            node.sent_ns = a.sent_ns.max(b.sent_ns);
        }
        self.unlink(pool, next);
        true
    }

    /// Merges the record behind `index` into it if both have the same state. Returns whether it
    /// did.
    pub fn merge_next(&mut self, pool: &mut RecordPool, index: Index) -> bool {
        let next = pool.next(index);
        let (Some(&a), Some(&b)) = (pool.get(index), pool.get(next)) else {
            return false;
        };
        if !a.takes(&b) {
            return false;
        }
        if let Some(node) = pool.get_mut(index) {
            node.end = b.end;
            node.tags |= b.tags;
        }
        self.unlink(pool, next);
        true
    }

    /// Removes the record at `index` and gives it back.
    pub fn unlink(&mut self, pool: &mut RecordPool, index: Index) {
        let (prev, next) = (pool.prev(index), pool.next(index));
        if self.head == index {
            self.head = next;
        }
        if self.tail == index {
            self.tail = prev;
        }
        pool.link(prev, next);
        pool.give_back(index);
        self.len = self.len.saturating_sub(1);
        if self.head == NONE {
            pool.claims += 1;
        }
    }

    /// Like [`push`](Self::push), for the first record of an empty chain, which always has room.
    #[inline]
    pub fn begin(&mut self, pool: &mut RecordPool, record: Record) {
        debug_assert!(self.is_empty());
        if let Some(index) = pool.take(record, 0) {
            (self.head, self.tail, self.len) = (index, index, 1);
        }
    }

    /// Like [`unlink`](Self::unlink), for the only record of a chain.
    #[inline]
    pub fn clear_one(&mut self, pool: &mut RecordPool) {
        debug_assert!(self.head == self.tail && self.head != NONE);
        pool.give_back(self.head);
        *self = Chain::EMPTY;
        pool.claims += 1;
    }

    /// Gives all records back.
    pub fn clear(&mut self, pool: &mut RecordPool) {
        while self.head != NONE {
            self.unlink(pool, self.head);
        }
    }
}

#[cfg(test)]
mod tests;
