//! The send buffer: how much the application may write. Its size follows the congestion window, as
//! in Linux, unless the user chose a size or memory is low.

use crate::buffers::Buffers;
use crate::config::Config;
use crate::pack::Packing;
use crate::variables::Snd;

/// A connection's send buffer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SendBuffer {
    /// The size in bytes of memory.
    memory: u32,
    /// The size, expressed in payload.
    runs: Runs,
    /// TCP_NOTSENT_LOWAT in bytes; 0 = the configured default.
    notsent_lowat: u32,
    /// SO_SNDBUF was set: the buffer does not grow.
    is_locked: bool,
}

impl SendBuffer {
    /// `mss`: the size of a segment at first.
    pub fn new(buffers: &Buffers, mss: u16) -> Self {
        SendBuffer {
            memory: buffers.send_bytes,
            runs: Runs::new(mss, 0, buffers.send_bytes),
            notsent_lowat: 0,
            is_locked: buffers.send_locked,
        }
    }

    pub fn pack(&mut self, p: &mut impl Packing, snd: &Snd) {
        let SendBuffer {
            memory,
            // Follows from others.
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

    /// The size, expressed in payload.
    #[inline(always)]
    pub(crate) fn runs(&self) -> Runs {
        self.runs
    }

    /// The size in payload, computed anew.
    pub(crate) fn compute_runs(&self, snd: &Snd) -> Runs {
        Runs::new(snd.mss(), snd.max_wnd(), self.memory)
    }

    /// Segment size, largest window or send buffer changed.
    pub(crate) fn refresh_runs(&mut self, snd: &Snd) {
        self.runs = self.compute_runs(snd);
    }

    /// The size in bytes of memory.
    #[inline(always)]
    pub(crate) fn memory(&self) -> u32 {
        self.memory
    }

    /// SO_SNDBUF was set: the buffer does not grow.
    #[inline(always)]
    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// The buffer grows to `bytes` of memory.
    pub(crate) fn grow(&mut self, bytes: u32) {
        self.memory = self.memory.max(bytes);
    }

    /// The application chose the size.
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

/// The send buffer's size in payload. Stored because every write and every ACK asks for it and
/// computing it takes divisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Runs {
    /// The size to which queued segments are filled up: a large run, no more than half the largest
    /// window.
    bytes: u16,
    /// Number of such runs in the buffer, including a partial one; 0: more than this field counts.
    count: u8,
    /// Correction for rounding: two thirds of the size, minus two thirds of the free space.
    wake_more: i8,
    /// Payload that the buffer holds in such runs, in bytes.
    size: u32,
}

impl Runs {
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
        Runs {
            bytes,
            count: u8::try_from(size.div_ceil(u32::from(bytes))).unwrap_or(0),
            // Both sides divide and round down, so the difference is at most 2 either way.
            wake_more: wake.wrapping_sub(size - size / 3) as i8,
            size,
        }
    }

    /// The size to which queued segments are filled up.
    #[inline(always)]
    pub(crate) fn bytes(self) -> u16 {
        self.bytes
    }

    /// Payload that the buffer holds in such runs, in bytes.
    #[inline(always)]
    pub(crate) fn size(self) -> u32 {
        self.size
    }

    /// Two thirds of the buffer's payload.
    #[inline]
    pub(crate) fn wake(self) -> u32 {
        (self.size - self.size / 3).wrapping_add_signed(i32::from(self.wake_more))
    }

    /// Free space behind `sent` bytes, in whole runs. `sent` is less than the buffer holds.
    #[inline]
    pub(crate) fn free_behind(self, sent: u32) -> u32 {
        let bytes = u32::from(self.bytes);
        let all = u32::from(self.count) * bytes;
        // The free runs are those of the whole buffer while the sent bytes and the last run fit
        // together.
        match self.count > 0 && sent + (all - self.size) < bytes {
            true => all,
            false => (self.size - sent).next_multiple_of(bytes.max(1)),
        }
    }
}

/// Room for the application in the send buffer, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendRoom {
    /// Upper limit of buffered bytes, counted from SND.UNA.
    pub limit: u32,
    /// A waiting writer is woken when there are so many at most,
    pub wake: u32,
    /// and so many unsent ones at most: below half of TCP_NOTSENT_LOWAT; `u32::MAX`: any number.
    pub unsent_wake: u32,
}

/// The largest run of segments that is queued as one.
pub(crate) const RUN_BYTES_MAX: u32 = 65_215;

/// Bytes of memory that a queued run of segments takes beside its payload.
pub(crate) const RUN_OVERHEAD: u32 = 1280;
/// Up to this window a peer is taken as small by nature.
const SMALL_WINDOW_MAX: u32 = 536;

/// Payload in runs of `run` bytes that `memory` bytes hold.
#[inline]
pub(crate) fn payload_of(memory: u32, run: u16) -> u32 {
    let run = u64::from(run);
    (u64::from(memory) * run / (run + u64::from(RUN_OVERHEAD))) as u32
}

#[cfg(test)]
mod tests;
