//! The bytes beyond RCV.NXT that have arrived: sorted, disjoint ranges (RFC 9293 SHLD-31) in blocks
//! of a pool that all connections of a stack share.
//!
//! The receive side owns the ranges. The bytes themselves are in the receive buffer already, each
//! at its offset, so when the gap before a range closes, only RCV.NXT moves. A connection without
//! out-of-order data holds no block. The first block also remembers the order in which the ranges
//! last changed, which is the order of SACK options (RFC 2018 section 4).
//!
//! ```text
//!   Held ──► block: recent, ranges 0..25 ──► block: ranges ──► …      in sequence order
//! ```
//!
//! When there is no room for a range (the pool is empty, or the connection has its share), the
//! range furthest from RCV.NXT is dropped, even if that is the new one. The application waits for
//! the nearest gap.

use alloc::vec::Vec;
use wire::SeqNumber;

use crate::limits::{RANGE_BLOCK_RANGES, RANGE_BLOCKS_EACH_MAX, SACK_BLOCKS_MAX};

/// The bytes `left..right`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    pub left: SeqNumber,
    pub right: SeqNumber,
}

impl Range {
    /// True if the ranges overlap or adjoin.
    pub fn touches(&self, other: &Range) -> bool {
        self.left.le(other.right) && other.left.le(self.right)
    }

    pub fn union(&self, other: &Range) -> Range {
        Range {
            left: self.left.min(other.left),
            right: self.right.max(other.right),
        }
    }

    pub fn len(&self) -> u32 {
        self.right.since(self.left)
    }
}

/// The ranges that SACK options report, newest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recent {
    slots: [Range; SACK_BLOCKS_MAX],
    len: u8,
}

impl Recent {
    /// The empty list.
    pub const EMPTY: Recent = Recent {
        slots: [Range {
            left: SeqNumber(0),
            right: SeqNumber(0),
        }; SACK_BLOCKS_MAX],
        len: 0,
    };

    pub fn as_slice(&self) -> &[Range] {
        &self.slots[..usize::from(self.len).min(SACK_BLOCKS_MAX)]
    }

    /// Notes that `new` arrived. The ranges that it touches become one with it at the front. The
    /// oldest range is forgotten if there are too many.
    pub fn hear(&mut self, new: Range) {
        let mut merged = new;
        let mut kept = Recent::default();
        kept.push(new);
        let mut rest = *self;
        // The merged range may now touch a range that was compared before.
        while let Some(at) = rest
            .as_slice()
            .iter()
            .position(|held| held.touches(&merged))
        {
            merged = merged.union(&rest.slots[at]);
            rest.remove(at);
        }
        kept.slots[0] = merged;
        for held in rest.as_slice() {
            kept.push(*held);
        }
        *self = kept;
    }

