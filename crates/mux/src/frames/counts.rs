//! Counters of a frames' thread by device. The thread writes them; the service reads them for
//! reports.
//!
//! Owns one row of words for each device. Each word is exact, but the words of a row may be from
//! different moments.

use ring::published::Published64;

use crate::limits::DEVICES;
use crate::reason::Reason;

/// Index of the first drop counter.
const DROPS: usize = 6;
const WORDS: usize = DROPS + Reason::ALL.len();

/// A word of a device's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Frames of the application that left.
    TxFrames = 0,
    /// Bytes of these frames.
    TxBytes = 1,
    /// Frames for the application whose ring was full, or not connected.
    RxNoRoom = 2,
    /// Frames for the application that exceeded its buffers.
    RxTooLong = 3,
    /// 1 while the application is connected and has the thread's queue.
    Connected = 4,
    /// Frames of the application that were dropped, since they came through another queue than the
    /// first.
    TxOtherQueue = 5,
}

/// The rows of all devices.
#[derive(Debug)]
pub struct Counts(Box<[[Published64; WORDS]]>);

impl Default for Counts {
    fn default() -> Self {
        let row = || std::array::from_fn(|_| Published64::new(0));
        Self((0..DEVICES).map(|_| row()).collect())
    }
}

impl Counts {
    /// Adds to a word. For the frames' thread only.
    pub fn add(&self, device: u16, word: Word, more: u64) {
        if let Some(row) = self.0.get(usize::from(device)) {
            row[word as usize].add(more);
        }
    }

    /// Sets a word. For the frames' thread only.
    pub fn set(&self, device: u16, word: Word, value: u64) {
        if let Some(row) = self.0.get(usize::from(device)) {
            row[word as usize].store(value);
        }
    }

    /// Counts a dropped frame of the device. For the frames' thread only.
    pub fn dropped(&self, device: u16, reason: Reason) {
        if let Some(row) = self.0.get(usize::from(device)) {
            row[DROPS + reason as usize].add(1);
        }
    }

    /// Clears the row of a device for a new application. For the frames' thread only.
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

    /// Number of the device's frames that were dropped for this reason.
    pub fn drops(&self, device: u16, reason: Reason) -> u64 {
        let row = self.0.get(usize::from(device));
        row.map_or(0, |row| row[DROPS + reason as usize].load())
    }
}
