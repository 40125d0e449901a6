//! Bursts: segments that leave back to back end with PSH, as those do that Linux hands to its
//! device as one large packet. The peer delivers and acknowledges such a burst at once.
//!
//! Bursts are visible on the wire, so their bounds are Linux's: half the congestion window, the
//! data that may be sent now, and a millisecond's worth of the pacing rate, but at least
//! `burst_segments_min`.

use super::Plan;
use crate::connection::Connection;
use crate::context::Cx;
use crate::limits::BURST_BYTES_MAX;
use crate::pacing::RATE_INFINITE;

impl Connection {
    /// The segment of `plan` leaves. True when it ends a burst of two or more.
    #[inline]
    pub(super) fn ends_burst(&mut self, cx: &Cx<'_>, plan: Plan) -> bool {
        if self.delivery.begin_segment() {
            let planned = match plan {
                Plan::Fresh { .. } => self.fresh_segments(cx),
                Plan::Repeat { seq, .. } => self.repeated_segments(cx, seq),
                _ => 1,
            };
            if planned <= 1 {
                return false;
            }
            let burst = planned.min(self.burst_segments_max(cx));
            if !self.delivery.begin_burst(burst) {
                return false;
            }
        }
        self.delivery.take_of_burst()
    }

    /// New segments that the windows and the data allow now.
    #[inline]
    fn fresh_segments(&self, cx: &Cx<'_>) -> u32 {
        // Linux has its device cut nothing that is urgent.
        if self.is_urgent() {
            return 1;
        }
        let cwnd = self.congestion.cwnd();
        let room = cwnd.saturating_sub(self.recovery.segments_in_flight());
        let quota = room.min((cwnd / 2).max(1));
        let bytes = self.unsent().min(self.snd.usable());
        let mss = self.current_mss(cx).max(1);
        if quota <= 1 || bytes <= mss {
            return 1;
        }
        let rest = bytes % mss;
        // A small remainder rides along if it may leave at all.
        let rides = rest > 0
            && self
                .segment_size(mss, rest, rest, self.fin_unsent())
                .is_some();
        quota.min(bytes / mss + u32::from(rides))
    }

    /// Segments from `seq` on that are sent again together.
    fn repeated_segments(&self, cx: &Cx<'_>, seq: wire::SeqNumber) -> u32 {
        let cwnd = self.congestion.cwnd();
        let room = cwnd.saturating_sub(self.recovery.segments_in_flight());
        room.min(self.recovery.lost_run(cx.records, seq))
    }

    /// The most that Linux puts into one packet for the device.
    pub(crate) fn burst_segments_max(&self, cx: &Cx<'_>) -> u32 {
        let mss = u64::from(self.snd.mss.max(1));
        let bytes = match self.pacing.rate() {
            RATE_INFINITE => BURST_BYTES_MAX,
            rate => {
                let close = BURST_BYTES_MAX
                    .checked_shr(self.tx.rtt.min_us() >> 9)
                    .unwrap_or(0);
                (rate / 1024 + close).min(BURST_BYTES_MAX)
            }
        };
        ((bytes / mss) as u32).max(self.burst_segments_min(cx))
    }
}
