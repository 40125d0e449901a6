//! A log of frames in a memory file: one process writes, others read, and neither waits. The newest
//! frames overwrite the oldest. A reader that is too slow learns how many frames it has missed.
//!
//! ```text
//! words  0 magic · 1 reserved · 2 published · 3 frames · 4 resume
//!        8.. names of drop reasons · then records
//! record 0 words | 1 ns since 1970 | 2 number | 3 lengths, drop reason, direction | bytes
//! ```
//!
//! Positions count words since the beginning and never wrap. The writer raises `reserved` before it
//! overwrites, and `published` after a batch is whole. A reader copies a record and then checks
//! whether `reserved` has passed over it meanwhile. A reader whose record was overwritten goes on
//! at `resume`, a record in the newest half of the log: at the newest record of all, a writer that
//! never pauses would overtake the reader again and again. The ends trust nothing that the other
//! process could have written: a reader cannot write the file, and the writer never reads it.

use core::sync::atomic::{Ordering, fence};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::fstat;
use rustix::io::Errno;

use crate::limits::{LOG_FRAME_BYTES_MAX, LOG_REASON_BYTES, LOG_REASONS_MAX, LOG_RECORD_WORDS_MAX};
use crate::stat_words::StatWords;

const MAGIC: u64 = 0x6d73_6672_616d_6533;
const RESERVED: usize = 1;
const PUBLISHED: usize = 2;
const FRAMES: usize = 3;
const RESUME: usize = 4;
const REASONS: usize = 8;
const RECORDS: usize = REASONS + LOG_REASONS_MAX * LOG_REASON_BYTES / 8;
/// Words of a record before the frame's bytes.
const HEAD_WORDS: usize = 4;
/// Index in a record of the word with its lengths, drop reason and direction.
const LENGTHS: usize = 3;
const WIRE_SHIFT: u32 = 16;
const REASON_SHIFT: u32 = 48;
const OUTBOUND: u64 = 1 << 63;
/// Attempts of one call to go on elsewhere because the record was overwritten.
const RESUMES_MAX: usize = 8;

const _: () = assert!(LOG_REASONS_MAX < 128 && LOG_FRAME_BYTES_MAX <= 0xffff);

/// Words that a frame takes in the log.
const fn words_of(bytes: usize) -> usize {
    HEAD_WORDS + bytes.div_ceil(8)
}

/// The writer's end.
pub struct FrameLog {
    words: StatWords,
    /// Number of words for records, a power of two, minus one.
    mask: u64,
    position: u64,
    /// Position up to which readers may read.
    published: u64,
    /// Position where a reader goes on whose record was overwritten: the beginning of a batch.
    resume: u64,
    frames: u64,
    snap: usize,
}

/// Handle on a record that is not published yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    position: u64,
    lengths: u64,
}

impl FrameLog {
    /// A log of `record_words` words, rounded up to a power of two, that keeps `snap` bytes of each
    /// frame. `reasons` are the names for [`drop_record`](Self::drop_record), numbered from 1.
    ///
    /// # Errors
    /// The kernel's error. `INVAL`: a frame would not fit.
    pub fn create(record_words: usize, snap: usize, reasons: &[&str]) -> Result<Self, Errno> {
        let snap = snap.clamp(1, LOG_FRAME_BYTES_MAX);
        let record_words = record_words.max(1).next_power_of_two();
        if record_words < 4 * words_of(snap) || record_words > LOG_RECORD_WORDS_MAX {
            return Err(Errno::INVAL);
        }
        let words = StatWords::create(RECORDS + record_words)?;
        for (at, reason) in reasons.iter().take(LOG_REASONS_MAX).enumerate() {
            let mut bytes = [0; LOG_REASON_BYTES];
            let length = reason.len().min(LOG_REASON_BYTES);
            bytes[..length].copy_from_slice(&reason.as_bytes()[..length]);
            for (word, chunk) in bytes.chunks_exact(8).enumerate() {
                let index = REASONS + at * LOG_REASON_BYTES / 8 + word;
                words.store(index, word_of(chunk));
            }
        }
        words.store(0, MAGIC);
        Ok(Self {
            words,
            mask: record_words as u64 - 1,
            position: 0,
            published: 0,
            resume: 0,
            frames: 0,
            snap,
        })
    }

    /// Bytes that are kept of each frame.
    #[inline]
    pub fn snap(&self) -> usize {
        self.snap
    }