    /// Removes everything before `nxt`, which is in order.
    pub fn advance(&mut self, nxt: SeqNumber) {
        let mut at = 0;
        while at < usize::from(self.len) {
            if self.slots[at].left.le(nxt) {
                self.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// Removes the bytes at or beyond `edge`, which were dropped.
    pub fn truncate(&mut self, edge: SeqNumber) {
        let mut at = 0;
        while at < usize::from(self.len) {
            if self.slots[at].left.ge(edge) {
                self.remove(at);
            } else {
                self.slots[at].right = self.slots[at].right.min(edge);
                at += 1;
            }
        }
    }

    fn push(&mut self, range: Range) {
        if let Some(slot) = self.slots.get_mut(usize::from(self.len)) {
            *slot = range;
            self.len += 1;
        }
    }

    fn remove(&mut self, at: usize) {
        let len = usize::from(self.len);
        self.slots.copy_within(at + 1..len, at);
        self.len -= 1;
    }
}

/// Index that stands for no block.
const NONE: u32 = u32::MAX;

/// A block of ranges, or a free one.
#[derive(Clone, Debug)]
struct Block {
    next: u32,
    len: u32,
    /// In the first block: bytes in all ranges of the connection.
    bytes: u32,
    /// In the first block: the ranges in the order of their last change.
    recent: Recent,
    ranges: [Range; RANGE_BLOCK_RANGES],
}

const _: () = assert!(size_of::<Block>() <= 256);

impl Block {
    const EMPTY: Block = Block {
        next: NONE,
        len: 0,
        bytes: 0,
        recent: Recent::EMPTY,
        ranges: [Range {
            left: SeqNumber(0),
            right: SeqNumber(0),
        }; RANGE_BLOCK_RANGES],
    };

    fn ranges(&self) -> &[Range] {
        &self.ranges[..(self.len as usize).min(RANGE_BLOCK_RANGES)]
    }

    fn insert(&mut self, at: usize, range: Range) {
        let len = self.len as usize;
        self.ranges.copy_within(at..len, at + 1);
        self.ranges[at] = range;
        self.len += 1;
    }

    fn remove(&mut self, at: usize) {
        let len = self.len as usize;
        self.ranges.copy_within(at + 1..len, at);
        self.len -= 1;
    }
}

/// The blocks that all connections of a stack share. The stack makes the pool once, and lends it
/// through `Cx`.
#[derive(Clone, Debug)]
pub struct RangePool {
    blocks: Vec<Block>,
    /// First of the free blocks, linked by `next`.
    free: u32,
    /// Number of free blocks.
    available: u32,
}

impl RangePool {
    /// A pool of `blocks` blocks of 256 bytes.
    #[must_use]
    pub fn new(blocks: usize) -> RangePool {
        let count = blocks.min(NONE as usize - 1);
        let mut pool = RangePool {
            blocks: alloc::vec![Block::EMPTY; count],
            free: NONE,
            available: 0,
        };
        for index in (0..count as u32).rev() {
            pool.give(index);
        }
        pool
    }

    /// Number of blocks in use: zero when no connection holds out-of-order data.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.blocks.len() - self.available as usize
    }

    fn take(&mut self) -> Option<u32> {
        let index = self.free;
        let block = self.blocks.get_mut(index as usize)?;
        self.free = block.next;
        self.available -= 1;
        *block = Block::EMPTY;
        Some(index)
    }

    fn give(&mut self, index: u32) {
        if let Some(block) = self.blocks.get_mut(index as usize) {
            block.next = self.free;
            block.len = 0;
            self.free = index;
            self.available += 1;
        }
    }

    fn block(&self, index: u32) -> Option<&Block> {
        self.blocks.get(index as usize)
    }

    fn block_mut(&mut self, index: u32) -> Option<&mut Block> {
        self.blocks.get_mut(index as usize)
    }
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// The range is stored.
    Yes,
    /// The range is stored, and the ranges at or beyond this edge were dropped.
    Instead(SeqNumber),
    /// The range was dropped.
    No,
}

/// One connection's ranges, by the index of its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    first: u32,
}

impl Default for Held {
    fn default() -> Self {
        Held { first: NONE }
    }
}

impl Held {
    pub fn is_empty(self) -> bool {
        self.first == NONE
    }

    /// Every range, in sequence order.
    pub fn iter(self, pool: &RangePool) -> impl Iterator<Item = Range> + '_ {
        let mut at = (self.first, 0usize);
        core::iter::from_fn(move || {
            loop {
                let block = pool.block(at.0)?;
                if let Some(range) = block.ranges().get(at.1) {
                    at.1 += 1;
                    return Some(*range);
                }
                at = (block.next, 0);
            }
        })
    }

    /// Bytes in all ranges.
    pub fn bytes(self, pool: &RangePool) -> u32 {
        pool.block(self.first).map_or(0, |block| block.bytes)
    }

    /// The ranges that SACK options report, newest first.
    pub fn recent(self, pool: &RangePool) -> Recent {
        pool.block(self.first)
            .map_or(Recent::EMPTY, |block| block.recent)
    }

    /// Notes for SACK options that `reported` arrived beyond a gap; a FIN counts as a byte.
    pub fn hear(&mut self, pool: &mut RangePool, reported: Range) {
        if self.is_empty() {
            let Some(first) = pool.take() else { return };
            self.first = first;
        }
        if let Some(block) = pool.block_mut(self.first) {
            block.recent.hear(reported);
        }
    }

