//! The tail loss probe (RFC 8985 7): when ACKs stop, one segment leaves ahead of the timeout, and
//! its ACK shows the missing data.

use crate::SECOND_NS;
use crate::congestion::CaState;
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::ecn::EcnState;
use crate::flight::Flight;
use crate::limits::TIMER_SLACK_NS;
use crate::plan::Retransmission;
use crate::receive::Receiver;
use crate::records::tag;
use crate::recovery::ack::Ack;
use crate::recovery::{Pending, flag};
use crate::state::State;
use crate::timers::Timers;
use crate::variables::Snd;

impl Flight {
    /// Arms the probe's timer, if a probe makes sense. `afresh`: an ACK also restarts the timeout.
    #[inline]
    pub(crate) fn schedule_probe(
        &mut self,
        cx: &Cx<'_>,
        afresh: bool,
        conn_flags: ConnFlags,
        timers: &mut Timers,
    ) -> bool {
        if !self.is_probe_sensible(cx, conn_flags) {
            return false;
        }
        let timeout_ns = if afresh {
            Some(timers.rtt().rto_ns())
        } else {
            self.recovery
                .timeout_from_head_ns(timers, cx.records, cx.now_ns)
        };
        self.arm_probe(cx, timeout_ns, timers);
        true
    }

    /// True if the loss of anything in flight would be found sooner by a probe than by the timeout.
    #[inline]
    pub(crate) fn is_probe_sensible(&self, cx: &Cx<'_>, conn_flags: ConnFlags) -> bool {
        let recovery = &self.recovery;
        cx.config.tail_loss_probe
            && recovery.packets_out() > 0
            && !conn_flags.has(ConnFlags::FAST_OPENED)
            && !conn_flags.is_reno()
            && matches!(recovery.ca_state(), CaState::Open | CaState::Cwr)
    }

    /// Arms the probe's timer: two round trips from now, but no later than the timeout,
    /// `timeout_ns` from now.
    #[inline]
    pub(crate) fn arm_probe(&mut self, cx: &Cx<'_>, timeout_ns: Option<u64>, timers: &mut Timers) {
        let recovery = &self.recovery;
        let mut wait_ns = if timers.rtt().srtt_us() == 0 {
            SECOND_NS
        } else if recovery.packets_out() == 1 {
            // The peer may delay its ACK of a single segment.
            2 * timers.rtt().srtt_ns() + timers.rto_ns_min(cx.config)
        } else {
            2 * timers.rtt().srtt_ns() + TIMER_SLACK_NS
        };
        if let Some(timeout_ns) = timeout_ns {
            wait_ns = wait_ns.min(timeout_ns);
        }
        let wait_ns = self.paced_wait_ns(cx, wait_ns, timers);
        self.arm_pending(Pending::Probe, cx.now_ns + wait_ns, timers);
    }

    /// Plans the last segment as the probe.
    pub(crate) fn plan_probe(
        &self,
        cx: &Cx<'_>,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
        rx: &Receiver,
        ecn: &EcnState,
    ) -> Option<Retransmission> {
        let tail = self.recovery.tail(cx.records)?;
        let last = match tail.payload() % u32::from(tail.mss) {
            0 => u32::from(tail.mss),
            rest => rest,
        };
        let len = last
            .min(tail.payload())
            .min(ecn.current_mss(cx, conn_flags, snd, timers, rx));
        let fin = tail.has(tag::FIN);
        let seq = (tail.end - u32::from(fin) - len).max(snd.una());
        let len = (tail.end - u32::from(fin)).since(seq);
        let fits = seq == snd.una() || (seq + len).le(snd.wnd_end());
        fits.then_some(Retransmission::new(seq, len, fin))
    }

    /// Notes that a probe has left.
    pub(crate) fn note_probe_sent(
        &mut self,
        cx: &mut Cx<'_>,
        retransmitted: bool,
        state: State,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
    ) {
        self.recovery.note_probe(snd.nxt(), retransmitted);
        self.rearm_retransmit(cx, state, *conn_flags, snd, timers);
        self.after_recovery_event(conn_flags);
    }

    /// Takes an ACK while a probe is out. The episode ends when the ACK covers the probe. If the
    /// probe repaired a loss, the window is reduced (RFC 8985 7.4.2).
    pub(crate) fn take_probe_ack(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &Ack,
        snd: &Snd,
        ecn: &mut EcnState,
    ) {
        let high_seq = self.recovery.tlp_high_seq();
        if !self.recovery.any(flag::TLP) || ack.seq.lt(high_seq) {
            return;
        }
        let needless = !self.recovery.any(flag::TLP_RETRANS) || ack.dsack_of_probe;
        if needless {
            self.recovery.put(flag::TLP, false);
        } else if ack.seq.gt(high_seq) {
            cx.counters.loss_probes_repaired += 1;
            self.begin_reduction(cx, snd, ecn);
            self.set_ca_state(cx, CaState::Cwr, snd);
            self.end_reduction(cx, snd);
            self.try_keep_open(cx, snd);
        } else if !ack.advanced && !ack.is_no_duplicate() && !ack.sacked {
            // A bare duplicate ACK: both the original and the probe arrived.
            self.recovery.put(flag::TLP, false);
        }
    }
}
