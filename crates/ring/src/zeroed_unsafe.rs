//! Zeroed cache lines of words that several threads share. The system allocates a page when it is
//! first written, so a large table costs only what is used of it.

use crate::sync::AtomicU64;

/// Words of a cache line.
pub(crate) const LINE_WORDS: usize = 8;

/// A cache line of words.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Line(pub [AtomicU64; LINE_WORDS]);

/// `count` lines, all zero.
#[cfg(not(loom))]
pub(crate) fn lines(count: usize) -> Box<[Line]> {
    let lines = Box::<[Line]>::new_zeroed_slice(count);
    // SAFETY: a line holds words only, and any bytes make a word.
    unsafe { lines.assume_init() }
}

/// `count` lines, all zero.
#[cfg(loom)]
pub(crate) fn lines(count: usize) -> Box<[Line]> {
    (0..count).map(|_| Line::default()).collect()
}