    /// Adds a range and merges the ones that it touches.
    pub fn insert(&mut self, pool: &mut RangePool, new: Range) -> Inserted {
        if self.is_empty() {
            let Some(first) = pool.take() else {
                return Inserted::No;
            };
            self.first = first;
        }
        let (merged, position) = self.absorb(pool, new);
        let outcome = self.insert_at(pool, position, merged);
        if let Inserted::Instead(edge) = outcome
            && let Some(first) = pool.block_mut(self.first)
        {
            first.recent.truncate(edge);
        }
        outcome
    }

    /// Removes the ranges that `new` touches. Returns their union with it, and the block and index
    /// at which the union belongs.
    fn absorb(&mut self, pool: &mut RangePool, new: Range) -> (Range, (u32, usize)) {
        let mut merged = new;
        let mut at = self.position(pool, new.left);
        let position = at;
        while let Some(block) = pool.block_mut(at.0) {
            let Some(held) = block.ranges().get(at.1).copied() else {
                at = (block.next, 0);
                continue;
            };
            if !held.touches(&merged) {
                break;
            }
            merged = merged.union(&held);
            block.remove(at.1);
            if let Some(first) = pool.block_mut(self.first) {
                first.bytes -= held.len();
            }
        }
        (merged, position)
    }

    /// Block and index of the first range that ends at or beyond `left`, or else the position at
    /// which one would be inserted.
    fn position(self, pool: &RangePool, left: SeqNumber) -> (u32, usize) {
        let mut index = self.first;
        while let Some(block) = pool.block(index) {
            let ends_before = block.ranges().last().is_none_or(|last| last.right.lt(left));
            if ends_before && block.next != NONE {
                index = block.next;
                continue;
            }
            let at = block
                .ranges()
                .iter()
                .position(|held| held.right.ge(left))
                .unwrap_or(block.ranges().len());
            return (index, at);
        }
        (self.first, 0)
    }

    /// Inserts `range` at this block and index.
    fn insert_at(self, pool: &mut RangePool, position: (u32, usize), range: Range) -> Inserted {
        let (mut index, mut at) = position;
        let is_full = |block: &Block| block.ranges().len() == RANGE_BLOCK_RANGES;
        let mut pushed_out = None;
        if pool.block(index).is_some_and(is_full) {
            match self.split(pool, index) {
                Some(upper) if at > RANGE_BLOCK_RANGES / 2 => {
                    (index, at) = (upper, at - RANGE_BLOCK_RANGES / 2);
                }
                Some(_) => {}
                None => pushed_out = push_through(pool, (index, at), range),
            }
        }
        if let Some(block) = pool.block_mut(index)
            && !is_full(block)
        {
            block.insert(at, range);
        }
        if pushed_out == Some(range) {
            return Inserted::No;
        }
        let out = pushed_out.map_or(0, |out| out.len());
        if let Some(first) = pool.block_mut(self.first) {
            first.bytes = first.bytes + range.len() - out;
        }
        self.drop_empty_blocks(pool);
        match pushed_out {
            Some(out) => Inserted::Instead(out.left),
            None => Inserted::Yes,
        }
    }

    /// Moves the upper half of a full block to a new one behind it.
    fn split(self, pool: &mut RangePool, index: u32) -> Option<u32> {
        if self.blocks(pool) >= RANGE_BLOCKS_EACH_MAX {
            return None;
        }
        let upper = pool.take()?;
        let lower = pool.block_mut(index)?;
        let half = RANGE_BLOCK_RANGES / 2;
        let moved = lower.ranges;
        let next = core::mem::replace(&mut lower.next, upper);
        lower.len = half as u32;
        let block = pool.block_mut(upper)?;
        block.next = next;
        block.ranges[..RANGE_BLOCK_RANGES - half].copy_from_slice(&moved[half..]);
        block.len = (RANGE_BLOCK_RANGES - half) as u32;
        Some(upper)
    }

    fn blocks(self, pool: &RangePool) -> usize {
        let mut count = 0;
        let mut index = self.first;
        while let Some(block) = pool.block(index) {
            count += 1;
            index = block.next;
        }
        count
    }

