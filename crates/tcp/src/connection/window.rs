//! The receive window: what to advertise (RFC 9293 3.8.6.2.2, RFC 7323 2), and the peer's window as it
//! is learnt.
//!
//! The right edge never goes back, but for data in order that found no memory, and where the settings let it (`shrink_window`, as Linux's
//! `tcp_shrink_window`); what was promised is taken all the same (RFC 7323 2.4). It moves by
//! whole segments of the peer or, with scaling, by whole units (receiver's silly-window avoidance). What
//! may be advertised is what the buffer's free memory is worth, bounded by `rx.ssthresh`, which grows as
//! well-filled segments arrive.

use wire::SeqNumber;

use crate::buffers::{Memory, RATIO_ONE, WINDOW_CLAMP_MIN, cost_of, ratio_of, window_of};
use crate::connection::Connection;
use crate::context::Cx;
use crate::limits::timestamp_bytes;
use crate::marks::Marks;
use crate::segment::Segment;

/// `bytes`, up to a whole number of units, which are a power of two.
#[inline]
fn up_to(bytes: u32, unit: u32) -> u32 {
    (bytes + (unit - 1)) & !(unit - 1)
}

/// IP and TCP header without options.
const HEADER_BYTES: u32 = 40;
/// Segments below this many bytes say nothing of how well buffers are filled.
const TELLING_BYTES_MIN: u32 = 128;

impl Connection {
    /// The window field of a segment that leaves now; moves the right edge if it pays.
    pub(crate) fn advertise_window(&mut self, cx: &Cx<'_>) -> u16 {
        if self.marks.has(Marks::NO_MEMORY) {
            self.marks.clear(Marks::NO_MEMORY);
            self.retract();
            self.rx.wnd = 0;
            self.rcv.adv = self.rcv.nxt;
            return 0;
        }
        let current = self.rcv.wnd();
        let unit = 1u32 << self.rcv_shift;
        let mut window = self.select_window(cx);
        if window < current {
            if self.may_shrink(cx) {
                self.retract();
            } else {
                // What was promised is kept.
                window = up_to(current, unit);
            }
        }
        // Without a scale the field may say less than there is. As in Linux what there is counts, for what is taken and when it is acknowledged.
        self.rx.wnd = window;
        self.rcv.adv = self.rcv.nxt + window;
        if self.rx.retracted && self.promised.le(self.rcv.adv) {
            (self.rx.retracted, self.promised) = (false, SeqNumber(0));
        }
        (window.min(self.window_ceiling()) >> self.rcv_shift) as u16
    }

    /// The window may be taken back: the settings say so, and the field can say it.
    fn may_shrink(&self, cx: &Cx<'_>) -> bool {
        cx.config.shrink_window && self.rcv_shift > 0
    }

    /// The right edge is about to go back: remembers where it was.
    #[cold]
    fn retract(&mut self) {
        if !self.rx.retracted || self.rcv.adv.gt(self.promised) {
            self.promised = self.rcv.adv;
        }
        self.rx.retracted = true;
    }

    /// The largest window that was promised and is not used up: what the peer may send though a later segment of ours said less (RFC 7323 2.4).
    pub(crate) fn promised_window(&self) -> u32 {
        if self.rx.retracted && self.promised.gt(self.rcv.adv) {
            return self.promised.since(self.rcv.nxt);
        }
        self.rcv.wnd()
    }

    /// The window field of a SYN or SYN-ACK: never scaled (RFC 7323 2.2).
    pub(crate) fn syn_window(&self) -> u16 {
        self.rx.wnd.min(u32::from(u16::MAX)) as u16
    }

    /// The largest window that the field can say.
    pub(crate) fn window_ceiling(&self) -> u32 {
        u32::from(u16::MAX) << self.rcv_shift
    }

    /// Payload that the whole buffer can hold.
    pub(crate) fn full_space(&self) -> u32 {
        window_of(i64::from(self.rx.buffer), self.rx.ratio) as u32
    }

    /// Payload that what is free of it can hold; negative when more is held than the buffer is meant to.
    fn free_space(&self) -> i64 {
        let free = i64::from(self.rx.buffer) - i64::from(self.rx.charged);
        window_of(free, self.rx.ratio)
    }

    /// What could be advertised, whatever was promised before.
    #[inline]
    pub(crate) fn select_window(&mut self, cx: &Cx<'_>) -> u32 {
        match self.roomy_window(cx) {
            Some(window) => window,
            None => self.select_window_in_full(cx),
        }
    }

