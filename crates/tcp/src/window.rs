//! The receive window: what to advertise (RFC 9293 3.8.6.2.2, RFC 7323 2), and the peer's window as it
//! is learnt.
//!
//! The right edge never goes back. It moves by a worthwhile step or not at all (receiver's silly-window
//! avoidance). A scaled field rounds up where rounding down would take back what was promised.

use wire::SeqNumber;

use crate::connection::Connection;
use crate::limits::{RECV_WINDOW_MAX, WINDOW_SHIFT_MAX};
use crate::marks::Marks;
use crate::segment::Segment;

/// The smallest shift with which a buffer of `bytes` can be advertised whole (RFC 7323 2.2).
#[must_use]
pub fn shift_for(bytes: u32) -> u8 {
    let bits = (32 - bytes.leading_zeros()) as u8;
    bits.saturating_sub(16).min(WINDOW_SHIFT_MAX)
}

impl Connection {
    /// The window field of a segment that leaves now; moves the right edge if it pays.
    pub(crate) fn advertise_window(&mut self) -> u16 {
        let current = self.rcv.wnd();
        let offer = self.window_offer();
        let unit = 1u32 << self.rcv_shift;
        let window = if offer > current && offer - current >= self.window_step() {
            offer
        } else if current > self.rx.space.saturating_add(unit) {
            // Promised more than there is memory for, by rounding up before: do not promise on.
            current & !(unit - 1)
        } else {
            current.next_multiple_of(unit)
        };
        let field = (window >> self.rcv_shift).min(u32::from(u16::MAX)) as u16;
        let edge = self.rcv.nxt + (u32::from(field) << self.rcv_shift);
        if edge.gt(self.rcv.adv) {
            self.rcv.adv = edge;
        }
        field
    }

    /// The window field of a SYN or SYN-ACK: never scaled (RFC 7323 2.2).
    pub(crate) fn syn_window(&self) -> u16 {
        self.rx.space.min(u32::from(u16::MAX)) as u16
    }

    /// The application read. An update that the peer waits for leaves at once: when the window at least
    /// doubles.
    pub(crate) fn wants_window_update(&self) -> bool {
        let current = self.rcv.wnd();
        let offer = self.window_offer();
        offer > current
            && offer - current >= self.window_step()
            && offer >= current.saturating_mul(2)
    }

    /// What the buffer could offer: whole units of the scale.
    fn window_offer(&self) -> u32 {
        let space = self
            .rx
            .space
            .min(RECV_WINDOW_MAX)
            .min(u32::from(u16::MAX) << self.rcv_shift);
        space & !((1u32 << self.rcv_shift) - 1)
    }

    /// min(Fr * RCV.BUFF, Eff.snd.MSS) of RFC 9293 3.8.6.2.2, with Fr = 1/2.
    fn window_step(&self) -> u32 {
        u32::from(self.rx.mss).min(self.rx.space_max / 2).max(1)
    }

    /// The window of a segment with an acceptable ACK (RFC 9293 3.10.7.4, fifth step).
    #[inline]
    pub(crate) fn learn_window(&mut self, seg: &Segment) {
        // Beyond the RFC, as Linux: a higher ACK was sent later, even if it rides on repeated text.
        let newer = self.snd.wl1.lt(seg.seq)
            || (self.snd.wl1 == seg.seq && self.snd.wl2.le(seg.ack))
            || self.snd.wl2.lt(seg.ack);
        if !newer {
            return;
        }
        self.snd.wl1 = self.snd.wl1.max(seg.seq);
        self.snd.wl2 = seg.ack;
        let window = u32::from(seg.window) << self.snd.shift;
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
