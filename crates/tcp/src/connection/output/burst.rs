//! Bursts: segments that leave back to back end with PSH, as those do that Linux hands to its
//! device as one large packet. The peer delivers and acknowledges such a burst at once.
//!
//! Bursts are visible on the wire, so their bounds are Linux's: half the congestion window, the
//! data that may be sent now, and a millisecond's worth of the pacing rate, but at least
//! `burst_segments_min`.

use crate::connection::Connection;
use crate::context::Cx;
use crate::plan::Plan;

impl Connection {
    /// The segment of `plan` leaves. True when it ends a burst of two or more.
    #[inline]
    pub(super) fn ends_burst(&mut self, cx: &Cx<'_>, plan: Plan) -> bool {
        if self.flight.delivery_mut().begin_segment() {
            let planned = match plan {
                Plan::Fresh { .. } => self.fresh_segments(cx),
                Plan::Repeat { seq, .. } => self.flight.repeated_segments(cx, seq),
                _ => 1,
            };
            if planned <= 1 {
                return false;
            }
            let burst = planned.min(self.flight.burst_segments_max(cx, &self.snd, &self.timers));
            if !self.flight.delivery_mut().begin_burst(burst) {
                return false;
            }
        }
        self.flight.delivery_mut().take_of_burst()
    }

    /// New segments that the windows and the data allow now.
    #[inline]
    fn fresh_segments(&self, cx: &Cx<'_>) -> u32 {
        // Linux has its device cut nothing that is urgent.
        if self.tx.is_urgent(self.marks) {
            return 1;
        }
        let cwnd = self.flight.congestion().cwnd();
        let room = cwnd.saturating_sub(self.flight.recovery().segments_in_flight());
        let quota = room.min((cwnd / 2).max(1));
        let bytes = self
            .snd
            .unsent(self.state(), self.marks)
            .min(self.snd.usable());
        let mss = self
            .ecn
            .current_mss(cx, self.marks, &self.snd, &self.timers, &self.rx)
            .max(1);
        if quota <= 1 || bytes <= mss {
            return 1;
        }
        let rest = bytes % mss;
        // A small remainder rides along if it may leave at all.
        let rides = rest > 0
            && self
                .segment_size(mss, rest, rest, self.marks.fin_unsent())
                .is_some();
        quota.min(bytes / mss + u32::from(rides))
    }
}
