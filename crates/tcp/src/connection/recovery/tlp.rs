//! The tail loss probe (RFC 8985 7): when ACKs stop, one segment leaves ahead of the timeout, and
//! its ACK shows the missing data.

use crate::SECOND_NS;
use crate::congestion::CaState;
use crate::connection::Connection;
use crate::connection::output::Plan;
use crate::context::Cx;
use crate::limits::TIMER_SLACK_NS;
use crate::marks::Marks;
use crate::records::tag;
use crate::recovery::ack::Ack;
use crate::recovery::{Pending, flag};

impl Connection {
    /// Sets the probe's timer, if a probe makes sense. `afresh` = an ACK restarts the timeout as
    /// well.
    #[inline]
    pub(crate) fn schedule_probe(&mut self, cx: &Cx<'_>, afresh: bool) -> bool {
        if !self.is_probe_sensible(cx) {
            return false;
        }
        let timeout_ns = if afresh {
            Some(self.tx.rtt.rto_ns())
        } else {
            self.recovery
                .timeout_from_head_ns(&self.tx, cx.records, cx.now_ns)
        };
        self.arm_probe(cx, timeout_ns);
        true
    }

    /// Something is in flight whose loss a probe could show sooner than the timeout.
    #[inline]
    pub(crate) fn is_probe_sensible(&self, cx: &Cx<'_>) -> bool {
        let recovery = &self.recovery;
        cx.config.tail_loss_probe
            && recovery.packets_out() > 0
            && !self.marks.has(Marks::FAST_OPENED)
            && !self.is_reno()
            && matches!(recovery.ca_state(), CaState::Open | CaState::Cwr)
    }

    /// The probe's time: two round trips, and never behind the timeout, `timeout_ns` from now.
    #[inline]
    pub(crate) fn arm_probe(&mut self, cx: &Cx<'_>, timeout_ns: Option<u64>) {
        let recovery = &self.recovery;
        let mut wait_ns = if self.tx.rtt.srtt_us == 0 {
            SECOND_NS
        } else if recovery.packets_out() == 1 {
            // The peer may delay its ACK of a single segment.
            2 * self.tx.rtt.srtt_ns() + self.cold.own_timers.rto_ns_min(cx.config)
        } else {
            2 * self.tx.rtt.srtt_ns() + TIMER_SLACK_NS
        };
        if let Some(timeout_ns) = timeout_ns {
            wait_ns = wait_ns.min(timeout_ns);
        }
        let wait_ns = self.paced_wait_ns(cx, wait_ns);
        self.arm_pending(Pending::Probe, cx.now_ns + wait_ns);
    }

    /// The probe's time has come: a new segment if one fits the peer's window, else the last one
    /// again.
    pub(crate) fn on_probe_timer(&mut self, cx: &mut Cx<'_>) {
        if self.recovery.any(flag::TLP) {
            // One probe leaves per flight.
            self.rearm_retransmit(cx);
            return;
        }
        let (unsent, mss) = (self.unsent(), self.current_mss(cx));
        // The FIN is part of the last segment, or all of it.
        let next = unsent.min(mss) + u32::from(self.fin_unsent() && unsent <= mss);
        if next > 0 && next <= self.snd.usable() {
            self.marks.set(Marks::PUSH_DUE);
            self.recovery.put(flag::PROBE_NEW, true);
        } else if !self.recovery.is_tail_sacked(cx.records) && self.plan_probe(cx).is_some() {
            self.recovery.put(flag::PROBE_LAST, true);
        } else {
            // The peer's window shrank below the segment, so only the timeout may repeat data
            // beyond the edge. Or the peer has the segment already: a reduction on ECE ended the
            // earlier probe, and its SACK came after this timer was set. Missing data then lies
            // before it.
            self.rearm_retransmit(cx);
            return;
        }
        cx.counters.loss_probes_out += 1;
        // Until the probe has left, and starts the timeout anew.
        self.recovery.set_pending(Pending::Timeout);
        self.rearm_retransmit(cx);
    }

    /// The last segment, as the probe.
    pub(crate) fn plan_probe(&self, cx: &Cx<'_>) -> Option<Plan> {
        let tail = self.recovery.tail(cx.records)?;
        let last = match tail.payload() % u32::from(tail.mss) {
            0 => u32::from(tail.mss),
            rest => rest,
        };
        let len = last.min(tail.payload()).min(self.current_mss(cx));
        let fin = tail.has(tag::FIN);
        let seq = (tail.end - u32::from(fin) - len).max(self.snd.una);
        let len = (tail.end - u32::from(fin)).since(seq);
        let fits = seq == self.snd.una || (seq + len).le(self.snd.wnd_end());
        fits.then_some(Plan::Repeat { seq, len, fin })
    }

    /// A probe has left.
    pub(crate) fn note_probe_sent(&mut self, cx: &mut Cx<'_>, repeated: bool) {
        self.recovery.note_probe(self.snd.nxt, repeated);
        self.rearm_retransmit(cx);
        self.after_recovery_event();
    }

    /// An ACK while a probe is out: the episode ends when the ACK covers it. If the probe repaired
    /// a loss, the window is reduced (RFC 8985 7.4.2).
    pub(crate) fn take_probe_ack(&mut self, cx: &mut Cx<'_>, ack: &Ack) {
        let high_seq = self.recovery.tlp_high_seq();
        if !self.recovery.any(flag::TLP) || ack.seq.lt(high_seq) {
            return;
        }
        let needless = !self.recovery.any(flag::TLP_RETRANS) || ack.dsack_of_probe;
        if needless {
            self.recovery.put(flag::TLP, false);
        } else if ack.seq.gt(high_seq) {
            cx.counters.loss_probes_repaired += 1;
            self.begin_reduction(cx);
            self.set_ca_state(cx, CaState::Cwr);
            self.end_reduction(cx);
            self.try_keep_open(cx);
        } else if !ack.advanced && !ack.is_no_duplicate() && !ack.sacked {
            // A bare duplicate: original and probe both arrived.
            self.recovery.put(flag::TLP, false);
        }
    }
}
