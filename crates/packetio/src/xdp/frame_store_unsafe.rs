//! Store for frames that were taken out of the RX ring before the stack asked for them, in order of
//! arrival.
//!
//! A [`FrameStore`] owns a ring of bytes, reserved at open and touched only where frames are
//! stored. Each frame takes a word for its length and its own bytes. The small frames of a crowd
//! thus take a tenth of the memory of their UMEM chunks. `port.rs` uses it.
//!
//! ```text
//! 0 ....... head ............. lent_to ............. tail ....... bytes
//!           [len|frame][len|frame] ... lent, then held
//! ```

use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::frame_unsafe::RxFrame;
use crate::limits::XDP_STORE_BYTES_KEPT;

/// Length word that marks the end: the next record is at the ring's start.
const GO_ON_AT_START: u64 = u64::MAX;
const WORD: usize = size_of::<u64>();

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct FrameStore {
    base: NonNull<u8>,
    /// Size of the ring, bytes: a multiple of the page and thus of the word.
    bytes: usize,
    /// Positions that do not wrap: `head` is the first record, `lent_to` the first one not lent,
    /// `tail` the end.
    head: u64,
    lent_to: u64,
    tail: u64,
    /// Number of stored frames that are not lent.
    held: usize,
    /// End of the memory touched since memory was last returned, at most `bytes`.
    touched: usize,
    lent: Vec<RxFrame>,
}

// SAFETY: the mapping is this value's alone; it can be reached from any thread that owns the value.
unsafe impl Send for FrameStore {}

impl FrameStore {
    /// Makes a store of `bytes`, a multiple of the page, that lends at most `batch_max` frames at
    /// once.
    ///
    /// # Errors
    /// `NOMEM`; `INVAL` for an impossible size.
    pub(super) fn new(bytes: usize, batch_max: usize) -> Result<Self, Errno> {
        if bytes == 0 || !bytes.is_multiple_of(4096) {
            return Err(Errno::INVAL);
        }
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        Ok(Self {
            base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?,
            bytes,
            head: 0,
            lent_to: 0,
            tail: 0,
            held: 0,
            touched: 0,
            lent: Vec::with_capacity(batch_max),
        })
    }

    /// True if all stored frames are lent.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Number of stored frames that are not lent.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.held
    }

    /// Appends a copy of `frame`; false: there is no room.
    pub(super) fn push(&mut self, frame: &RxFrame) -> bool {
        let need = WORD + frame.len().next_multiple_of(WORD);
        let to_end = self.bytes - self.place(self.tail);
        let skip = if need > to_end { to_end } else { 0 };
        let used = (self.tail - self.head) as usize;
        if used + skip + need > self.bytes {
            return false;
        }
        if skip > 0 {
            self.write_word(self.tail, GO_ON_AT_START);
            self.tail += skip as u64;
        }
        self.write_word(self.tail, frame.len() as u64);
        let at = self.place(self.tail) + WORD;
        // SAFETY: `need` bytes from the record's start lie in the mapping and in no record, so no
        // frame shows them; they are initialised, for an anonymous mapping is zeroed.
        let space =
            unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(at), frame.len()) };
        frame.copy_to(0, space);
        self.tail += need as u64;
        self.held += 1;
        self.touched = self.touched.max(at + frame.len());
        true
    }

    /// Lends the first frames, up to a batch, until `release`.
    pub(super) fn lend(&mut self) -> &[RxFrame] {
        self.release();
        while self.lent_to < self.tail && self.lent.len() < self.lent.capacity() {
            let word = self.read_word(self.lent_to);
            if word == GO_ON_AT_START {
                self.lent_to += (self.bytes - self.place(self.lent_to)) as u64;
                continue;
            }
            let len = word as usize;
            let at = self.place(self.lent_to) + WORD;
            // SAFETY: the record lies in the mapping, and nobody writes to it before `release`,
            // after which the frame is gone. The mapping lives as long as the port that owns this
            // and lends the frame.
            let frame = unsafe { RxFrame::new(self.base.as_ptr().add(at), len as u32) };
            self.lent.push(frame);
            self.held -= 1;
            self.lent_to += (WORD + len.next_multiple_of(WORD)) as u64;
        }
        &self.lent
    }

    /// Ends the loan and removes the lent frames.
    #[inline]
    pub(super) fn release(&mut self) {
        if self.lent.is_empty() {
            return;
        }
        self.lent.clear();
        self.head = self.lent_to;
        if self.head == self.tail {
            // Starting again at the ring's start reuses memory that is in the cache and touches no
            // further pages.
            (self.head, self.lent_to, self.tail) = (0, 0, 0);
        }
    }

    /// Returns memory to the system that a crowd of frames took, if the store is empty.
    pub(super) fn give_back(&mut self) {
        if self.touched <= XDP_STORE_BYTES_KEPT || self.head != self.tail {
            return;
        }
        let kept = XDP_STORE_BYTES_KEPT.min(self.bytes);
        // SAFETY: whole pages of the mapping, in which no record lies. They read as zeros
        // afterwards.
        let _ = unsafe {
            madvise(
                self.base.as_ptr().add(kept).cast(),
                self.bytes - kept,
                Advice::LinuxDontNeed,
            )
        };
        self.touched = kept;
    }

    /// The offset in the ring of a position.
    #[inline]
    fn place(&self, position: u64) -> usize {
        (position % self.bytes as u64) as usize
    }

    fn write_word(&mut self, position: u64, word: u64) {
        let at = self.place(position);
        // SAFETY: positions are multiples of the word, as the ring's size is, so a whole aligned
        // word lies at `at`; it is in no record that is lent.
        unsafe { self.base.as_ptr().add(at).cast::<u64>().write(word) };
    }

    fn read_word(&self, position: u64) -> u64 {
        // SAFETY: as in `write_word`; the mapping is initialised.
        unsafe {
            self.base
                .as_ptr()
                .add(self.place(position))
                .cast::<u64>()
                .read()
        }
    }
}

impl Drop for FrameStore {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no frame in it can be reached without the port that is
        // going.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests;
