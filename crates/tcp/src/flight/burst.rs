//! The bounds of a burst: the size that is worth sending, and the largest size.

use crate::context::Cx;
use crate::flight::Flight;
use crate::limits::BURST_BYTES_MAX;
use crate::pacing::RATE_INFINITE;
use crate::timers::Timers;
use crate::variables::Snd;

/// Segments that a burst must exceed when no part of the window is configured (Linux's
/// `tcp_max_tso_deferred_mss`).
const DEFERRED_SEGMENTS_MAX: u32 = 3;

impl Flight {
    /// Segments from `seq` on that are retransmitted together.
    pub(crate) fn retransmitted_segments(&self, cx: &Cx<'_>, seq: wire::SeqNumber) -> u32 {
        let cwnd = self.congestion.cwnd();
        let room = cwnd.saturating_sub(self.recovery.segments_in_flight());
        room.min(self.recovery.lost_run(cx.records, seq))
    }

    /// Most segments of a burst: as many as Linux puts into one packet for the device.
    pub(crate) fn burst_segments_max(&self, cx: &Cx<'_>, snd: &Snd, timers: &Timers) -> u32 {
        let mss = u64::from(snd.mss().max(1));
        let bytes = match self.pacing.rate() {
            RATE_INFINITE => BURST_BYTES_MAX,
            rate => {
                let close = BURST_BYTES_MAX
                    .checked_shr(timers.rtt().min_us() >> 9)
                    .unwrap_or(0);
                (rate / 1024 + close).min(BURST_BYTES_MAX)
            }
        };
        ((bytes / mss) as u32).max(self.burst_segments_min(cx))
    }

    /// True if `limit` bytes, in segments of `mss`, are enough to send without waiting for more.
    pub(crate) fn is_worth_a_burst(&self, cx: &Cx<'_>, limit: u32, mss: u32, snd: &Snd) -> bool {
        let window = snd.wnd().min(self.congestion.cwnd().saturating_mul(mss));
        match window.checked_div(cx.config.burst_window_divisor) {
            Some(part) => limit >= part,
            None => limit > DEFERRED_SEGMENTS_MAX * mss,
        }
    }
}
