//! When data may leave at the rate of [`Pacing`](crate::pacing::Pacing).

use crate::connection::Connection;
use crate::context::Cx;
use crate::pacing::Burst;

impl Connection {
    /// SO_MAX_PACING_RATE: bytes per second, `u64::MAX` = no limit. A limit turns pacing on for
    /// good, as in Linux.
    pub fn set_max_pacing_rate(&mut self, cx: &Cx<'_>, rate_max: u64) {
        self.pacing.limit(rate_max, self.delivery.last_out_ns());
        self.refresh_pacing(cx);
    }

    /// SO_MAX_PACING_RATE in bytes per second; `u64::MAX` = no limit.
    #[must_use]
    pub fn max_pacing_rate(&self) -> u64 {
        self.pacing.rate_max()
    }

    /// The window or the round trip changed.
    #[inline]
    pub(crate) fn refresh_pacing(&mut self, cx: &Cx<'_>) {
        if self.pace_by_model(cx) {
            return;
        }
        let mss = u32::from(self.snd.mss);
        let packets_out = self.recovery.packets_out();
        self.pacing.refresh(
            cx.config,
            self.congestion.window(),
            packets_out,
            mss,
            self.tx.rtt.srtt_us,
        );
    }

    /// A segment with `bytes` of payload has left.
    #[inline]
    pub(crate) fn pace(&mut self, cx: &Cx<'_>, bytes: u32) {
        if self.pacing.is_on() {
            let burst = Burst {
                begins: self.delivery.begins_burst(),
                left: self.delivery.burst_left(),
            };
            let sent = self.tx.data_segs_out;
            self.pacing.on_sent(cx.now_ns, bytes, sent, burst);
        }
    }

    /// The sum of `wait_ns`, in which an answer to the last segment is expected, and the time for
    /// which pacing holds back the next one (Linux). Without the addition, timers would take a slow
    /// sender for a silent peer.
    #[inline]
    pub(crate) fn paced_wait_ns(&self, cx: &Cx<'_>, wait_ns: u64) -> u64 {
        match self.pacing.next_ns() > cx.now_ns {
            true => self.longer_wait_ns(cx, wait_ns),
            false => wait_ns,
        }
    }

    #[cold]
    fn longer_wait_ns(&self, cx: &Cx<'_>, wait_ns: u64) -> u64 {
        let delay_ns = self.pacing.next_ns().saturating_sub(cx.now_ns);
        let longest_ns = self.cold.own_timers.rto_ns_max(cx.config).max(wait_ns);
        wait_ns.saturating_add(delay_ns).min(longest_ns)
    }

    /// `deadline_ns`, which is some, is to be met at the clock's full grain: paced data departs, or
    /// SACKs that were held back. A caller whose timers are coarse should serve it apart.
    #[inline]
    #[must_use]
    pub fn is_deadline_fine(&self) -> bool {
        self.deadline_ns == self.pacing.departure_ns() || self.waits_for_sacks()
    }

    /// The departure has come.
    pub(crate) fn depart(&mut self, now_ns: u64) {
        if self.pacing.depart(now_ns) {
            self.refresh_deadline();
        }
    }

    /// Sending stopped: is it pacing that holds data back?
    #[inline]
    pub(crate) fn arm_departure(&mut self, cx: &Cx<'_>) {
        let held = self.pacing.holds(cx.now_ns) && self.plan_payload(cx).is_some();
        if self.pacing.note_stop(held) {
            self.refresh_deadline();
        }
    }
}
