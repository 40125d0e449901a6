//! The pacing rate, and the waits that pacing lengthens.

use crate::context::Cx;
use crate::flight::Flight;
use crate::pacing::Burst;
use crate::send::Sender;
use crate::timers::Timers;
use crate::variables::Snd;

impl Flight {
    /// Computes the pacing rate after the window or the round trip changed.
    #[inline]
    pub(crate) fn refresh_pacing(&mut self, cx: &Cx<'_>, snd: &Snd, timers: &Timers) {
        if self.pace_by_algorithm(cx, snd, timers) {
            return;
        }
        let mss = u32::from(snd.mss());
        let packets_out = self.recovery.packets_out();
        self.pacing.refresh(
            cx.config,
            self.congestion.window(),
            packets_out,
            mss,
            timers.rtt().srtt_us(),
        );
    }

    /// Notes that a segment with `bytes` of payload has left.
    #[inline]
    pub(crate) fn pace(&mut self, cx: &Cx<'_>, bytes: u32, tx: &Sender) {
        if self.pacing.is_on() {
            let burst = Burst {
                begins: self.delivery.begins_burst(),
                left: self.delivery.burst_left(),
            };
            let sent = tx.data_segs_out();
            self.pacing.on_sent(cx.now_ns, bytes, sent, burst);
        }
    }

    /// `wait_ns` plus the time for which pacing holds back the next segment (Linux). An answer to
    /// the last segment is expected within `wait_ns`. Without the addition, timers would take a
    /// slow sender for a silent peer.
    #[inline]
    pub(crate) fn paced_wait_ns(&self, cx: &Cx<'_>, wait_ns: u64, timers: &Timers) -> u64 {
        match self.pacing.next_ns() > cx.now_ns {
            true => self.longer_wait_ns(cx, wait_ns, timers),
            false => wait_ns,
        }
    }

    #[cold]
    fn longer_wait_ns(&self, cx: &Cx<'_>, wait_ns: u64, timers: &Timers) -> u64 {
        let delay_ns = self.pacing.next_ns().saturating_sub(cx.now_ns);
        let longest_ns = timers.rto_ns_max(cx.config).max(wait_ns);
        wait_ns.saturating_add(delay_ns).min(longest_ns)
    }
}
