//! The receive window: what to advertise (RFC 9293 3.8.6.2.2, RFC 7323 2), and the peer's window as it
//! is learnt.
//!
//! The right edge never goes back, but for data in order that found no memory, and where the settings let it (`shrink_window`, as Linux's
//! `tcp_shrink_window`); what was promised is taken all the same (RFC 7323 2.4). It moves by
//! whole segments of the peer or, with scaling, by whole units (receiver's silly-window avoidance). What
//! may be advertised is what the buffer's free memory is worth, bounded by `rx.ssthresh`, which grows as
//! well-filled segments arrive.

use crate::buffers::{RATIO_ONE, WINDOW_CLAMP_MIN, cost_of, window_of};
use crate::config::Config;
use crate::limits::timestamp_bytes;
use crate::marks::Marks;
use crate::receive::Receiver;

/// IP and TCP header without options.
pub(crate) const HEADER_BYTES: u32 = 40;

/// `bytes`, up to a whole number of units, which are a power of two.
#[inline]
pub(crate) fn up_to(bytes: u32, unit: u32) -> u32 {
    (bytes + (unit - 1)) & !(unit - 1)
}

impl Receiver {
    /// The window field of a SYN or SYN-ACK: never scaled (RFC 7323 2.2).
    pub(crate) fn syn_window(&self) -> u16 {
        self.wnd.min(u32::from(u16::MAX)) as u16
    }

    /// Payload that the whole buffer can hold.
    pub(crate) fn full_space(&self) -> u32 {
        window_of(i64::from(self.buffer), self.ratio) as u32
    }

    /// Payload that what is free of it can hold; negative when more is held than the buffer is meant to.
    pub(crate) fn free_space(&self) -> i64 {
        let free = i64::from(self.buffer) - i64::from(self.charged);
        window_of(free, self.ratio)
    }

    /// The same while the reader keeps up: half of the buffer is free, and the field is scaled.
    #[inline]
    pub(crate) fn roomy_window(&self, rcv_shift: u8, config: &Config) -> Option<u32> {
        let rx = self;
        let ratio = u64::from(rx.ratio);
        let full = (u64::from(rx.buffer) * ratio / RATIO_ONE).min(u64::from(rx.clamp));
        let free = u64::from(rx.buffer.checked_sub(rx.charged)?) * ratio / RATIO_ONE;
        let is_roomy = free >= full / 2
            && full > 0
            && rx.peer_segment > 0
            && rcv_shift > 0
            && !config.shrink_window;
        let window = free.min(u64::from(rx.ssthresh)) as u32;
        is_roomy.then_some(up_to(window, 1 << rcv_shift))
    }

    /// Memory is scarce: a few segments, no more.
    pub(crate) fn lower_ssthresh(&mut self) {
        self.ssthresh = self.ssthresh.min(4 * u32::from(self.advmss));
    }

    /// `len` bytes of payload are held from now on.
    #[inline]
    pub(crate) fn charge(&mut self, marks: Marks, len: u32, in_order: bool) {
        let options = timestamp_bytes(marks.has(Marks::TIMESTAMPS));
        // What follows in order fills up the last buffer first.
        if in_order && self.unread > 0 && len <= u32::from(self.room) {
            self.room -= len as u16;
            return;
        }
        let cost = cost_of(len, HEADER_BYTES + u32::from(options));
        self.charged = self.charged.saturating_add(cost.memory);
        if in_order {
            self.room = cost.room.min(u32::from(u16::MAX)) as u16;
        }
    }

    /// Of `before` bytes held, `after` are left.
    pub(crate) fn discharge(&mut self, before: u32, after: u32) {
        if after == 0 || before == 0 {
            self.charged = 0;
            self.room = 0;
        } else {
            let share = u64::from(self.charged) * u64::from(after) / u64::from(before);
            self.charged = share as u32;
        }
    }

    pub(crate) fn clamp_window(&mut self, bytes: u32) {
        // As in Linux what the field cannot say is cut off when it is filled in.
        let clamp = bytes.max(WINDOW_CLAMP_MIN);
        if clamp < self.clamp {
            self.ssthresh = self.ssthresh.min(clamp);
        } else {
            self.ssthresh = self.ssthresh.max(self.wnd.min(clamp));
        }
        self.clamp = clamp;
    }

    /// Badly filled: it may grow as long as a buffer of the largest size would still hold as much.
    pub(crate) fn increment_for(&self, config: &Config, memory: u32, len: u32) -> u32 {
        let mut cost = window_of(i64::from(memory), self.ratio) / 2;
        let most = i64::from(config.recv_buffer.bytes_max);
        let mut window = window_of(most, self.ratio) / 2;
        while i64::from(self.ssthresh) <= window {
            if cost <= i64::from(len) {
                return 2 * u32::from(self.peer_segment);
            }
            cost /= 2;
            window /= 2;
        }
        0
    }
}