    /// Keeps `snap` bytes of each frame from now on, or as many as the log has room for.
    pub fn set_snap(&mut self, snap: usize) {
        let room = (self.mask as usize + 1) / 4 - HEAD_WORDS;
        self.snap = snap.clamp(1, LOG_FRAME_BYTES_MAX.min(room * 8));
    }

    /// The file, to pass to a reader.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.words.file()
    }

    /// Writes a frame of `wire_bytes` bytes, of which `bytes` are the first. Readers see it after
    /// the next [`publish`](Self::publish).
    pub fn write(
        &mut self,
        at_ns: u64,
        is_outbound: bool,
        bytes: &[u8],
        wire_bytes: usize,
    ) -> Record {
        let bytes = &bytes[..bytes.len().min(self.snap)];
        let words = words_of(bytes.len()) as u64;
        let end = self.position + words;
        // A batch must not overwrite its own beginning.
        if end - self.published > self.half() {
            self.publish();
        }
        self.words.store(RESERVED, end);
        fence(Ordering::Release);
        let wire_bytes = wire_bytes.min(u32::MAX as usize) as u64;
        let mut lengths = bytes.len() as u64 | wire_bytes << WIRE_SHIFT;
        if is_outbound {
            lengths |= OUTBOUND;
        }
        let head = [words, at_ns, self.frames, lengths];
        for (at, word) in head.into_iter().enumerate() {
            self.store(self.position, at, word);
        }
        self.store_bytes(self.position + HEAD_WORDS as u64, bytes);
        let record = Record {
            position: self.position,
            lengths,
        };
        self.position = end;
        self.frames += 1;
        record
    }

    /// Notes that the frame was dropped, for the reason with this number. Does nothing once the
    /// record is published.
    pub fn drop_record(&mut self, record: Record, reason: usize) {
        if record.position >= self.published && reason <= LOG_REASONS_MAX {
            let lengths = record.lengths | (reason as u64) << REASON_SHIFT;
            self.store(record.position, LENGTHS, lengths);
        }
    }

    /// Publishes the records written so far.
    pub fn publish(&mut self) {
        if self.published == self.position {
            return;
        }
        if self.position - self.resume > self.half() {
            self.resume = self.published;
            self.words.store(RESUME, self.resume);
        }
        fence(Ordering::Release);
        self.published = self.position;
        self.words.store(PUBLISHED, self.published);
        self.words.store(FRAMES, self.frames);
    }

    /// Half of the words for records.
    #[inline]
    fn half(&self) -> u64 {
        self.mask.div_ceil(2)
    }

    /// Stores bytes from a position on, in one piece or two around the end of the records.
    #[inline]
    fn store_bytes(&self, position: u64, bytes: &[u8]) {
        let index = (position & self.mask) as usize;
        let room = (self.mask as usize + 1 - index) * 8;
        let (first, rest) = bytes.split_at(bytes.len().min(room));
        self.words.store_bytes(RECORDS + index, first);
        if !rest.is_empty() {
            self.words.store_bytes(RECORDS, rest);
        }
    }

    #[inline]
    fn store(&self, position: u64, at: usize, word: u64) {
        let index = (position + at as u64) & self.mask;
        self.words.store(RECORDS + index as usize, word);
    }
}

/// Up to eight bytes as a word; zeros behind them.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// A reader's end.
pub struct FrameLogReader {
    words: StatWords,
    mask: u64,
    position: u64,
    /// The number of the next frame.
    next: u64,
    bytes: Vec<u8>,
    reasons: Vec<String>,
}

/// The record at a reader's position.
enum Next {
    /// The writer has not published the record yet.
    Absent,
    /// The writer overwrote the record.
    Overwritten,
    /// The record is whole, and its bytes are copied.
    Record {
        at_ns: u64,
        number: u64,
        lengths: u64,
    },
}

/// A frame read from the log.
#[derive(Debug, PartialEq, Eq)]
pub struct LoggedFrame<'a> {
    /// Time at which the frame passed the port, ns since 1970.
    pub at_ns: u64,
    /// True if the frame was sent, false if it was received.
    pub is_outbound: bool,
    /// The frame's length on the wire.
    pub wire_bytes: usize,
    /// The frame's first bytes.
    pub bytes: &'a [u8],
    /// Reason for which the stack dropped the frame, if it did.
    pub reason: Option<&'a str>,
    /// Frames before this one that were overwritten before this reader read them.
    pub missed: u64,
}

