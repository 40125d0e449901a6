//! Bursts: segments that leave back to back end with PSH, like those that Linux hands to its device
//! as one large packet. The peer delivers and acknowledges such a burst at once.
//!
//! Bursts are visible on the wire, so their bounds are Linux's: half the congestion window, the
//! data that may be sent now, and a millisecond's worth of the pacing rate. `burst_segments_min` is
//! the lower bound.

use wire::SeqNumber;

use crate::MILLISECOND_NS;
use crate::connection::Connection;
use crate::context::Cx;
use crate::plan::Plan;
use crate::recovery::flag;

/// Reason for holding a burst back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deferral {
    /// The congestion window.
    Congestion,
    /// The peer's window, or the hope for more data.
    Other,
}

impl Connection {
    /// Notes that the segment of `plan`, which begins with `seq`, leaves. True if it ends a burst
    /// of two or more segments.
    #[inline]
    pub(super) fn ends_burst(&mut self, cx: &Cx<'_>, plan: Plan, seq: SeqNumber) -> bool {
        if self.flight.delivery_mut().begin_segment() {
            let planned = match plan {
                Plan::Fresh { .. } | Plan::PathProbe { .. } => self.fresh_segments(cx),
                Plan::Retransmission { .. } => self.flight.retransmitted_segments(cx, seq),
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
        // Linux does not let its device cut urgent data.
        if self.tx.is_urgent(self.conn_flags) {
            return 1;
        }
        let cwnd = self.flight.congestion().cwnd();
        let room = cwnd.saturating_sub(self.flight.recovery().segments_in_flight());
        let quota = room.min((cwnd / 2).max(1));
        let bytes = self
            .snd
            .unsent(self.state(), self.conn_flags)
            .min(self.snd.usable());
        let mss = self
            .ecn
            .current_mss(cx, self.conn_flags, &self.snd, &self.timers, &self.rx)
            .max(1);
        if quota <= 1 || bytes <= mss {
            return 1;
        }
        let rest = bytes % mss;
        // A small remainder joins the burst if it may leave at all.
        let rides = rest > 0
            && self
                .segment_size(mss, rest, rest, self.conn_flags.fin_unsent())
                .is_some();
        quota.min(bytes / mss + u32::from(rides))
    }

    /// The reason why the next burst waits; `None`: it leaves. Called when a segment of `mss` bytes
    /// fits both windows.
    pub(crate) fn deferral(&self, cx: &Cx<'_>, mss: u32) -> Option<Deferral> {
        let (unsent, mss) = (self.snd.unsent(self.state(), self.conn_flags), mss.max(1));
        let recovery = &self.flight.recovery();
        let cwnd = self.flight.congestion().cwnd();
        // No wait if nothing is in flight, a burst is under way, or the data fits one segment.
        if recovery.packets_out() == 0 || self.flight.delivery().burst_left() > 0 || unsent <= mss {
            return None;
        }
        if !recovery.is_before_recovery() || recovery.any(flag::PROBE_NEW | flag::SEND_NEW) {
            return None;
        }
        let by_cwnd = cwnd
            .saturating_sub(recovery.in_flight())
            .saturating_mul(mss);
        let by_peer = self.snd.usable();
        let limit = by_cwnd.min(by_peer);
        if self.flight.is_worth_a_burst(cx, limit, mss, &self.snd)
            || limit
                >= self
                    .flight
                    .burst_segments_max(cx, &self.snd, &self.timers)
                    .saturating_mul(mss)
        {
            return None;
        }
        // For data that pacing held back, the time of the last segment is the time at which pacing
        // let it go (Linux).
        let last_ns = self
            .flight
            .delivery()
            .last_out_ns()
            .max(self.flight.pacing().next_ns());
        if cx.now_ns.saturating_sub(last_ns) > MILLISECOND_NS
            || !self
                .flight
                .recovery()
                .expects_ack_soon(&self.timers, cx.records, cx.now_ns)
        {
            return None;
        }
        if by_cwnd < by_peer {
            if by_cwnd <= unsent {
                return Some(Deferral::Congestion);
            }
        } else if by_peer <= unsent {
            return Some(Deferral::Other);
        }
        // Data that cannot grow does not wait.
        let complete = self.conn_flags.fin_unsent()
            || self.tx.record_room(self.conn_flags, &self.snd) <= unsent;
        (!complete).then_some(Deferral::Other)
    }
}