    /// Gives back the blocks behind the first that merging has emptied.
    fn drop_empty_blocks(self, pool: &mut RangePool) {
        let mut before = self.first;
        while let Some(next) = pool.block(before).map(|block| block.next)
            && let Some(block) = pool.block(next)
        {
            if block.len > 0 {
                before = next;
                continue;
            }
            let after = block.next;
            if let Some(block) = pool.block_mut(before) {
                block.next = after;
            }
            pool.give(next);
        }
    }

    /// The range furthest from RCV.NXT.
    pub fn last(self, pool: &RangePool) -> Option<Range> {
        let mut last = None;
        let mut index = self.first;
        while let Some(block) = pool.block(index) {
            last = block.ranges().last().copied().or(last);
            index = block.next;
        }
        last
    }

    /// Moves to `nxt`, before which everything is in order: removes the ranges that it reaches and
    /// returns the end of the run. The run ends at `limit` at the latest; ranges beyond `limit`
    /// stay.
    pub fn advance(
        &mut self,
        pool: &mut RangePool,
        nxt: SeqNumber,
        limit: Option<SeqNumber>,
    ) -> SeqNumber {
        let mut end = nxt;
        let mut index = self.first;
        while let Some(block) = pool.block_mut(index) {
            let mut gone = 0;
            while let Some(held) = block.ranges().first().copied()
                && held.left.le(end)
                && limit.is_none_or(|limit| held.left.lt(limit))
            {
                if let Some(limit) = limit.filter(|&limit| held.right.gt(limit)) {
                    end = limit;
                    gone += limit.since(held.left);
                    block.ranges[0].left = limit;
                    break;
                }
                end = end.max(held.right);
                gone += held.len();
                block.remove(0);
            }
            let (is_empty, next) = (block.len == 0, block.next);
            if let Some(first) = pool.block_mut(self.first) {
                first.bytes -= gone;
            }
            if !is_empty {
                break;
            }
            index = next;
        }
        self.drop_empty_blocks(pool);
        if let Some(first) = pool.block_mut(self.first) {
            first.recent.advance(end);
        }
        end
    }

    /// Drops the bytes at or beyond `edge`.
    pub fn truncate(&mut self, pool: &mut RangePool, edge: SeqNumber) {
        let mut index = self.first;
        while let Some(block) = pool.block_mut(index) {
            let mut gone = 0;
            while let Some(last) = block.ranges().last().copied()
                && last.right.gt(edge)
            {
                let at = block.ranges().len() - 1;
                if last.left.ge(edge) {
                    block.remove(at);
                    gone += last.len();
                } else {
                    block.ranges[at].right = edge;
                    gone += last.right.since(edge);
                }
            }
            index = block.next;
            if let Some(first) = pool.block_mut(self.first) {
                first.bytes -= gone;
            }
        }
        self.drop_empty_blocks(pool);
        if let Some(first) = pool.block_mut(self.first) {
            first.recent.truncate(edge);
        }
    }

    /// True if any range is stored, whatever SACK options may still report.
    pub fn has_ranges(self, pool: &RangePool) -> bool {
        pool.block(self.first)
            .is_some_and(|first| first.len > 0 || first.next != NONE)
    }

    /// Gives all blocks back.
    pub fn release(&mut self, pool: &mut RangePool) {
        let mut index = core::mem::replace(&mut self.first, NONE);
        while let Some(block) = pool.block(index) {
            let next = block.next;
            pool.give(index);
            index = next;
        }
    }
}

/// Inserts `range` into a full block. The block's last range moves to the next block, and so on.
/// Returns the range for which the last block has no room.
fn push_through(pool: &mut RangePool, position: (u32, usize), range: Range) -> Option<Range> {
    let (mut index, mut at) = position;
    let mut carried = range;
    while let Some(block) = pool.block_mut(index) {
        if block.ranges().len() < RANGE_BLOCK_RANGES {
            block.insert(at, carried);
            return None;
        }
        if at < RANGE_BLOCK_RANGES {
            let last = block.ranges[RANGE_BLOCK_RANGES - 1];
            block.remove(RANGE_BLOCK_RANGES - 1);
            block.insert(at, carried);
            carried = last;
        }
        (index, at) = (block.next, 0);
    }
    Some(carried)
}

#[cfg(test)]
mod tests;
