//! Fifth step: the ACK field (RFC 9293 3.10.7.4, RFC 5961 5, RFC 5681 2).

use wire::tcp::Flags;

use super::Step;
use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::recovery::ack::Ack;
use crate::recovery::{Pending, flag};
use crate::segment::Segment;
use crate::state::State;
use crate::timers::NEVER_NS;

impl Connection {
    /// Takes the ACK. The first step refused segments without ACK, the fourth those with a SYN.
    pub(super) fn step_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        debug_assert!(seg.has(Flags::ACK));
        if self.snd.ecn().is_accurate() {
            self.flight.note_arrival(
                cx,
                seg,
                self.state(),
                &mut self.snd,
                &self.rcv,
                &mut self.ecn,
            );
        }
        if self.conn_flags.has(ConnFlags::FAST_OPENED) {
            if !self.complete_fast_open(cx, seg) {
                return Step::Done(Effects::NONE);
            }
            if self.snd.ecn().is_accurate() {
                self.flight
                    .take_third_ack(cx, seg, &mut self.snd, &mut self.ecn);
            }
            let step = self.acknowledgment(cx, seg);
            self.flight.rearm_after_fast_open(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &mut self.timers,
            );
            return match step {
                Step::Continue(effects) => Step::Continue(effects | Effects::CONNECTED),
                Step::Done(effects) => Step::Done(effects | Effects::CONNECTED),
            };
        }
        self.acknowledgment(cx, seg)
    }

    fn acknowledgment(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        if self.state() == State::SynReceived {
            self.conn_flags.clear(ConnFlags::MORE);
            return self.ack_in_syn_received(cx, seg);
        }
        if seg.ack.gt(self.snd.nxt()) {
            cx.counters.drop_ack_beyond_sent += 1;
            let _ = self.rx.challenge(cx, &mut self.conn_flags, &mut self.tx);
            return Step::Done(Effects::NONE);
        }
        if seg.ack.lt(self.snd.una()) {
            return self.old_ack(cx, seg);
        }
        self.rcv.end_more(seg, &mut self.conn_flags, &self.snd);
        self.timers.settle_probes();
        self.rx.note_ack(cx.now_ns);
        self.rx
            .learn_timestamp(cx, seg, self.conn_flags, &mut self.rcv);
        let taken = match self.snd.is_last_ack(seg, self.conn_flags) {
            true => self.take_last_ack(cx, seg),
            false => self.take_ack(cx, seg),
        };
        let effects = taken | self.after_fin_acked(cx, seg);
        if self.state() == State::Closed {
            Step::Done(effects)
        } else {
            Step::Continue(effects)
        }
    }

    /// Takes an acceptable ACK that is not old: SND.UNA =< SEG.ACK =< SND.NXT.
    #[inline]
    pub(super) fn take_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        // The path works, so an earlier ICMP error no longer holds.
        self.timers.forget_soft_error();
        if seg.has(Flags::CWR) {
            self.ecn
                .accept_cwr(seg, &mut self.conn_flags, &self.snd, &mut self.rx);
        }
        if let Some(record) =
            self.flight
                .whole_flight(cx, seg, self.conn_flags, &self.snd, &self.path)
        {
            return self.take_whole_flight(cx, seg, &record);
        }
        self.take_ack_in_full(cx, seg)
    }

    /// Takes the ACK of all data in flight and the FIN; path, window and recovery are not updated.
    fn take_last_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        let effects = self.advance_una(cx, seg);
        self.flight.recovery_mut().forget_in_flight(cx.records);
        self.flight
            .arm_pending(Pending::Timeout, NEVER_NS, &mut self.timers);
        effects
    }

    fn take_ack_in_full(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        let mut ack = self
            .flight
            .read_ack(seg, self.conn_flags, &self.snd, &self.tx, &self.timers);
        let window = self.snd.wnd();
        let effects = self.advance_una(cx, seg);
        self.take_window(cx, seg, window);
        if !seg.options.sack.is_empty() && !self.conn_flags.is_reno() {
            self.flight.take_sack(
                cx,
                &seg.options.sack,
                &mut ack,
                self.conn_flags,
                &self.snd,
                &self.timers,
            );
        }
        let undisturbed = !self.conn_flags.has(ConnFlags::RECOVERING);
        let news = ack.advanced || ack.sacked || ack.dsack || ack.ece;
        if !(undisturbed && ack.data && !news) || self.snd.ecn().is_accurate() {
            self.recover(cx, seg, ack);
        }
        effects
    }

    /// Takes the segment's window; `before` is the window until now.
    #[inline]
    pub(super) fn take_window(&mut self, cx: &Cx<'_>, seg: &Segment, before: u32) {
        self.learn_window(seg);
        if self.snd.wnd() != before {
            self.flight.restart_if_idle(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &self.tx,
                &self.timers,
            );
        }
        if self.conn_flags.has(ConnFlags::PERSIST)
            && !self
                .rcv
                .is_text_alone(seg, before, self.conn_flags, &self.snd)
        {
            self.flight.restart_probing(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &mut self.timers,
            );
        }
    }

    /// Moves SND.UNA to SEG.ACK; the acknowledged bytes leave the send buffer.
    #[inline]
    pub(crate) fn advance_una(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        let acked = seg.ack.since(self.snd.una());
        if acked == 0 {
            return Effects::NONE;
        }
        let fin_acked = self.conn_flags.has(ConnFlags::FIN_SENT) && seg.ack == self.snd.nxt();
        let bytes = self.snd.acknowledge(seg.ack, fin_acked);
        if self.path.is_probe_out() {
            self.flight.path_probe_acked(
                cx,
                self.conn_flags,
                &mut self.snd,
                &mut self.tx,
                &mut self.path,
            );
        }
        if self.conn_flags.has(ConnFlags::RECORDS) {
            self.tx.forget_stream_marks(&mut self.conn_flags, &self.snd);
        }
        // The count includes the FIN, as in Linux.
        self.tx.note_acked(bytes, acked);
        self.timers.note_progress(cx.now_ns);
        self.timers.settle_retransmits();
        if bytes > 0 {
            Effects::WRITABLE
        } else {
            Effects::NONE
        }
    }

    /// Runs loss recovery and congestion control, in their order.
    fn recover(&mut self, cx: &mut Cx<'_>, seg: &Segment, mut ack: Ack) {
        self.flight
            .recovery_mut()
            .count_delivered(&self.snd, ack.sack_delivered, ack.ece);
        if ack.prior_packets == 0 {
            if self.snd.ecn().is_accurate() {
                self.take_feedback(cx, seg, &mut ack);
            }
            if ack.dsack {
                let (flight, mut parts) = self.flight_and_parts();
                flight.alert(cx, &mut ack, &mut parts);
            }
            self.flight
                .take_probe_ack(cx, &ack, &self.snd, &mut self.ecn);
            self.flight.after_recovery_event(&mut self.conn_flags);
            return;
        }
        let was_reneging = self.flight.recovery().any(flag::RENEGING);
        self.take_acked_records(cx, &mut ack);
        self.flight
            .recovery_mut()
            .rack_update_window(ack.rate.prior_delivered);
        if self.snd.ecn().is_accurate() {
            self.take_feedback(cx, seg, &mut ack);
        }
        self.flight.tell_acked(cx, &ack, &self.snd);
        self.flight
            .take_probe_ack(cx, &ack, &self.snd, &mut self.ecn);
        if self.flight.recovery().is_dubious(&ack) {
            self.flight.count_duplicate(cx, &mut ack);
            let (flight, mut parts) = self.flight_and_parts();
            flight.alert(cx, &mut ack, &mut parts);
        }
        if ack.set_timer {
            self.flight.set_transmit_timer(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &mut self.timers,
            );
        }
        let newly = self
            .flight
            .recovery()
            .delivered()
            .wrapping_sub(ack.prior_delivered);
        self.flight
            .finish_rate_sample(cx, &mut ack.rate, newly, was_reneging, &self.timers);
        self.flight
            .control_window(cx, &ack, &self.snd, &self.timers);
        self.flight.refresh_pacing(cx, &self.snd, &self.timers);
        self.flight.after_recovery_event(&mut self.conn_flags);
    }

    /// Takes an ACK of data that was acknowledged before. Such an ACK may be as late as the largest
    /// window (RFC 5961 5.2). Its text and its SACK blocks count; its ACK does not.
    fn old_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        // The bytes acknowledged so far limit the age too: an ACK below the first byte sent cannot
        // be a late one.
        let age = u64::from(self.snd.una().since(seg.ack));
        if self
            .rcv
            .is_plain_repetition(seg, self.state(), self.conn_flags, &self.snd)
        {
            self.rx
                .learn_timestamp(cx, seg, self.conn_flags, &mut self.rcv);
        }
        if age > u64::from(self.snd.max_wnd()).min(self.tx.bytes_acked()) {
            cx.counters.drop_ack_too_old += 1;
            let _ = self.rx.challenge(cx, &mut self.conn_flags, &mut self.tx);
            return Step::Done(Effects::NONE);
        }
        self.conn_flags.clear(ConnFlags::MORE);
        if !seg.options.sack.is_empty() && !self.conn_flags.is_reno() {
            let mut ack =
                self.flight
                    .read_ack(seg, self.conn_flags, &self.snd, &self.tx, &self.timers);
            self.flight.take_sack(
                cx,
                &seg.options.sack,
                &mut ack,
                self.conn_flags,
                &self.snd,
                &self.timers,
            );
            let (flight, mut parts) = self.flight_and_parts();
            flight.alert(cx, &mut ack, &mut parts);
            self.flight.after_recovery_event(&mut self.conn_flags);
        }
        Step::Continue(Effects::NONE)
    }

    fn ack_in_syn_received(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        if seg.ack.le(self.snd.una()) || seg.ack.gt(self.snd.nxt()) {
            cx.counters.drop_ack_beyond_sent += 1;
            self.tx.reply_reset(seg, &mut self.conn_flags);
            return Step::Done(Effects::NONE);
        }
        self.rx
            .learn_timestamp(cx, seg, self.conn_flags, &mut self.rcv);
        Step::Continue(self.syn_acknowledged(cx, seg))
    }

    /// Leaves the states that wait for the ACK of our FIN.
    fn after_fin_acked(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        if !self.conn_flags.has(ConnFlags::FIN_SENT) || self.snd.una() != self.snd.nxt() {
            return Effects::NONE;
        }
        match self.state() {
            State::FinWait1 if self.timers.skips_fin_wait_2(self.conn_flags) => {
                self.refuse_the_rest(cx)
            }
            State::FinWait1 => self.enter_fin_wait_2(cx, seg.has(Flags::FIN)),
            State::Closing => self.enter_time_wait(cx),
            State::LastAck => self.finish_closed(),
            _ => Effects::NONE,
        }
    }
}
