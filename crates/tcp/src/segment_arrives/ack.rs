//! Fifth step: the ACK field (RFC 9293 3.10.7.4, RFC 5961 5, RFC 5681 2).

use wire::tcp::Flags;

use super::Step;
use crate::congestion::{AckSample, Congestion, CongestionControl};
use crate::connection::{Connection, Cx};
use crate::effects::Effects;
use crate::marks::Marks;
use crate::recovery::{LossRecovery, Verdict};
use crate::segment::Segment;
use crate::state::State;
use crate::timers::NEVER_NS;

impl Connection {
    pub(super) fn step_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        if !seg.has(Flags::ACK) {
            cx.counters.drop_no_ack += 1;
            return Step::Done(Effects::NONE);
        }
        if self.marks.has(Marks::FAST_OPENED) {
            if !self.complete_fast_open(cx, seg) {
                return Step::Done(Effects::NONE);
            }
            return match self.step_ack(cx, seg) {
                Step::Continue(effects) => Step::Continue(effects | Effects::CONNECTED),
                Step::Done(effects) => Step::Done(effects | Effects::CONNECTED),
            };
        }
        if self.state == State::SynReceived {
            return self.ack_in_syn_received(cx, seg);
        }
        if seg.ack.gt(self.snd.nxt) {
            cx.counters.drop_ack_beyond_sent += 1;
            self.challenge(cx);
            return Step::Done(Effects::NONE);
        }
        if seg.ack.lt(self.snd.una) {
            return self.old_ack(cx, seg);
        }
        self.tx.probes = 0;
        self.learn_timestamp(cx, seg);
        let mut effects = Effects::NONE;
        if seg.ack.gt(self.snd.una) {
            effects |= self.new_ack(cx, seg);
        } else {
            self.repeated_ack(cx, seg);
        }
        self.learn_window(seg);
        effects |= self.after_fin_acked(cx);
        if self.state == State::Closed {
            Step::Done(effects)
        } else {
            Step::Continue(effects)
        }
    }

    /// New bytes are acknowledged (SND.UNA < SEG.ACK =< SND.NXT).
    #[inline]
    pub(super) fn new_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        let acked = seg.ack.since(self.snd.una);
        let fin_acked = self.marks.has(Marks::FIN_SENT) && seg.ack == self.snd.nxt;
        let bytes = (acked - u32::from(fin_acked)).min(self.snd.buffered);
        self.snd.una = seg.ack;
        self.snd.buffered -= bytes;
        // The window's right edge stays where it was until `learn_window` moves it.
        self.snd.wnd = self.snd.wnd.saturating_sub(acked);
        self.tx.acked += bytes;
        self.tx.bytes_acked += u64::from(bytes);
        self.tx.progress_ns = cx.now_ns;
        self.measure_rtt(cx, seg);
        self.tx.retransmits = 0;
        self.tx.backoff = 0;
        // The path works: what an ICMP error said of it is past.
        self.tx.soft_error = None;
        self.run_recovery(cx, acked, bytes);
        if self.snd.flight() == 0 {
            self.arm_retransmit(NEVER_NS);
        } else {
            self.restart_retransmit_timer(cx);
        }
        if bytes > 0 {
            Effects::WRITABLE
        } else {
            Effects::NONE
        }
    }

    fn run_recovery(&mut self, cx: &Cx<'_>, acked: u32, bytes: u32) {
        let flight = self.in_flight();
        if !self.marks.has(Marks::RECOVERING) {
            self.grow(cx, bytes);
            return;
        }
        match self.tx.recovery.on_ack(flight, acked) {
            Verdict::Steady | Verdict::SlowStart => self.grow(cx, bytes),
            Verdict::Recovering | Verdict::Enter => {}
            Verdict::Leave => self.congestion.window.cwnd = self.congestion.window.ssthresh,
        }
        self.after_recovery_event();
    }

    fn grow(&mut self, cx: &Cx<'_>, bytes: u32) {
        let moment = self.moment(cx);
        let acked = bytes.div_ceil(moment.mss.max(1));
        let sample = AckSample {
            acked,
            acked_sacked: acked,
            ..AckSample::default()
        };
        self.congestion.grow(&moment, &sample);
    }

    /// Loss was detected: the new threshold.
    pub(crate) fn reduce(&mut self, cx: &Cx<'_>) {
        let moment = self.moment(cx);
        let Congestion {
            window, algorithm, ..
        } = &mut self.congestion;
        window.ssthresh = algorithm.ssthresh(&moment, window);
        window.cwnd_cnt = 0;
    }

    fn measure_rtt(&mut self, cx: &Cx<'_>, seg: &Segment) {
        if self.marks.has(Marks::TIMING) {
            if seg.ack.ge(self.tx.rtt.timed_end) {
                self.marks.clear(Marks::TIMING);
                let rtt_ns = cx.now_ns.saturating_sub(self.tx.rtt.timed_at_ns);
                self.tx.rtt.sample(rtt_ns, cx.config);
            }
        } else if self.marks.has(Marks::RECOVERING)
            && let Some(rtt_ns) = self.rtt_by_timestamp(cx.now_ns, seg)
        {
            self.tx.rtt.sample(rtt_ns, cx.config);
        }
    }

    /// SEG.ACK = SND.UNA: a duplicate by RFC 5681's definition, or an empty or window-updating segment.
    fn repeated_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) {
        if self.snd.wnd < self.snd.flight() && !self.is_orphan() {
            // A shrunken window holds what was sent: the peer is alive, so do not count towards giving
            // up (RFC 9293 SHLD-17).
            self.tx.retransmits = self.tx.retransmits.min(1);
        }
        let duplicate = self.snd.flight() > 0
            && seg.seq_len() == 0
            && self.scaled_window(seg) == self.snd.wnd
            && self.state.sends_data();
        if !duplicate {
            return;
        }
        cx.counters.dup_acks_in += 1;
        let flight = self.in_flight();
        let threshold = u32::from(cx.config.dup_acks_max.max(1));
        if self.tx.recovery.on_duplicate(flight, threshold) == Verdict::Enter {
            cx.counters.fast_retransmits += 1;
            self.reduce(cx);
            self.congestion.window.cwnd = self.congestion.window.ssthresh;
            self.marks.clear(Marks::TIMING);
            self.restart_retransmit_timer(cx);
        }
        self.after_recovery_event();
    }

    /// Acknowledged before. Within the largest window it may be late (RFC 5961 5.2): its text counts, its
    /// ACK does not.
    fn old_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        // What was never sent cannot be acknowledged late either, however large the window; 1 is for the FIN.
        let age = u64::from(self.snd.una.since(seg.ack));
        if age > u64::from(self.tx.max_wnd).min(self.tx.bytes_acked + 1) {
            cx.counters.drop_ack_too_old += 1;
            self.challenge(cx);
            return Step::Done(Effects::NONE);
        }
        self.learn_timestamp(cx, seg);
        Step::Continue(Effects::NONE)
    }

    fn ack_in_syn_received(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        if seg.ack.le(self.snd.una) || seg.ack.gt(self.snd.nxt) {
            cx.counters.drop_ack_beyond_sent += 1;
            self.reply_reset(seg);
            return Step::Done(Effects::NONE);
        }
        self.learn_timestamp(cx, seg);
        Step::Continue(self.syn_acknowledged(cx, seg))
    }

    /// Our FIN is acknowledged: the states that wait for that.
    fn after_fin_acked(&mut self, cx: &mut Cx<'_>) -> Effects {
        if !self.marks.has(Marks::FIN_SENT) || self.snd.una != self.snd.nxt {
            return Effects::NONE;
        }
        match self.state {
            State::FinWait1 => self.enter_fin_wait_2(cx),
            State::Closing => self.enter_time_wait(cx),
            State::LastAck => self.finish_closed(),
            _ => Effects::NONE,
        }
    }
}
