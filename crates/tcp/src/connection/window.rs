//! The receive window: what to advertise (RFC 9293 3.8.6.2.2, RFC 7323 2), and the peer's window as
//! it is learnt.
//!
//! The right edge moves back only for data in order that found no memory, and where the settings
//! allow it (`shrink_window`, Linux's `tcp_shrink_window`). Data within a promised window is taken
//! in any case (RFC 7323 2.4). The edge moves by whole segments of the peer or, with scaling, by
//! whole units (receiver's silly-window avoidance). The advertised window is what the buffer's free
//! memory allows, bounded by `rx.ssthresh`, which grows as well-filled segments arrive.

use wire::SeqNumber;

use crate::buffers::{Memory, cost_of, ratio_of, window_of};
use crate::connection::Connection;
use crate::context::Cx;
use crate::limits::timestamp_bytes;
use crate::marks::Marks;
use crate::receive::window::{HEADER_BYTES, up_to};
use crate::segment::Segment;

/// Segments below this many bytes say nothing of how well buffers are filled.
const TELLING_BYTES_MIN: u32 = 128;

impl Connection {
    /// The window field of a segment that leaves now; moves the right edge if it pays.
    pub(crate) fn advertise_window(&mut self, cx: &Cx<'_>) -> u16 {
        if self.marks.has(Marks::NO_MEMORY) {
            self.marks.clear(Marks::NO_MEMORY);
            self.retract();
            self.rx.note_advertised(0);
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
                // The promised window is kept.
                window = up_to(current, unit);
            }
        }
        // Without a scale the field may express less than the actual window. As in Linux the actual
        // window decides which data is taken and when it is acknowledged.
        self.rx.note_advertised(window);
        self.rcv.adv = self.rcv.nxt + window;
        if self.rx.retracted() && self.promised.le(self.rcv.adv) {
            self.rx.set_retracted(false);
            self.promised = SeqNumber(0);
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
        if !self.rx.retracted() || self.rcv.adv.gt(self.promised) {
            self.promised = self.rcv.adv;
        }
        self.rx.set_retracted(true);
    }

    /// The largest promised window that is not used up: the peer may send this much though a later
    /// segment advertised less (RFC 7323 2.4).
    pub(crate) fn promised_window(&self) -> u32 {
        if self.rx.retracted() && self.promised.gt(self.rcv.adv) {
            return self.promised.since(self.rcv.nxt);
        }
        self.rcv.wnd()
    }

    /// The largest window that the field can say.
    pub(crate) fn window_ceiling(&self) -> u32 {
        u32::from(u16::MAX) << self.rcv_shift
    }

    /// The window that could be advertised, without regard to earlier promises.
    #[inline]
    pub(crate) fn select_window(&mut self, cx: &Cx<'_>) -> u32 {
        match self.rx.roomy_window(self.rcv_shift, cx.config) {
            Some(window) => window,
            None => self.rx.select_window(self.rcv_shift, cx),
        }
    }

    /// The application read. An update that the peer waits for leaves at once: when the window at
    /// least doubles.
    pub(crate) fn wants_window_update(&mut self, cx: &Cx<'_>) -> bool {
        let current = self.rcv.wnd();
        if current.saturating_mul(2) > self.rx.clamp() {
            return false;
        }
        let window = self.select_window(cx);
        window > 0 && window >= current.saturating_mul(2)
    }

    /// A segment of another size arrived: what memory is worth is learnt anew.
    pub(crate) fn learn_ratio(&mut self, len: u32) {
        let options = timestamp_bytes(self.marks.has(Marks::TIMESTAMPS));
        let ratio = ratio_of(len, cost_of(len, HEADER_BYTES + u32::from(options)).memory);
        if !self.rx.set_ratio(ratio) {
            return;
        }
        self.tune.limit_space(self.rx.clamp());
    }

    /// TCP_WINDOW_CLAMP: limits the advertised window. As in Linux the clamp follows the receive
    /// buffer's growth from there.
    pub fn set_window_clamp(&mut self, bytes: u32) {
        if bytes != 0 {
            self.rx.clamp_window(bytes);
        }
    }

    /// Payload arrived in a buffer that it fills well, or would fill well: more may be advertised.
    #[inline]
    pub(crate) fn grow_window(&mut self, cx: &Cx<'_>, len: u32) {
        if self.rx.ssthresh() >= self.rx.clamp() {
            return;
        }
        let room =
            i64::from(self.rx.clamp()).min(self.rx.free_space()) - i64::from(self.rx.ssthresh());
        if room > 0 {
            self.grow_window_by(cx, len, room);
        }
    }

    fn grow_window_by(&mut self, cx: &Cx<'_>, len: u32, room: i64) {
        if cx.memory >= Memory::Low {
            if cx.memory >= Memory::Pressure {
                self.rx.lower_ssthresh();
            }
            return;
        }
        let options = timestamp_bytes(self.marks.has(Marks::TIMESTAMPS));
        let memory = cost_of(len, HEADER_BYTES + u32::from(options)).memory;
        let increment = if window_of(i64::from(memory), self.rx.ratio()) <= i64::from(len) {
            2 * u32::from(self.rx.advmss())
        } else {
            self.rx.increment_for(cx.config, memory, len)
        };
        if increment > 0 {
            let increment = increment.max(len.saturating_mul(2));
            self.rx.grow_ssthresh(increment, room);
        }
    }

    /// True if payload of this size shows how well buffers are filled.
    pub(crate) fn is_telling(len: u32) -> bool {
        len >= TELLING_BYTES_MIN
    }

    /// The window of a segment with an acceptable ACK (RFC 9293 3.10.7.4, fifth step).
    #[inline]
    pub(crate) fn learn_window(&mut self, seg: &Segment) {
        // Beyond the RFC, as in Linux: a higher ACK was sent later, even if it rides on repeated
        // text. The order of two segments with equal numbers is unknown, so only a larger window
        // counts, or none.
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
