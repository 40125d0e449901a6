//! Buffer sizes that follow the connection, as in Linux. The receive buffer follows the amount that
//! the application reads in a round trip (dynamic right-sizing); the send buffer follows the
//! congestion window. Neither changes where the user chose a size or memory is low.

use wire::SeqNumber;

use crate::buffers::Buffers;
use crate::config::Config;
use crate::pack::{Packing, Usual};
use crate::send::Sender;
use crate::variables::Snd;

/// State that buffer sizing keeps for a connection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Autotune {
    /// The send buffer in bytes of memory.
    pub send_buffer: u32,
    /// The send buffer's size, expressed in payload.
    pub runs: Runs,
    /// SO_RCVBUF was set: the receive buffer does not grow.
    pub recv_locked: bool,
    /// SO_SNDBUF was set: the send buffer does not grow.
    pub send_locked: bool,
    /// TCP_NOTSENT_LOWAT in bytes; 0 = the configured default.
    pub notsent_lowat: u32,
    /// Round trip as the receiver sees it, in eighths of a microsecond; 0 = not measured.
    pub rtt_us8: u32,
    /// Without timestamps: one round trip has passed since `rtt_at_us` when the byte at this number
    /// arrives.
    pub rtt_seq: SeqNumber,
    pub rtt_at_us: u32,
    /// The last echoed timestamp that was measured.
    pub last_echo: u32,
    /// The segment at hand ends the handshake: the next one is measured, even if it echoes the
    /// same.
    pub ends_handshake: bool,
    /// Bytes that the application read in the best round trip so far.
    pub space: u32,
    /// Sequence number and time at which this round trip of the reader began.
    pub space_seq: SeqNumber,
    pub space_at_us: u32,
}

/// The send buffer's size in payload. Stored because every write and every ACK asks for it and
/// computing it takes divisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Runs {
    /// The size to which queued segments are filled up: a large run, no more than half the largest
    /// window.
    pub bytes: u16,
    /// Number of such runs in the buffer, including a partial one; 0: more than this field counts.
    count: u8,
    /// Correction for rounding: two thirds of the size, minus two thirds of the free space.
    wake_more: i8,
    /// Payload that the buffer holds in such runs, in bytes.
    pub size: u32,
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

impl Autotune {
    /// `mss`: what a segment takes at first.
    pub fn new(buffers: &Buffers, mss: u16) -> Self {
        Autotune {
            send_buffer: buffers.send_bytes,
            runs: Runs::new(mss, 0, buffers.send_bytes),
            recv_locked: buffers.recv_locked,
            send_locked: buffers.send_locked,
            notsent_lowat: 0,
            rtt_us8: 0,
            rtt_seq: SeqNumber(0),
            rtt_at_us: 0,
            last_echo: 0,
            ends_handshake: false,
            space: 0,
            space_seq: SeqNumber(0),
            space_at_us: 0,
        }
    }
}

impl Autotune {
    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let Autotune {
            send_buffer,
            // Follows from others.
            runs: _,
            recv_locked,
            send_locked,
            notsent_lowat,
            rtt_us8,
            rtt_seq,
            rtt_at_us,
            last_echo,
            ends_handshake,
            space,
            space_seq,
            space_at_us,
        } = self;
        p.u32(send_buffer, 87_040);
        p.bool(recv_locked);
        p.bool(send_locked);
        p.u32(notsent_lowat, 0);
        p.u32(rtt_us8, 0);
        p.seq(rtt_seq, SeqNumber(0));
        p.u32(rtt_at_us, 0);
        p.u32(last_echo, 0);
        p.bool(ends_handshake);
        p.u32(space, 14_480);
        p.seq(space_seq, usual.rcv_nxt);
        p.u32(space_at_us, usual.us());
    }
}

/// Microseconds that wrap after 71 minutes. The value is never 0, because 0 stands for "not begun".
pub(crate) fn micros(now_ns: u64) -> u32 {
    ((now_ns / 1000) as u32).max(1)
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

impl Autotune {
    /// Bytes read in the best round trip so far (Linux's `tcpi_rcv_space`).
    pub(crate) fn tune_space(&self) -> u32 {
        self.space
    }

    /// Lowers the amount read in a round trip to `clamp`, after the window's limit fell below it.
    pub(crate) fn limit_space(&mut self, clamp: u32) {
        self.space = self.space.min(clamp);
    }

    /// Unsent bytes below which the socket is writable.
    pub(crate) fn notsent_lowat(&self, config: &Config) -> u32 {
        match self.notsent_lowat {
            0 => config.notsent_lowat,
            bytes => bytes,
        }
    }

    pub(crate) fn runs(&self, snd: &Snd, tx: &Sender) -> Runs {
        Runs::new(snd.mss, tx.max_wnd, self.send_buffer)
    }

    /// Segment size, largest window or send buffer changed.
    pub(crate) fn refresh_runs(&mut self, snd: &Snd, tx: &Sender) {
        self.runs = self.runs(snd, tx);
    }
}

#[cfg(test)]
mod tests;