impl FrameLogReader {
    /// Maps a log that another process writes. The process may be hostile.
    ///
    /// # Errors
    /// `INVAL` if the file is no log; else the kernel's error.
    pub fn open(file: OwnedFd) -> Result<Self, Errno> {
        let words = StatWords::open(file, RECORDS + LOG_RECORD_WORDS_MAX)?;
        let record_words = words.len().saturating_sub(RECORDS);
        if words.load(0) != MAGIC || !record_words.is_power_of_two() {
            return Err(Errno::INVAL);
        }
        let reasons = (0..LOG_REASONS_MAX).map(|at| reason(&words, at));
        let position = words.load(PUBLISHED);
        fence(Ordering::Acquire);
        Ok(Self {
            reasons: reasons.collect(),
            mask: record_words as u64 - 1,
            position,
            next: words.load(FRAMES),
            words,
            bytes: Vec::new(),
        })
    }

    /// True if `file` is the file of this log.
    pub fn is_of(&self, file: BorrowedFd<'_>) -> bool {
        let identity = |file| fstat(file).map(|found| (found.st_dev, found.st_ino));
        let (ours, other) = (identity(self.words.file()), identity(file));
        ours.is_ok() && ours == other
    }

    /// The next frame. `None` if there is none yet, or if the writer overtakes the reader in every
    /// attempt.
    pub fn next_frame(&mut self) -> Option<LoggedFrame<'_>> {
        for _ in 0..RESUMES_MAX {
            match self.next_record() {
                Next::Absent => return None,
                Next::Overwritten => self.position = self.words.load(RESUME),
                Next::Record {
                    at_ns,
                    number,
                    lengths,
                } => return Some(self.frame(at_ns, number, lengths)),
            }
        }
        None
    }

    /// The frame whose bytes were copied. The gap between frame numbers is the number of frames
    /// lost.
    fn frame(&mut self, at_ns: u64, number: u64, lengths: u64) -> LoggedFrame<'_> {
        let missed = number.saturating_sub(self.next);
        self.next = number.wrapping_add(1);
        let reason = (lengths >> REASON_SHIFT & 0x7f) as usize;
        let reason = reason.checked_sub(1).and_then(|at| self.reasons.get(at));
        LoggedFrame {
            at_ns,
            is_outbound: lengths & OUTBOUND != 0,
            wire_bytes: (lengths >> WIRE_SHIFT) as u32 as usize,
            bytes: &self.bytes,
            reason: reason.map(String::as_str).filter(|name| !name.is_empty()),
            missed,
        }
    }

    /// Copies the bytes of the next record.
    fn next_record(&mut self) -> Next {
        let published = self.words.load(PUBLISHED);
        fence(Ordering::Acquire);
        if self.position == published {
            return Next::Absent;
        }
        let [words, at_ns, number, lengths] = [0, 1, 2, LENGTHS].map(|at| self.load(at));
        let length = (lengths & 0xffff) as usize;
        self.bytes.clear();
        for at in 0..length.div_ceil(8) {
            let word = self.load(HEAD_WORDS + at);
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.bytes.truncate(length);
        fence(Ordering::Acquire);
        let passed = self.words.load(RESERVED).wrapping_sub(self.position);
        if passed > self.mask + 1 || words != words_of(length) as u64 {
            return Next::Overwritten;
        }
        self.position = self.position.wrapping_add(words);
        Next::Record {
            at_ns,
            number,
            lengths,
        }
    }

    /// Frames that were published and that this reader has not read, including those that are
    /// overwritten already.
    pub fn behind(&self) -> u64 {
        self.words.load(FRAMES).saturating_sub(self.next)
    }

    /// The part of the log, from 0 to 1, that records take which this reader has not read.
    pub fn unread_share(&self) -> f64 {
        let words = self.words.load(PUBLISHED).wrapping_sub(self.position);
        (words as f64 / (self.mask + 1) as f64).min(1.0)
    }

    fn load(&self, at: usize) -> u64 {
        let index = self.position.wrapping_add(at as u64) & self.mask;
        self.words.load(RECORDS + index as usize)
    }
}

/// The name of a drop reason. Only small letters, digits and `_` pass, since the file may be
/// hostile.
fn reason(words: &StatWords, at: usize) -> String {
    let first = REASONS + at * LOG_REASON_BYTES / 8;
    let bytes = (first..first + LOG_REASON_BYTES / 8).flat_map(|at| words.load(at).to_le_bytes());
    let is_plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    bytes.take_while(is_plain).map(char::from).collect()
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests;
