//! The receive window: the value to advertise (RFC 9293 3.8.6.2.2, RFC 7323 2).
//!
//! The right edge moves back only for data in order that found no memory, and where the settings
//! allow it (`shrink_window`, Linux's `tcp_shrink_window`). Data within a promised window is always
//! taken (RFC 7323 2.4). The edge moves by whole segments of the peer or, with scaling, by whole
//! units (receiver's silly-window avoidance). The advertised window is what the buffer's free
//! memory allows, bounded by `rx.ssthresh`, which grows as well-filled segments arrive.

use crate::buffers::{Memory, RATIO_ONE, WINDOW_CLAMP_MIN, cost_of, ratio_of, window_of};
use crate::config::Config;
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::limits::timestamp_bytes;
use crate::receive::Receiver;
use crate::variables::Rcv;

/// Bytes of IP and TCP header without options.
pub(crate) const HEADER_BYTES: u32 = 40;

/// `bytes`, rounded up to a multiple of `unit`, which is a power of two.
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

    /// Payload that fits the buffer's free memory; negative when more is stored than the buffer
    /// should hold.
    pub(crate) fn free_space(&self) -> i64 {
        let free = i64::from(self.buffer) - i64::from(self.charged);
        window_of(free, self.ratio)
    }

    /// The window while the reader keeps up: half of the buffer is free, and the window is scaled.
    #[inline]
    pub(crate) fn roomy_window(&self, rcv_shift: u8, config: &Config) -> Option<u32> {
        let ratio = u64::from(self.ratio);
        let full = (u64::from(self.buffer) * ratio / RATIO_ONE).min(u64::from(self.clamp));
        let free = u64::from(self.buffer.checked_sub(self.charged)?) * ratio / RATIO_ONE;
        let is_roomy = free >= full / 2
            && full > 0
            && self.peer_segment > 0
            && rcv_shift > 0
            && !config.shrink_window;
        let window = free.min(u64::from(self.ssthresh)) as u32;
        is_roomy.then_some(up_to(window, 1 << rcv_shift))
    }

    /// Limits the window to four segments, because memory is scarce.
    pub(crate) fn lower_ssthresh(&mut self) {
        self.ssthresh = self.ssthresh.min(4 * u32::from(self.advmss));
    }

    /// Charges the memory of `len` bytes of payload that are stored.
    #[inline]
    pub(crate) fn charge(&mut self, conn_flags: ConnFlags, len: u32, in_order: bool) {
        let options = timestamp_bytes(conn_flags.has(ConnFlags::TIMESTAMPS));
        // Text in order first fills the newest buffer.
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

    /// Frees memory when of `before` stored bytes only `after` are left.
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
        // As in Linux, a clamp may exceed what the window field can express.
        let clamp = bytes.max(WINDOW_CLAMP_MIN);
        if clamp < self.clamp {
            self.ssthresh = self.ssthresh.min(clamp);
        } else {
            self.ssthresh = self.ssthresh.max(self.wnd.min(clamp));
        }
        self.clamp = clamp;
    }

    /// Growth of the window for a badly filled segment: two segments, as long as the largest buffer
    /// would hold that much data at this ratio; otherwise 0.
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

    /// The window that could be advertised, regardless of earlier promises.
    pub(crate) fn select_scarce_window(&mut self, rcv_shift: u8, cx: &Cx<'_>) -> u32 {
        let allowed = i64::from(self.full_space());
        let full = allowed.min(i64::from(self.clamp));
        let mss = i64::from(self.peer_segment).min(full);
        if mss <= 0 {
            return 0;
        }
        let unit = 1i64 << rcv_shift;
        let mut free = self.free_space();
        let shrinks = cx.config.shrink_window && rcv_shift > 0;
        if shrinks {
            free -= free & (unit - 1);
        }
        if free < full / 2 {
            // The reader does not keep up: quick ACKs end, and the window shuts before memory is
            // exhausted.
            self.end_quick_acks();
            if cx.memory >= Memory::Pressure {
                self.lower_ssthresh();
            }
            free -= free & (unit - 1);
            if free < allowed / 16 || free < mss || (shrinks && free < unit) {
                return 0;
            }
        }
        free = free.min(i64::from(self.ssthresh));
        if rcv_shift > 0 {
            // Rounds up to whole units of the scale, which are powers of two.
            return ((free + unit - 1) & !(unit - 1)) as u32;
        }
        let current = i64::from(self.wnd);
        let window = if current <= free - mss || current > free {
            free - free % mss
        } else if mss == full && free > current + full / 2 {
            free
        } else {
            current
        };
        window as u32
    }

    /// Notes that `window` is advertised.
    #[inline(always)]
    pub(crate) fn note_advertised(&mut self, window: u32) {
        self.wnd = window;
    }

    /// True if data takes more memory than the buffer should hold.
    #[inline(always)]
    pub(crate) fn is_overfull(&self) -> bool {
        self.charged > self.buffer
    }

    /// Sets the limits at the moment when data may flow: one segment stays in reserve.
    pub(crate) fn begin_clamp(&mut self) {
        let (advmss, most) = (u32::from(self.advmss), self.full_space());
        self.clamp = self.clamp.min(most);
        if self.clamp > 2 * advmss && self.clamp + advmss > most {
            self.clamp = (most.saturating_sub(advmss)).max(2 * advmss);
        }
        self.ssthresh = self.ssthresh.min(self.clamp);
    }

    /// Limits the window to `most` bytes, which the window field can express.
    pub(crate) fn limit_window(&mut self, most: u32) {
        self.clamp = self.clamp.min(most);
        self.ssthresh = self.ssthresh.min(self.clamp);
    }

    /// Grows the buffer to `bytes` of memory, and the largest window with it.
    pub(crate) fn grow_buffer(&mut self, bytes: u32) {
        if bytes > self.buffer {
            self.buffer = bytes;
            self.clamp = self.full_space();
        }
    }

    /// Grows the buffer to the memory in use, up to `most` bytes.
    pub(crate) fn grow_to_charged(&mut self, most: u32) {
        self.buffer = self.buffer.max(self.charged.min(most));
    }

    /// Sets the size of the buffer that the application chose.
    pub(crate) fn set_buffer(&mut self, bytes: u32) {
        self.buffer = bytes;
    }

    /// Limits the window to two segments, because more is stored than the buffer should hold.
    pub(crate) fn drop_ssthresh(&mut self) {
        self.ssthresh = self.clamp.min(2 * u32::from(self.advmss));
    }

    /// Raises the window's limit by `increment` bytes, within `room`, because well-filled payload
    /// arrived.
    pub(crate) fn grow_ssthresh(&mut self, increment: u32, room: i64) {
        self.ssthresh += i64::from(increment).min(room) as u32;
        self.quick_acks |= 1;
    }

    /// Sets the payload bytes per 256 bytes of memory. False if the value is the same.
    pub(crate) fn set_ratio(&mut self, ratio: u8) -> bool {
        if ratio == self.ratio {
            return false;
        }
        self.ratio = ratio;
        self.clamp_window(self.full_space());
        true
    }
}

