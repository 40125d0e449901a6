//! Prefetching: cache lines of several sockets travel at once. A prefetch is a hint: it reads
//! nothing, changes nothing and cannot fail. Code that works through a batch prefetches what a
//! later item will touch while it works on an earlier one.

use crate::raw::RawSlice;

/// Bytes of a cache line.
pub const LINE_BYTES: usize = 64;

/// Address of bytes that will be read next. A copy prefetches them on the way, line by line, so
/// that lines from another core's cache arrive in time. The hardware prefetcher cannot know where
/// the next frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead(usize);

impl Ahead {
    /// Nothing is known about the next bytes.
    pub const NOTHING: Self = Self(0);

    /// The address of these bytes.
    #[inline]
    pub fn of(bytes: RawSlice<'_>) -> Self {
        Self::at(bytes.as_ptr())
    }

    /// The hint for this address.
    #[inline]
    pub(crate) fn at(place: *const u8) -> Self {
        Self(place.addr())
    }

    /// The hint for the address `bytes` further on.
    #[inline]
    pub(crate) fn past(self, bytes: u32) -> Self {
        match self {
            Self::NOTHING => self,
            Self(at) => Self(at.wrapping_add(bytes as usize)),
        }
    }

    /// The address to prefetch; `other` if nothing is known.
    #[inline]
    pub(crate) fn or(self, other: *const u8) -> *const u8 {
        match self {
            Self::NOTHING => other,
            Self(at) => core::ptr::without_provenance(at),
        }
    }
}

/// Prefetches all lines of `value`.
#[inline(always)]
pub fn read<T>(value: &T) {
    first(value, size_of::<T>());
}

/// Prefetches the first `bytes` of `value`.
#[inline(always)]
pub fn first<T>(value: &T, bytes: usize) {
    let at = core::ptr::from_ref(value).cast::<u8>();
    for offset in (0..bytes.min(size_of::<T>())).step_by(LINE_BYTES) {
        line(at.wrapping_add(offset));
    }
}

/// Prefetches the line at this address, valid or not.
#[inline(always)]
pub fn line(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction is part of every x86-64 and is a hint, which does nothing at an
        // address that cannot be read.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hint_about_anything_changes_nothing() {
        let words = [7u64; 100];
        read(&words);
        first(&words, 10_000);
        line(core::ptr::null());
        assert_eq!(words, [7; 100]);
    }
}
