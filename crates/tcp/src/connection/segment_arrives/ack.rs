//! Fifth step: the ACK field (RFC 9293 3.10.7.4, RFC 5961 5, RFC 5681 2).

use wire::tcp::Flags;

use super::Step;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::marks::Marks;
use crate::recovery::ack::Ack;
use crate::recovery::rate::RateSample;
use crate::recovery::{Pending, flag};
use crate::segment::Segment;
use crate::state::State;
use crate::timers::NEVER_NS;

impl Connection {
    pub(super) fn step_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        if !seg.has(Flags::ACK) {
            cx.counters.drop_no_ack += 1;
            return Step::Done(Effects::NONE);
        }
        if self.snd.ecn.is_accurate() {
            self.note_arrival(cx, seg);
        }
        if self.marks.has(Marks::FAST_OPENED) {
            if !self.complete_fast_open(cx, seg) {
                return Step::Done(Effects::NONE);
            }
            if self.snd.ecn.is_accurate() {
                self.take_third_ack(cx, seg);
            }
            let step = self.acknowledgment(cx, seg);
            self.rearm_after_fast_open(cx);
            return match step {
                Step::Continue(effects) => Step::Continue(effects | Effects::CONNECTED),
                Step::Done(effects) => Step::Done(effects | Effects::CONNECTED),
            };
        }
        self.acknowledgment(cx, seg)
    }

    fn acknowledgment(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        if self.state() == State::SynReceived {
            self.marks.clear(Marks::MORE);
            return self.ack_in_syn_received(cx, seg);
        }
        if seg.ack.gt(self.snd.nxt) {
            cx.counters.drop_ack_beyond_sent += 1;
            let _ = self.challenge(cx);
            return Step::Done(Effects::NONE);
        }
        if seg.ack.lt(self.snd.una) {
            return self.old_ack(cx, seg);
        }
        self.end_more(seg);
        self.tx.probes = 0;
        self.rx.note_ack(cx.now_ns);
        self.learn_timestamp(cx, seg);
        let taken = match self.is_last_ack(seg) {
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

    /// `MSG_MORE` holds a short segment back until the next ACK that is more than a duplicate.
    #[inline]
    pub(super) fn end_more(&mut self, seg: &Segment) {
        if self.marks.has(Marks::MORE)
            && (seg.ack != self.snd.una || !self.is_text_alone(seg, self.scaled_window(seg)))
        {
            self.marks.clear(Marks::MORE);
        }
    }

    /// An acceptable ACK that is not old: SND.UNA =< SEG.ACK =< SND.NXT.
    #[inline]
    pub(super) fn take_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        // The path works: what an ICMP error said of it is past.
        self.tx.soft_error = None;
        if seg.has(Flags::CWR) {
            self.accept_cwr(seg);
        }
        if let Some(record) = self.whole_flight(cx, seg) {
            return self.take_whole_flight(cx, seg, &record);
        }
        self.take_ack_in_full(cx, seg)
    }

    /// The FIN of a connection without an application is acknowledged, with all data before it.
    /// Nothing will be sent again, and no caller can ask for measurements any more.
    #[inline]
    fn is_last_ack(&self, seg: &Segment) -> bool {
        self.marks.has(Marks::FIN_SENT | Marks::ORPHAN)
            && seg.ack == self.snd.nxt
            && seg.ack != self.snd.una
            && !self.marks.any(Marks::RECOVERING | Marks::PERSIST)
    }

    /// All data in flight has arrived; path, window and recovery are not updated.
    fn take_last_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        let effects = self.advance_una(cx, seg);
        self.recovery.forget_in_flight(cx.records);
        self.arm_pending(Pending::Timeout, NEVER_NS);
        effects
    }

    fn take_ack_in_full(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        let mut ack = self.read_ack(seg);
        let window = self.snd.wnd;
        let effects = self.advance_una(cx, seg);
        self.take_window(cx, seg, window);
        if !seg.options.sack.is_empty() && !self.is_reno() {
            self.take_sack(cx, &seg.options.sack, &mut ack);
        }
        let undisturbed = !self.marks.has(Marks::RECOVERING);
        let news = ack.advanced || ack.sacked || ack.dsack || ack.ece;
        if !(undisturbed && ack.data && !news) || self.snd.ecn.is_accurate() {
            self.recover(cx, seg, ack);
        }
        effects
    }

    /// The segment's window, where it was `before`.
    #[inline]
    pub(super) fn take_window(&mut self, cx: &Cx<'_>, seg: &Segment, before: u32) {
        self.learn_window(seg);
        if self.snd.wnd != before {
            self.restart_if_idle(cx);
        }
        if self.marks.has(Marks::PERSIST) && !self.is_text_alone(seg, before) {
            self.restart_probing(cx);
        }
    }

    /// Text in order whose ACK and window say nothing new: Linux does not look at them.
    fn is_text_alone(&self, seg: &Segment, window: u32) -> bool {
        seg.len > 0
            && seg.seq == self.rcv.nxt
            && seg.flags.without(Flags::PSH) == self.snd.ecn.plain_ack()
            && !self.marks.has(Marks::OUT_OF_ORDER)
            && self.snd.wnd == window
    }

    /// The ACK before it changes anything.
    #[inline]
    fn read_ack(&self, seg: &Segment) -> Ack {
        let window = self.scaled_window(seg);
        let advanced = seg.ack.gt(self.snd.una);
        let recovery = &self.recovery;
        Ack {
            seq: seg.ack,
            prior_una: self.snd.una,
            prior_highest: self.highest_sacked(),
            prior_packets: recovery.packets_out(),
            prior_delivered: recovery.delivered(),
            prior_lost: recovery.lost(),
            prior_in_flight: recovery.in_flight(),
            acked: 0,
            sack_delivered: 0,
            sacked_bytes: 0,
            reordered: self.snd.nxt,
            first_sacked_ns: 0,
            last_sacked_ns: 0,
            echo_ms: self.echo_ms(seg),
            latest_rtt_ns: None,
            duplicates: 0,
            rate: RateSample::default(),
            data: seg.seq_len() > 0,
            window_update: advanced
                || seg.seq.gt(self.snd.wl1)
                || (seg.seq == self.snd.wl1 && (window > self.snd.wnd || window == 0)),
            advanced,
            retrans_acked: false,
            sacked: false,
            original_acked: false,
            dsack: false,
            dsack_of_probe: false,
            ece: self.sees_ece(seg),
            lost_retrans: false,
            reneging: false,
            set_timer: false,
            maybe_delayed: false,
        }
    }

    /// SND.UNA moves to SEG.ACK; bytes leave the send buffer.
    #[inline]
    pub(crate) fn advance_una(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        let acked = seg.ack.since(self.snd.una);
        if acked == 0 {
            return Effects::NONE;
        }
        let fin_acked = self.marks.has(Marks::FIN_SENT) && seg.ack == self.snd.nxt;
        let bytes = (acked - u32::from(fin_acked)).min(self.snd.buffered);
        self.snd.una = seg.ack;
        self.snd.buffered -= bytes;
        // The window's right edge stays where it was until `learn_window` moves it.
        self.snd.wnd = self.snd.wnd.saturating_sub(acked);
        if self.path.probe != 0 {
            self.path_probe_acked(cx);
        }
        if self.marks.has(Marks::RECORDS) {
            self.forget_places();
        }
        self.tx.acked += bytes;
        // FIN included, as Linux counts.
        self.tx.bytes_acked += u64::from(acked);
        self.tx.progress_ns = cx.now_ns;
        self.tx.retransmits = 0;
        if bytes > 0 {
            Effects::WRITABLE
        } else {
            Effects::NONE
        }
    }

    /// Loss recovery and congestion control, in their order.
    fn recover(&mut self, cx: &mut Cx<'_>, seg: &Segment, mut ack: Ack) {
        self.recovery
            .count_delivered(&self.snd, ack.sack_delivered, ack.ece);
        if ack.prior_packets == 0 {
            if self.snd.ecn.is_accurate() {
                self.take_feedback(cx, seg, &mut ack);
            }
            if ack.dsack {
                self.alert(cx, &mut ack);
            }
            self.take_probe_ack(cx, &ack);
            self.after_recovery_event();
            return;
        }
        let was_reneging = self.recovery.any(flag::RENEGING);
        self.take_acked_records(cx, &mut ack);
        self.recovery.rack_update_window(ack.rate.prior_delivered);
        if self.snd.ecn.is_accurate() {
            self.take_feedback(cx, seg, &mut ack);
        }
        self.tell_acked(cx, &ack);
        self.take_probe_ack(cx, &ack);
        if self.recovery.is_dubious(&ack) {
            self.count_duplicate(cx, &mut ack);
            self.alert(cx, &mut ack);
        }
        if ack.set_timer {
            self.set_transmit_timer(cx);
        }
        let newly = self.recovery.delivered().wrapping_sub(ack.prior_delivered);
        self.finish_rate_sample(cx, &mut ack.rate, newly, was_reneging);
        self.control_window(cx, &ack);
        self.refresh_pacing(cx);
        self.after_recovery_event();
    }

    /// Every ACK with news, for the algorithm.
    #[inline]
    fn tell_acked(&mut self, cx: &Cx<'_>, ack: &Ack) {
        let delivered = self.recovery.delivered().wrapping_sub(ack.prior_delivered);
        let sample = Self::ack_sample(ack, delivered);
        let moment = self.moment(cx);
        self.congestion.on_acked(&moment, &sample);
    }

    /// A duplicate as Linux has it: nothing new acknowledged, no text, no larger window, no D-SACK.
    fn count_duplicate(&mut self, cx: &mut Cx<'_>, ack: &mut Ack) {
        if !ack.advanced && !ack.is_no_duplicate() && !ack.dsack {
            ack.duplicates = 1;
            cx.counters.dup_acks_in += 1;
        }
    }

    /// Nothing about it is new but its timestamp, which Linux learns before it looks at the ACK
    /// number: in ESTABLISHED, which alone has a fast path.
    fn is_plain_repetition(&self, seg: &Segment) -> bool {
        self.state() == State::Established
            && seg.len == 0
            && seg.seq == self.rcv.nxt
            && seg.flags.without(Flags::PSH) == Flags::ACK
            && seg.options.sack.is_empty()
            && self.scaled_window(seg) == self.snd.wnd
            && !self.marks.any(Marks::OUT_OF_ORDER | Marks::URGENT)
    }

    /// Takes an ACK of data that was acknowledged before. Within the largest window it may be late
    /// (RFC 5961 5.2): its text counts, its ACK does not, its SACK blocks do.
    fn old_ack(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        // Data that was never sent cannot be acknowledged late either, however large the window.
        let age = u64::from(self.snd.una.since(seg.ack));
        if self.is_plain_repetition(seg) {
            self.learn_timestamp(cx, seg);
        }
        if age > u64::from(self.tx.max_wnd).min(self.tx.bytes_acked) {
            cx.counters.drop_ack_too_old += 1;
            let _ = self.challenge(cx);
            return Step::Done(Effects::NONE);
        }
        self.marks.clear(Marks::MORE);
        if !seg.options.sack.is_empty() && !self.is_reno() {
            let mut ack = self.read_ack(seg);
            self.take_sack(cx, &seg.options.sack, &mut ack);
            self.alert(cx, &mut ack);
            self.after_recovery_event();
        }
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
    fn after_fin_acked(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        if !self.marks.has(Marks::FIN_SENT) || self.snd.una != self.snd.nxt {
            return Effects::NONE;
        }
        match self.state() {
            State::FinWait1 if self.skips_fin_wait_2() => self.refuse_the_rest(cx),
            State::FinWait1 => self.enter_fin_wait_2(cx, seg.has(Flags::FIN)),
            State::Closing => self.enter_time_wait(cx),
            State::LastAck => self.finish_closed(),
            _ => Effects::NONE,
        }
    }
}
