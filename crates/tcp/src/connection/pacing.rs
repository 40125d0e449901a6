//! Departure of data at the rate of [`Pacing`](crate::pacing::Pacing).

use crate::connection::Connection;
use crate::context::Cx;

impl Connection {
    /// SO_MAX_PACING_RATE: bytes per second, `u64::MAX` = no limit. A limit turns pacing on for
    /// good, as in Linux.
    pub fn set_max_pacing_rate(&mut self, cx: &Cx<'_>, rate_max: u64) {
        self.planned.forget();
        let last_out_ns = self.flight.delivery().last_out_ns();
        self.flight.pacing_mut().limit(rate_max, last_out_ns);
        self.flight.refresh_pacing(cx, &self.snd, &self.timers);
    }

    /// True if `deadline_ns` needs the clock's full resolution: paced data departs then, or SACKs
    /// that were held back. A caller with coarse timers should serve it separately.
    #[inline]
    #[must_use]
    pub fn is_deadline_fine(&self) -> bool {
        self.timers.deadline_ns() == self.timers.departure_ns()
            || self.rx.waits_for_sacks(&self.timers)
    }

    /// Arms the departure of data that pacing holds back, after sending stopped.
    #[inline]
    pub(crate) fn arm_departure(&mut self, cx: &Cx<'_>) {
        let held = self.flight.pacing().holds(cx.now_ns) && self.plan_payload(cx).is_some();
        let at_ns = self.flight.pacing_mut().note_stop(held);
        self.timers.arm_departure(at_ns);
    }
}
