//! Which bytes beyond RCV.NXT have arrived: a few sorted, disjoint ranges (RFC 9293 SHLD-31).
//!
//! Owned by the receive side. The bytes themselves are in the receive buffer already, each at its offset;
//! when the gap before a range closes, only RCV.NXT moves. At the limit a range that touches no other is
//! refused, and the peer sends it again.

use wire::SeqNumber;

use crate::limits::RANGES_MAX;

/// Bytes `left..right`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Range {
    pub left: SeqNumber,
    pub right: SeqNumber,
}

impl Range {
    /// They overlap or adjoin.
    fn touches(&self, other: &Range) -> bool {
        self.left.le(other.right) && other.left.le(self.right)
    }

    fn union(&self, other: &Range) -> Range {
        Range {
            left: self.left.min(other.left),
            right: self.right.max(other.right),
        }
    }
}

/// The ranges, in sequence order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    slots: [Range; RANGES_MAX],
    len: u8,
}

impl Ranges {
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn as_slice(&self) -> &[Range] {
        &self.slots[..usize::from(self.len).min(RANGES_MAX)]
    }

    /// Whether `insert` would succeed.
    pub fn fits(&self, new: Range) -> bool {
        usize::from(self.len) < RANGES_MAX || self.as_slice().iter().any(|held| held.touches(&new))
    }

    /// Adds a range and merges what it touches; false when there is no room.
    pub fn insert(&mut self, new: Range) -> bool {
        if !self.fits(new) {
            return false;
        }
        let mut merged = new;
        let mut kept = Ranges::default();
        for held in self.as_slice() {
            if held.touches(&merged) {
                merged = merged.union(held);
            } else {
                kept.push(*held);
            }
        }
        kept.push(merged);
        // At most one element is out of place: the one just pushed.
        let mut at = usize::from(kept.len) - 1;
        while at > 0 && kept.slots[at].left.lt(kept.slots[at - 1].left) {
            kept.slots.swap(at, at - 1);
            at -= 1;
        }
        *self = kept;
        true
    }

    /// Everything before `nxt` is in order: removes the ranges it reached and returns where the run ends.
    pub fn advance(&mut self, nxt: SeqNumber) -> SeqNumber {
        let mut end = nxt;
        let mut kept = Ranges::default();
        for held in self.as_slice() {
            if held.left.le(end) {
                end = end.max(held.right);
            } else {
                kept.push(*held);
            }
        }
        *self = kept;
        end
    }

    fn push(&mut self, range: Range) {
        if let Some(slot) = self.slots.get_mut(usize::from(self.len)) {
            *slot = range;
            self.len += 1;
        }
    }
}

#[cfg(test)]
mod tests;
