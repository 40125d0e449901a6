//! Batches of frames in shared memory, which stays mapped while the frames can be reached.
//!
//! [`RxBatch`] also owns the side buffer in which chained frames are assembled, [`TxBatch`] the
//! staging buffer for a peer with smaller buffers than ours. `rx` and `tx` use them.

use ring::prefetch::LINE_BYTES;
use ring::raw::RawSliceMut;

use super::limits::{BATCH_BYTES_MAX, BATCH_FRAMES_MAX, SIDE_BYTES};
use super::region_unsafe::Window;
use crate::{RxFrame, TxFrame};

/// Cache lines that headers and a short message take.
const SHORT_FRAME_LINES: usize = 3;

/// A batch of received frames, in the regions of a window or in the side buffer.
#[derive(Debug)]
pub struct RxBatch {
    window: Window,
    frames: Vec<RxFrame>,
    bytes: u64,
    /// Buffer for assembled chains, made when the first one arrives. Frames point into it, so only
    /// bytes behind `side_used` may change.
    side: Vec<u8>,
    side_used: usize,
}

impl RxBatch {
    /// Makes an empty batch over `window`.
    pub fn new(window: Window) -> Self {
        Self {
            window,
            frames: Vec::with_capacity(BATCH_FRAMES_MAX),
            bytes: 0,
            side: Vec::new(),
            side_used: 0,
        }
    }

    /// The frames of the batch.
    #[inline]
    pub fn frames(&self) -> &[RxFrame] {
        &self.frames
    }

    /// Sum of the frames' bytes.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if another frame may be added.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.frames.len() < BATCH_FRAMES_MAX && self.bytes < BATCH_BYTES_MAX
    }

    /// Removes all frames.
    #[inline]
    pub fn clear(&mut self) {
        self.frames.clear();
        self.bytes = 0;
        self.side_used = 0;
    }

    /// Adds the frame at `offset` of `region`. False: it exceeds the region.
    #[inline]
    pub fn push(&mut self, region: u16, offset: u32, length: u32) -> bool {
        let Some(at) = self.window.place(region, offset, length) else {
            return false;
        };
        prefetch(at.as_ptr());
        // SAFETY: `place` checked the range; the window, a field of this batch, keeps it mapped,
        // and frames are reachable only through a borrow of this batch.
        self.frames
            .push(unsafe { RxFrame::new(at.as_ptr(), length) });
        self.bytes += u64::from(length);
        true
    }

    /// Adds a frame assembled from `parts` (region, offset, length). False: a part exceeds its
    /// region. A batch with room has enough for the longest frame.
    pub fn push_chain(&mut self, parts: &[(u16, u32, u32)]) -> bool {
        if self.side.is_empty() {
            self.side.resize(SIDE_BYTES, 0);
        }
        let side = self.side.as_mut_ptr();
        let start = self.side_used;
        let mut end = start;
        for &(region, offset, length) in parts {
            let n = length as usize;
            let Some(from) = self.window.place(region, offset, length) else {
                return false;
            };
            if n > SIDE_BYTES - end {
                return false;
            }
            // SAFETY: `place` checked the source; `end + n <= side.len()`. One is shared memory and
            // the other private, so they are distinct.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), side.add(end), n) };
            end += n;
        }
        let length = (end - start) as u32;
        // SAFETY: `start..end` lies in the side buffer, which has its final size, and in which
        // nothing before `side_used` is written until `clear` drops this frame.
        self.frames
            .push(unsafe { RxFrame::new(side.add(start), length) });
        self.bytes += u64::from(length);
        self.side_used = end;
        true
    }
}

/// A batch of transmit slots, in the regions of a window or in the staging buffer.
#[derive(Debug)]
pub struct TxBatch {
    window: Window,
    frames: Vec<TxFrame>,
    staging: Vec<u8>,
}

impl TxBatch {
    /// Makes an empty batch over `window` for `frames_max` frames.
    pub fn new(window: Window, frames_max: usize) -> Self {
        Self {
            window,
            frames: Vec::with_capacity(frames_max),
            staging: Vec::new(),
        }
    }

    /// The slots of the batch.
    #[inline]
    pub fn frames(&self) -> &[TxFrame] {
        &self.frames
    }

    /// Removes all slots.
    #[inline]
    pub fn clear(&mut self) {
        self.frames.clear();
    }

    /// Adds a slot of `capacity` bytes at `offset` of `region`. False: it exceeds the region.
    #[inline]
    pub fn push(&mut self, region: u16, offset: u32, capacity: u32) -> bool {
        let Some(at) = self.window.place(region, offset, capacity) else {
            return false;
        };
        // SAFETY: `place` checked the range; the window keeps it mapped, and slots are reachable
        // only through a borrow of this batch. No Rust reference into a region is ever made.
        self.frames
            .push(unsafe { TxFrame::new(at.as_ptr(), capacity) });
        true
    }

    /// Prefetches for writing the cache lines at `offset` of `region` that a short frame will use.
    #[inline]
    pub fn ask_for(&self, region: u16, offset: u32) {
        if let Some(at) = self.window.place(region, offset, 1) {
            for line in 0..SHORT_FRAME_LINES {
                prefetch_to_write(at.as_ptr().wrapping_add(line * LINE_BYTES));
            }
        }
    }

    /// Replaces the slots by `n` slots of `capacity` bytes in the staging buffer.
    pub fn stage(&mut self, n: usize, capacity: usize) {
        self.clear();
        if self.staging.len() < n * capacity {
            self.staging.resize(n * capacity, 0);
        }
        let base = self.staging.as_mut_ptr();
        for i in 0..n {
            // SAFETY: `(i + 1) * capacity <= staging.len()`.
            let at = unsafe { base.add(i * capacity) };
            // SAFETY: as above; the buffer is private, resized only after `clear`, and otherwise
            // reached only through this pointer.
            self.frames
                .push(unsafe { TxFrame::new(at, capacity as u32) });
        }
    }

    /// Moves the frame in slot `from` to slot `to`. False: nothing was done, because a slot is
    /// missing or too small.
    pub fn move_slot(&self, from: usize, to: usize) -> bool {
        let (Some(source), Some(target)) = (self.frames.get(from), self.frames.get(to)) else {
            return false;
        };
        let length = source.len();
        let (Some(from), Some(mut to)) = (source.slice_mut(0, length), target.slice_mut(0, length))
        else {
            return false;
        };
        to.copy_from(from.as_raw());
        target.set_len(length);
        true
    }

    /// Copies `length` bytes at `at` of staged slot `index` to `offset` of `region`. False: the
    /// slot or the region is too short.
    pub fn unstage(&self, index: usize, at: usize, region: u16, offset: u32, length: u32) -> bool {
        let n = length as usize;
        let Some(from) = self
            .frames
            .get(index)
            .and_then(|frame| frame.slice_mut(at, n))
        else {
            return false;
        };
        let Some(target) = self.window.place(region, offset, length) else {
            return false;
        };
        // SAFETY: `place` checked the range, which the window keeps mapped; no Rust reference into
        // a region is ever made.
        let mut to = unsafe { RawSliceMut::new(target.as_ptr(), n) };
        to.copy_from(from.as_raw());
        true
    }
}

/// Prefetches the cache line at `at` for reading.
#[inline]
fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch faults on no address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetches the cache line at `at` for writing, so that the peer's core gives it up in time.
#[inline]
fn prefetch_to_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch faults on no address, and a processor that does not know this one ignores
    // it. `_mm_prefetch` would make it a plain prefetch here, since the baseline target has no
    // `prfchw`; that fetches the line without the right to write it.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
