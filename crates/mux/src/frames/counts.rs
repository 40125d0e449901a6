//! Counters of a frames' thread, by device: written there, read by the service for people.
//!
//! Owns one row of words for each device. Each word is exact; words of one row may be from
//! different moments.

use ring::published::Published64;

use crate::limits::DEVICES;
use crate::reason::Reason;

/// The first word of the reasons to drop.
const DROPS: usize = 6;
const WORDS: usize = DROPS + Reason::ALL.len();

/// A word of a device's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Frames that left.
    TxFrames = 0,
    /// Their bytes.
    TxBytes = 1,
    /// Frames for the application that found its ring full, or nobody at the other end.
    RxNoRoom = 2,
    /// Frames for the application that are longer than its buffers.
    RxTooLong = 3,
    /// 1 while the application is connected and has the thread's queue.
    Connected = 4,
    /// Frames of the application that were dropped, since it sent them by another queue than its
    /// first.
    TxOtherQueue = 5,
}

/// All rows.
#[derive(Debug)]
pub struct Counts(Box<[[Published64; WORDS]]>);

impl Default for Counts {
    fn default() -> Self {
        let row = || std::array::from_fn(|_| Published64::new(0));
        Self((0..DEVICES).map(|_| row()).collect())
    }
}

impl Counts {
    /// Adds to a word; by the frames' thread alone.
    pub fn add(&self, device: u16, word: Word, more: u64) {
        if let Some(row) = self.0.get(usize::from(device)) {
            row[word as usize].add(more);
        }
    }

    /// Sets a word; by the frames' thread alone.
    pub fn set(&self, device: u16, word: Word, value: u64) {
        if let Some(row) = self.0.get(usize::from(device)) {
            row[word as usize].store(value);
        }
    }

    /// Counts a frame of the device that was dropped; by the frames' thread alone.
    pub fn dropped(&self, device: u16, reason: Reason) {
        if let Some(row) = self.0.get(usize::from(device)) {
            row[DROPS + reason as usize].add(1);
        }
    }

    /// A new application has the device; by the frames' thread alone.
    pub fn clear(&self, device: u16) {
        if let Some(row) = self.0.get(usize::from(device)) {
            row.iter().for_each(|word| word.store(0));
        }
    }

    /// The value of a word.
    pub fn word(&self, device: u16, word: Word) -> u64 {
        let row = self.0.get(usize::from(device));
        row.map_or(0, |row| row[word as usize].load())
    }

    /// Frames of the device that were dropped for this reason.
    pub fn drops(&self, device: u16, reason: Reason) -> u64 {
        let row = self.0.get(usize::from(device));
        row.map_or(0, |row| row[DROPS + reason as usize].load())
    }
}