    /// The same while the reader keeps up: half of the buffer is free, and the field is scaled.
    #[inline]
    fn roomy_window(&self, cx: &Cx<'_>) -> Option<u32> {
        let rx = &self.rx;
        let ratio = u64::from(rx.ratio);
        let full = (u64::from(rx.buffer) * ratio / RATIO_ONE).min(u64::from(rx.clamp));
        let free = u64::from(rx.buffer.checked_sub(rx.charged)?) * ratio / RATIO_ONE;
        let is_roomy = free >= full / 2
            && full > 0
            && rx.peer_segment > 0
            && self.rcv_shift > 0
            && !cx.config.shrink_window;
        let window = free.min(u64::from(rx.ssthresh)) as u32;
        is_roomy.then_some(up_to(window, 1 << self.rcv_shift))
    }

    fn select_window_in_full(&mut self, cx: &Cx<'_>) -> u32 {
        let allowed = i64::from(self.full_space());
        let full = allowed.min(i64::from(self.rx.clamp));
        let mss = i64::from(self.rx.peer_segment).min(full);
        if mss <= 0 {
            return 0;
        }
        let unit = 1i64 << self.rcv_shift;
        let mut free = self.free_space();
        let shrinks = self.may_shrink(cx);
        if shrinks {
            free -= free & (unit - 1);
        }
        if free < full / 2 {
            // The reader does not keep up: no more quick ACKs, and before memory is out the window shuts.
            self.rx.quick_acks = 0;
            if cx.memory >= Memory::Pressure {
                self.lower_ssthresh();
            }
            free -= free & (unit - 1);
            if free < allowed / 16 || free < mss || (shrinks && free < unit) {
                return 0;
            }
        }
        free = free.min(i64::from(self.rx.ssthresh));
        if self.rcv_shift > 0 {
            // Up to whole units, of which each is a power of two.
            return ((free + unit - 1) & !(unit - 1)) as u32;
        }
        let current = i64::from(self.rx.wnd);
        let window = if current <= free - mss || current > free {
            free - free % mss
        } else if mss == full && free > current + full / 2 {
            free
        } else {
            current
        };
        window as u32
    }

    /// Memory is scarce: a few segments, no more.
    fn lower_ssthresh(&mut self) {
        self.rx.ssthresh = self.rx.ssthresh.min(4 * u32::from(self.rx.advmss));
    }

    /// The application read. An update that the peer waits for leaves at once: when the window at least
    /// doubles.
    pub(crate) fn wants_window_update(&mut self, cx: &Cx<'_>) -> bool {
        let current = self.rcv.wnd();
        if current.saturating_mul(2) > self.rx.clamp {
            return false;
        }
        let window = self.select_window(cx);
        window > 0 && window >= current.saturating_mul(2)
    }

    /// `len` bytes of payload are held from now on.
    #[inline]
    pub(crate) fn charge(&mut self, len: u32, in_order: bool) {
        let options = timestamp_bytes(self.marks.has(Marks::TIMESTAMPS));
        // What follows in order fills up the last buffer first.
        if in_order && self.rx.unread > 0 && len <= u32::from(self.rx.room) {
            self.rx.room -= len as u16;
            return;
        }
        let cost = cost_of(len, HEADER_BYTES + u32::from(options));
        self.rx.charged = self.rx.charged.saturating_add(cost.memory);
        if in_order {
            self.rx.room = cost.room.min(u32::from(u16::MAX)) as u16;
        }
    }

    /// Of `before` bytes held, `after` are left.
    pub(crate) fn discharge(&mut self, before: u32, after: u32) {
        if after == 0 || before == 0 {
            self.rx.charged = 0;
            self.rx.room = 0;
        } else {
            let share = u64::from(self.rx.charged) * u64::from(after) / u64::from(before);
            self.rx.charged = share as u32;
        }
    }

    /// A segment of another size arrived: what memory is worth is learnt anew.
    pub(crate) fn learn_ratio(&mut self, len: u32) {
        let options = timestamp_bytes(self.marks.has(Marks::TIMESTAMPS));
        let ratio = ratio_of(len, cost_of(len, HEADER_BYTES + u32::from(options)).memory);
        if ratio == self.rx.ratio {
            return;
        }
        self.rx.ratio = ratio;
        self.clamp_window(self.full_space());
        self.limit_space(self.rx.clamp);
    }

    /// TCP_WINDOW_CLAMP: no more than so many bytes are advertised. As in Linux the clamp follows the receive buffer's growth from there.
    pub fn set_window_clamp(&mut self, bytes: u32) {
        if bytes != 0 {
            self.clamp_window(bytes);
        }
    }

