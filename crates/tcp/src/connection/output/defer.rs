//! Burst deferral (Linux's `tcp_tso_should_defer`). A burst waits for the next ACK when the window
//! takes little now, the ACK is expected at once and will open the window further. One large burst
//! serves receivers better than two small ones.

use crate::MILLISECOND_NS;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::flag;

/// Segments that are worth a burst where no part of the window is (Linux's
/// `tcp_max_tso_deferred_mss`).
const DEFERRED_SEGMENTS_MAX: u32 = 3;

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
        let (unsent, mss) = (self.unsent(), mss.max(1));
        let recovery = &self.recovery;
        let cwnd = self.congestion.cwnd();
        // Nothing is in flight, a burst is under way, or the data is no burst.
        if recovery.packets_out() == 0 || self.delivery.burst_left() > 0 || unsent <= mss {
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
        if self.is_worth_a_burst(cx, limit, mss)
            || limit >= self.burst_segments_max(cx).saturating_mul(mss)
        {
            return None;
        }
        // Data that pacing held back until now follows the last segment closely, however long ago
        // that segment left (Linux).
        let last_ns = self.delivery.last_out_ns().max(self.pacing.next_ns());
        if cx.now_ns.saturating_sub(last_ns) > MILLISECOND_NS
            || !self
                .recovery
                .expects_ack_soon(&self.tx, cx.records, cx.now_ns)
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
        let complete = self.fin_unsent() || self.record_room() <= unsent;
        (!complete).then_some(Deferral::Other)
    }

    /// `limit` bytes, of segments of `mss`, are enough not to wait for more.
    fn is_worth_a_burst(&self, cx: &Cx<'_>, limit: u32, mss: u32) -> bool {
        let window = self.snd.wnd.min(self.congestion.cwnd().saturating_mul(mss));
        match window.checked_div(cx.config.burst_window_divisor) {
            Some(part) => limit >= part,
            None => limit > DEFERRED_SEGMENTS_MAX * mss,
        }
    }
}
