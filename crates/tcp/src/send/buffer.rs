//! The send buffer: the number of bytes that the application may write. Its size follows the
//! congestion window, as in Linux, unless the user chose a size or memory is low.

use crate::buffers::Buffers;
use crate::config::Config;
use crate::pack::Packing;
use crate::variables::Snd;

/// A connection's send buffer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SendBuffer {
    /// The size in bytes of memory.
    memory: u32,
    /// The size in payload bytes.
    runs: RunLayout,
    /// TCP_NOTSENT_LOWAT in bytes; 0 = the configured default.
    notsent_lowat: u32,
    /// SO_SNDBUF was set, so the buffer does not grow by itself.
    is_locked: bool,
}

impl SendBuffer {
    /// A buffer of these sizes; `mss`: the first segment size.
    pub fn new(buffers: &Buffers, mss: u16) -> Self {
        SendBuffer {
            memory: buffers.send_bytes,
            runs: RunLayout::new(mss, 0, buffers.send_bytes),
            notsent_lowat: 0,
            is_locked: buffers.send_locked,
        }
    }

    pub fn pack(&mut self, p: &mut impl Packing, snd: &Snd) {
        let SendBuffer {
            memory,
            // Derived from other variables.
            runs: _,
            notsent_lowat,
            is_locked,
        } = self;
        p.u32(memory, 87_040);
        p.u32(notsent_lowat, 0);
        p.bool(is_locked);
        if p.is_reading() {
            self.refresh_runs(snd);
        }
    }

    /// Unsent bytes below which the socket is writable.
    pub(crate) fn notsent_lowat(&self, config: &Config) -> u32 {
        match self.notsent_lowat {
            0 => config.notsent_lowat,
            bytes => bytes,
        }
    }

    /// The size in payload bytes.
    #[inline(always)]
    pub(crate) fn runs(&self) -> RunLayout {
        self.runs
    }

    /// The size in payload, computed anew.
    pub(crate) fn compute_runs(&self, snd: &Snd) -> RunLayout {
        RunLayout::new(snd.mss(), snd.max_wnd(), self.memory)
    }

    /// Computes the runs anew after segment size, largest window or send buffer changed.
    pub(crate) fn refresh_runs(&mut self, snd: &Snd) {
        self.runs = self.compute_runs(snd);
    }

    /// The size in bytes of memory.
    #[inline(always)]
    pub(crate) fn memory(&self) -> u32 {
        self.memory
    }

    /// True if SO_SNDBUF was set, so that the buffer does not grow by itself.
    #[inline(always)]
    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Grows the buffer to `bytes` of memory.
    pub(crate) fn grow(&mut self, bytes: u32) {
        self.memory = self.memory.max(bytes);
    }

    /// Sets the size that the application chose.
    pub(crate) fn fix(&mut self, bytes: u32, snd: &Snd) {
        self.memory = bytes;
        self.is_locked = true;
        self.refresh_runs(snd);
    }

    /// TCP_NOTSENT_LOWAT in bytes; 0 = the configured default.
    pub(crate) fn set_notsent_lowat(&mut self, bytes: u32) {
        self.notsent_lowat = bytes;
    }
}

/// The send buffer's size in payload bytes, stored because every write and every ACK needs it and
/// its computation takes divisions. Linux queues segments in runs; a run is what it puts into one
/// packet buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunLayout {
    /// Bytes to which a run is filled up: a large run, but at most half of the largest window.
    bytes: u16,
    /// Number of such runs in the buffer, including a partial one; 0: more than this field counts.
    count: u8,
    /// Payload that two thirds of the memory hold, minus two thirds of `size`. The difference, -2
    /// to 2, comes from rounding.
    wake_more: i8,
    /// Payload bytes that the buffer holds in such runs.
    size: u32,
}

impl RunLayout {
    pub(crate) fn new(mss: u16, window_max: u32, memory: u32) -> Self {
        let mss = u32::from(mss.max(1));
        let half = if window_max > SMALL_WINDOW_MAX {
            window_max / 2
        } else {
            window_max
        };
        let most = RUN_BYTES_MAX.min(half.max(mss));
        // Both values fit a u16.
        let bytes = (most - most % mss).max(mss) as u16;
        let size = payload_of(memory, bytes);
        let wake = payload_of(memory - memory / 3, bytes);
        RunLayout {
            bytes,
            count: u8::try_from(size.div_ceil(u32::from(bytes))).unwrap_or(0),
            // Both values are divided and rounded down, so they differ by at most 2.
            wake_more: wake.wrapping_sub(size - size / 3) as i8,
            size,
        }
    }

    /// Bytes to which a run is filled up.
    #[inline(always)]
    pub(crate) fn bytes(self) -> u16 {
        self.bytes
    }

    /// Payload bytes that the buffer holds in such runs.
    #[inline(always)]
    pub(crate) fn size(self) -> u32 {
        self.size
    }

    /// Payload that two thirds of the buffer's memory hold.
    #[inline]
    pub(crate) fn wake(self) -> u32 {
        (self.size - self.size / 3).wrapping_add_signed(i32::from(self.wake_more))
    }

    /// Free space behind `sent` bytes, in whole runs. `sent` is less than the buffer holds.
    #[inline]
    pub(crate) fn free_behind(self, sent: u32) -> u32 {
        let bytes = u32::from(self.bytes);
        let all = u32::from(self.count) * bytes;
        // All runs of the buffer are free as long as the sent bytes still fit into the unfilled
        // part of the last run.
        match self.count > 0 && sent + (all - self.size) < bytes {
            true => all,
            false => (self.size - sent).next_multiple_of(bytes.max(1)),
        }
    }
}

/// Room for the application in the send buffer, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendRoom {
    /// Largest number of buffered bytes, from SND.UNA on.
    pub limit: u32,
    /// A waiting writer is woken when at most this many bytes are buffered,
    pub wake: u32,
    /// and at most this many of them unsent: below half of TCP_NOTSENT_LOWAT; `u32::MAX`: any
    /// number.
    pub unsent_wake: u32,
}

/// Largest run of segments, bytes.
pub(crate) const RUN_BYTES_MAX: u32 = 65_215;

/// Bytes of memory of a queued run beside its payload.
pub(crate) const RUN_OVERHEAD: u32 = 1280;
/// Largest window of a peer that is small by nature.
const SMALL_WINDOW_MAX: u32 = 536;

/// Payload that `memory` bytes hold in runs of `run` bytes.
#[inline]
pub(crate) fn payload_of(memory: u32, run: u16) -> u32 {
    let run = u64::from(run);
    (u64::from(memory) * run / (run + u64::from(RUN_OVERHEAD))) as u32
}

#[cfg(test)]
mod tests;