    fn clamp_window(&mut self, bytes: u32) {
        // As in Linux what the field cannot say is cut off when it is filled in.
        let clamp = bytes.max(WINDOW_CLAMP_MIN);
        if clamp < self.rx.clamp {
            self.rx.ssthresh = self.rx.ssthresh.min(clamp);
        } else {
            self.rx.ssthresh = self.rx.ssthresh.max(self.rx.wnd.min(clamp));
        }
        self.rx.clamp = clamp;
    }

    /// Payload arrived in a buffer that it fills well, or would fill well: more may be advertised.
    #[inline]
    pub(crate) fn grow_window(&mut self, cx: &Cx<'_>, len: u32) {
        if self.rx.ssthresh >= self.rx.clamp {
            return;
        }
        let room = i64::from(self.rx.clamp).min(self.free_space()) - i64::from(self.rx.ssthresh);
        if room > 0 {
            self.grow_window_by(cx, len, room);
        }
    }

    fn grow_window_by(&mut self, cx: &Cx<'_>, len: u32, room: i64) {
        if cx.memory >= Memory::Low {
            if cx.memory >= Memory::Pressure {
                self.lower_ssthresh();
            }
            return;
        }
        let options = timestamp_bytes(self.marks.has(Marks::TIMESTAMPS));
        let memory = cost_of(len, HEADER_BYTES + u32::from(options)).memory;
        let increment = if window_of(i64::from(memory), self.rx.ratio) <= i64::from(len) {
            2 * u32::from(self.rx.advmss)
        } else {
            self.increment_for(cx, memory, len)
        };
        if increment > 0 {
            let increment = increment.max(len.saturating_mul(2));
            self.rx.ssthresh += i64::from(increment).min(room) as u32;
            self.rx.quick_acks |= 1;
        }
    }

    /// Badly filled: it may grow as long as a buffer of the largest size would still hold as much.
    fn increment_for(&self, cx: &Cx<'_>, memory: u32, len: u32) -> u32 {
        let mut cost = window_of(i64::from(memory), self.rx.ratio) / 2;
        let most = i64::from(cx.config.recv_buffer.bytes_max);
        let mut window = window_of(most, self.rx.ratio) / 2;
        while i64::from(self.rx.ssthresh) <= window {
            if cost <= i64::from(len) {
                return 2 * u32::from(self.rx.peer_segment);
            }
            cost /= 2;
            window /= 2;
        }
        0
    }

    /// Whether payload of this size says something of how well buffers are filled.
    pub(crate) fn is_telling(len: u32) -> bool {
        len >= TELLING_BYTES_MIN
    }

    /// The window of a segment with an acceptable ACK (RFC 9293 3.10.7.4, fifth step).
    #[inline]
    pub(crate) fn learn_window(&mut self, seg: &Segment) {
        // Beyond the RFC, as Linux: a higher ACK was sent later, even if it rides on repeated text; and of two segments with
        // the same numbers nobody knows which was sent first, so only a larger window counts, or none at all.
        let window = self.scaled_window(seg);
        let newer = self.snd.wl2.lt(seg.ack)
            || self.snd.wl1.lt(seg.seq)
            || (self.snd.wl1 == seg.seq && (window > self.snd.wnd || window == 0));
        if !newer {
            return;
        }
        self.snd.wl1 = self.snd.wl1.max(seg.seq);
        self.snd.wl2 = seg.ack;
        if window != self.snd.wnd {
            self.set_send_window(window);
        }
    }

    /// SND.WND changes; an opened window ends probing.
    pub(crate) fn set_send_window(&mut self, window: u32) {
        let opened = self.snd.wnd < window;
        self.snd.wnd = window;
        if window > self.tx.max_wnd {
            self.tx.max_wnd = window;
            self.refresh_mss();
        }
        if opened && self.marks.has(Marks::PERSIST) && self.snd.usable() > 0 {
            self.end_persist();
        }
    }

    /// SEG.WND in bytes, from a segment without SYN.
    pub(crate) fn scaled_window(&self, seg: &Segment) -> u32 {
        u32::from(seg.window) << self.snd.shift
    }

    /// The right edge never lies before RCV.NXT.
    pub(crate) fn keep_edge(&mut self) {
        let nxt: SeqNumber = self.rcv.nxt;
        if self.rcv.adv.lt(nxt) {
            self.rcv.adv = nxt;
        }
    }
}

#[cfg(test)]
mod tests;
