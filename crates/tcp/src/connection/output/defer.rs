//! Burst deferral (Linux's `tcp_tso_should_defer`). A burst waits for the next ACK when the window
//! takes little now, the ACK is expected at once and will open the window further. One large burst
//! serves receivers better than two small ones.

use crate::MILLISECOND_NS;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::flag;

/// The reason that holds a burst back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deferral {
    /// The congestion window.
    Congestion,
    /// The peer's window, or nothing but the hope of more data.
    Other,
}

impl Connection {
    /// The reason why the next burst waits; `None` = it leaves. Called when a segment of `mss`
    /// bytes fits both windows.
    pub(crate) fn deferral(&self, cx: &Cx<'_>, mss: u32) -> Option<Deferral> {
        let (unsent, mss) = (self.snd.unsent(self.state(), self.marks), mss.max(1));
        let recovery = &self.flight.recovery();
        let cwnd = self.flight.congestion().cwnd();
        // Nothing is in flight, a burst is under way, or the data is no burst.
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
        // Data that pacing held back until now follows the last segment closely, however long ago
        // that segment left (Linux).
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
        // Data that will not grow does not wait.
        let complete =
            self.marks.fin_unsent() || self.tx.record_room(self.marks, &self.snd) <= unsent;
        (!complete).then_some(Deferral::Other)
    }
}