/// Segments below this many bytes do not show how well buffers are filled.
const TELLING_BYTES_MIN: u32 = 128;

impl Receiver {
    /// The window field of a segment that leaves now. Moves the right edge if that is worthwhile.
    pub(crate) fn advertise_window(
        &mut self,
        cx: &Cx<'_>,
        conn_flags: &mut ConnFlags,
        rcv: &mut Rcv,
    ) -> u16 {
        if conn_flags.has(ConnFlags::NO_MEMORY) {
            conn_flags.clear(ConnFlags::NO_MEMORY);
            rcv.retract();
            self.note_advertised(0);
            rcv.open(0);
            return 0;
        }
        let current = rcv.wnd();
        let unit = 1u32 << rcv.shift();
        let mut window = self.select_window(cx, rcv);
        if window < current {
            if rcv.may_shrink(cx) {
                rcv.retract();
            } else {
                // The promised window is kept.
                window = up_to(current, unit);
            }
        }
        // Without scaling the field may express less than the window. As in Linux the window, not
        // the field, decides which data is taken and when it is acknowledged.
        self.note_advertised(window);
        rcv.advertise(window);
        (window.min(rcv.window_ceiling()) >> rcv.shift()) as u16
    }

    /// The window that could be advertised, regardless of earlier promises.
    #[inline]
    pub(crate) fn select_window(&mut self, cx: &Cx<'_>, rcv: &Rcv) -> u32 {
        match self.roomy_window(rcv.shift(), cx.config) {
            Some(window) => window,
            None => self.select_scarce_window(rcv.shift(), cx),
        }
    }

    /// True if a window update should leave at once after the application read: the window at least
    /// doubles.
    pub(crate) fn wants_window_update(&mut self, cx: &Cx<'_>, rcv: &Rcv) -> bool {
        let current = rcv.wnd();
        if current.saturating_mul(2) > self.clamp() {
            return false;
        }
        let window = self.select_window(cx, rcv);
        window > 0 && window >= current.saturating_mul(2)
    }

    /// Learns the ratio of payload to memory from a segment of a different size.
    pub(crate) fn learn_ratio(&mut self, len: u32, conn_flags: ConnFlags) {
        let options = timestamp_bytes(conn_flags.has(ConnFlags::TIMESTAMPS));
        let ratio = ratio_of(len, cost_of(len, HEADER_BYTES + u32::from(options)).memory);
        if !self.set_ratio(ratio) {
            return;
        }
        self.tuning.limit_space(self.clamp());
    }

    /// Raises the window's limit when payload fills its buffer well, or would do so in a larger
    /// one.
    #[inline]
    pub(crate) fn grow_window(&mut self, cx: &Cx<'_>, len: u32, conn_flags: ConnFlags) {
        if self.ssthresh() >= self.clamp() {
            return;
        }
        let room = i64::from(self.clamp()).min(self.free_space()) - i64::from(self.ssthresh());
        if room > 0 {
            self.grow_window_by(cx, len, room, conn_flags);
        }
    }

    fn grow_window_by(&mut self, cx: &Cx<'_>, len: u32, room: i64, conn_flags: ConnFlags) {
        if cx.memory >= Memory::Low {
            if cx.memory >= Memory::Pressure {
                self.lower_ssthresh();
            }
            return;
        }
        let options = timestamp_bytes(conn_flags.has(ConnFlags::TIMESTAMPS));
        let memory = cost_of(len, HEADER_BYTES + u32::from(options)).memory;
        let increment = if window_of(i64::from(memory), self.ratio()) <= i64::from(len) {
            2 * u32::from(self.advmss())
        } else {
            self.increment_for(cx.config, memory, len)
        };
        if increment > 0 {
            let increment = increment.max(len.saturating_mul(2));
            self.grow_ssthresh(increment, room);
        }
    }

    /// True if payload of this size shows how well buffers are filled.
    pub(crate) fn is_telling(len: u32) -> bool {
        len >= TELLING_BYTES_MIN
    }
}

#[cfg(test)]
mod tests;
