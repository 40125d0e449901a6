//! The plan of a lone segment: nothing is in flight, and all waiting data (and the FIN behind it)
//! fits one segment that both windows take. `connection::output::lone` sends it.

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::flight::Flight;
use crate::plan::Plan;
use crate::receive::Receiver;
use crate::state::State;
use crate::timers::Timers;
use crate::variables::Snd;

impl Flight {
    /// The plan, if all waiting data can leave now as a lone segment.
    #[inline]
    pub(crate) fn lone(
        &self,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        rx: &Receiver,
    ) -> Option<Plan> {
        let len = snd.buffered();
        let fin = conn_flags.has(ConnFlags::FIN_QUEUED);
        let is_lone = snd.una() == snd.nxt()
            && !conn_flags.any(ConnFlags::STOPS_LONE)
            && (len > 0 || fin)
            && len <= u32::from(snd.mss())
            && len + u32::from(fin) <= snd.wnd()
            && snd.ecn().is_off()
            && state.sends_data()
            && !self.pacing.is_on()
            && rx.dup_acks_due() == 0
            && self.delivery.burst_left() == 0
            && self.congestion.cwnd() > 0;
        // The length is at most the MSS, so it fits a u16.
        is_lone.then_some(Plan::Lone {
            len: len as u16,
            fin,
        })
    }

    /// Arms the probe's timer or the timeout, for a flight that has just begun.
    #[inline]
    pub(crate) fn set_first_timer(
        &mut self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
    ) {
        if self.is_probe_sensible(cx, conn_flags) {
            let timeout_ns = self.delivery.last_out_ns() + timers.rtt().rto_ns();
            self.arm_probe(cx, timeout_ns.checked_sub(cx.now_ns), timers);
        } else {
            self.rearm_retransmit(cx, state, conn_flags, snd, timers);
        }
    }
}
