//! Sequence numbers: positions on a circle of 2^32, RFC 9293 section 3.4.
//!
//! There is no `Ord` on purpose: "less" on a circle is not transitive, so a sort or a `max()` from
//! the library would work only until the first wrap.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A sequence number. [`lt`](SeqNumber::lt), [`gt`](SeqNumber::gt) and their kin compare two
/// numbers less than 2^31 apart.
///
/// ```
/// use wire::SeqNumber;
/// let old = SeqNumber(u32::MAX - 1);
/// let new = old + 3;
/// assert_eq!(new, SeqNumber(1));
/// assert!(old.lt(new) && new.gt(old));
/// assert_eq!(new.since(old), 3);
/// assert!(new.in_window(old, 4) && !new.in_window(old, 3));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// The distance from `earlier` forward to `self`, modulo 2^32.
    #[inline(always)]
    #[must_use]
    pub const fn since(self, earlier: SeqNumber) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// True if `self` precedes `other`.
    #[inline(always)]
    #[must_use]
    pub const fn lt(self, other: SeqNumber) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// True if `self` precedes or is `other`.
    #[inline(always)]
    #[must_use]
    pub const fn le(self, other: SeqNumber) -> bool {
        !other.lt(self)
    }

    /// True if `self` follows `other`.
    #[inline(always)]
    #[must_use]
    pub const fn gt(self, other: SeqNumber) -> bool {
        other.lt(self)
    }

    /// True if `self` follows or is `other`.
    #[inline(always)]
    #[must_use]
    pub const fn ge(self, other: SeqNumber) -> bool {
        !self.lt(other)
    }

    /// The later of the two.
    #[inline(always)]
    #[must_use]
    pub const fn max(self, other: SeqNumber) -> SeqNumber {
        if self.lt(other) { other } else { self }
    }

    /// The earlier of the two.
    #[inline(always)]
    #[must_use]
    pub const fn min(self, other: SeqNumber) -> SeqNumber {
        if other.lt(self) { other } else { self }
    }

    /// True if `left <= self < left + len` on the circle. Exact for every `len`, because the method
    /// compares distances from `left`, not positions.
    #[inline(always)]
    #[must_use]
    pub const fn in_window(self, left: SeqNumber, len: u32) -> bool {
        self.since(left) < len
    }
}

impl Add<u32> for SeqNumber {
    type Output = SeqNumber;

    #[inline(always)]
    fn add(self, bytes: u32) -> SeqNumber {
        SeqNumber(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for SeqNumber {
    #[inline(always)]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for SeqNumber {
    type Output = SeqNumber;

    #[inline(always)]
    fn sub(self, bytes: u32) -> SeqNumber {
        SeqNumber(self.0.wrapping_sub(bytes))
    }
}

impl SubAssign<u32> for SeqNumber {
    #[inline(always)]
    fn sub_assign(&mut self, bytes: u32) {
        *self = *self - bytes;
    }
}

impl fmt::Debug for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests;
