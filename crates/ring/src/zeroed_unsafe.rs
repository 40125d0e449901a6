//! Zeroed lines of words that several threads share. The system gives a page of them when it is
//! first written, so a large table costs what is used of it.

use crate::sync::AtomicU64;

/// Words of a line.
pub(crate) const LINE_WORDS: usize = 8;

/// A cache line of words.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Line(pub [AtomicU64; LINE_WORDS]);

/// So many lines, all zero.
#[cfg(not(loom))]
pub(crate) fn lines(count: usize) -> Box<[Line]> {
    let lines = Box::<[Line]>::new_zeroed_slice(count);
    // SAFETY: a line holds words only, and any bytes make a word.
    unsafe { lines.assume_init() }
}

/// So many lines, all zero.
#[cfg(loom)]
pub(crate) fn lines(count: usize) -> Box<[Line]> {
    (0..count).map(|_| Line::default()).collect()
}
