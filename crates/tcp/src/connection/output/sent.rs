//! The state changes after a segment has left: sequence numbers, timers, measurements, counters.

use wire::SeqNumber;
use wire::tcp::Flags;

use super::burst::Deferral;
use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::plan::Plan;
use crate::receive::delayed_ack::AckKind;
use crate::records::tag;
use crate::recovery::{CaState, flag};
use crate::segment::SegmentOut;
use crate::state::State;
use crate::timers::NEVER_NS;

impl Connection {
    #[inline]
    pub(super) fn note_sent(&mut self, cx: &mut Cx<'_>, plan: Plan, out: &SegmentOut) {
        cx.counters.segments_out += 1;
        let bears_payload = matches!(
            plan,
            Plan::Fresh { .. } | Plan::PathProbe { .. } | Plan::Retransmission { .. }
        );
        let goes_on = bears_payload && !self.flight.delivery().begins_burst();
        self.flight.delivery_mut().note_out(cx.now_ns, goes_on);
        if out.payload_len == 0 {
            self.flight.pacing_mut().on_control_sent(cx.now_ns);
        }
        // A RST that answers a foreign segment does not count as a segment of this connection.
        let own = u32::from(plan != Plan::ReplyReset);
        self.tx.count_segments(own);
        match plan {
            // The lone segment notes itself.
            Plan::Nothing | Plan::Lone { .. } => {}
            Plan::Fresh { len, fin } => self.note_fresh(cx, u32::from(len), fin, false),
            Plan::PathProbe { len } => self.note_fresh(cx, u32::from(len), false, true),
            Plan::Retransmission { len, fin } => {
                self.note_retransmission(cx, out.seq, u32::from(len), fin)
            }
            Plan::Syn => self.note_syn(cx, out.payload_len),
            // The regular ACK, which this ACK precedes, is still due.
            Plan::OwedAck => return,
            Plan::Probe => self.conn_flags.clear(ConnFlags::PROBE_DUE),
            Plan::Ack => self.rx.pay_dup_ack(),
            Plan::Reset => {
                cx.counters.resets_out += 1;
                self.conn_flags.clear(ConnFlags::RESET_DUE);
                self.rx.held_mut().release(cx.ranges);
            }
            Plan::ReplyReset => {
                cx.counters.resets_out += 1;
                self.conn_flags.clear(ConnFlags::REPLY_RESET);
            }
        }
        if out.flags.contains(Flags::ACK) && self.state() != State::Closed {
            self.note_ack_sent(cx);
            // Further duplicate ACKs are owed, so an ACK stays due.
            if self.rx.dup_acks_due() > 0 {
                self.rx.request_ack(AckKind::Due, &mut self.conn_flags);
            }
        }
    }

    #[inline]
    fn note_fresh(&mut self, cx: &mut Cx<'_>, len: u32, fin: bool, probes_path: bool) {
        let idle = self.flight.recovery().packets_out() == 0;
        if self.snd.flight() == 0 {
            self.timers.note_progress(cx.now_ns);
        }
        if self.flight.recovery().segments_in_flight() == 0 {
            self.flight.tell_of_start(cx, &self.snd, &self.tx);
            self.flight.pace_start_by_model(cx, &self.snd, &self.timers);
        }
        if probes_path {
            self.flight
                .note_path_probe(cx, len, &self.snd, &mut self.path);
        }
        let end = self.snd.nxt() + len + u32::from(fin);
        let pushed = len > 0 && self.tx.is_fresh_pushed(len, self.conn_flags, &self.snd);
        self.flight
            .note_sent_new(cx, end, tag::of_end(fin, pushed), &mut self.snd);
        self.flight.note_stream_out(
            cx,
            len,
            fin,
            &mut self.conn_flags,
            &mut self.tx,
            &mut self.rx,
        );
        if len > 0 {
            self.flight.pace(cx, len, &self.tx);
            // A probe of the path MTU never counts as a small segment, so later data does not wait
            // for its ACK (Linux).
            if len
                < self
                    .ecn
                    .current_mss(cx, self.conn_flags, &self.snd, &self.timers, &self.rx)
                && !probes_path
            {
                self.tx.note_small(self.snd.nxt());
            }
        }
        let is_probe = self
            .conn_flags
            .has(ConnFlags::PERSIST | ConnFlags::PUSH_DUE);
        self.conn_flags.clear(ConnFlags::PUSH_DUE);
        self.flight.after_new_sent(
            cx,
            idle,
            self.state(),
            &mut self.conn_flags,
            &self.snd,
            &mut self.timers,
        );
        if is_probe {
            // The retransmission timeout, not another probe, covers data that the persist timer
            // sent (Linux).
            self.flight.restart_retransmit_timer(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &mut self.timers,
            );
        }
    }

    /// Notes that sending stops, and the limit that ended it.
    pub(super) fn note_stop(&mut self, cx: &Cx<'_>) {
        self.flight
            .note_busy(cx, self.state(), self.conn_flags, &self.snd, &self.tx);
        let waits = self.snd.unsent(self.state(), self.conn_flags) > 0;
        let is_full =
            || self.flight.recovery().segments_in_flight() >= self.flight.congestion().cwnd();
        // If pacing holds the sender back, Linux does not check whether the window would, too.
        let is_deferred = || {
            !self.flight.pacing().holds(cx.now_ns)
                && self.deferral(
                    cx,
                    self.ecn
                        .current_mss(cx, self.conn_flags, &self.snd, &self.timers, &self.rx),
                ) == Some(Deferral::Congestion)
        };
        if waits && !is_full() && is_deferred() {
            self.flight
                .validate_window(cx, true, &self.snd, &self.timers);
        } else if self.flight.delivery().has_sent_new() || (waits && is_full()) {
            self.flight
                .validate_window(cx, false, &self.snd, &self.timers);
        }
    }

    #[cold]
    fn note_retransmission(&mut self, cx: &mut Cx<'_>, seq: SeqNumber, len: u32, fin: bool) {
        self.count_retransmission(cx);
        self.flight.delivery_mut().count_segment_retransmitted();
        if len > 0 {
            self.tx.count_text_segments(1);
            self.tx.note_text_sent(cx.now_ns);
            self.flight.delivery_mut().count_retransmitted(len);
            // Linux cannot tell a repetition from an answer either.
            self.rx.note_answer(cx.now_ns);
            self.flight.pace(cx, len, &self.tx);
        }
        let (flight, mut parts) = self.flight_and_parts();
        flight.note_sent_again(cx, seq, len, fin, &mut parts);
        // A retransmission makes the probe's result ambiguous.
        self.path.forget_probe();
        self.flight.after_recovery_event(&mut self.conn_flags);
    }

    /// Counts a retransmitted segment by its cause.
    fn count_retransmission(&self, cx: &mut Cx<'_>) {
        let recovery = self.flight.recovery();
        let is_probe = recovery.any(flag::PROBE_LAST) && !recovery.any(flag::SEND_HEAD);
        let counters = &mut *cx.counters;
        counters.segments_retransmitted += 1;
        let by_cause = match recovery.ca_state() {
            _ if is_probe => &mut counters.retransmitted_by_loss_probe,
            CaState::Loss if recovery.any(flag::NOT_CONGESTED) => {
                &mut counters.retransmitted_by_path
            }
            CaState::Loss => &mut counters.retransmitted_by_timeout,
            _ => &mut counters.retransmitted_by_fast_recovery,
        };
        *by_cause += 1;
    }

    #[cold]
    fn note_syn(&mut self, cx: &mut Cx<'_>, len: u32) {
        self.conn_flags.clear(ConnFlags::SYN_DUE);
        if self.opening.is_first_syn() {
            self.opening.note_syn_sent();
            // The first SYN counts, also as a SYN-ACK if the peer's SYN arrived first. A Fast
            // Open's SYN-ACK was counted when the connection was made.
            if !self.conn_flags.has(ConnFlags::FAST_OPENED) {
                self.snd.advance(self.snd.nxt() + 1 + len);
                self.opening.note_syn_bytes(len);
            }
            if len > 0 {
                self.tx.count_text_segments(1);
                self.flight.delivery_mut().count_fresh(len);
                self.tx.note_text_sent(cx.now_ns);
            }
            self.timers.note_progress(cx.now_ns);
            self.conn_flags.set(ConnFlags::TIMING);
            self.timers.note_syn_sent(cx.now_ns);
        } else {
            self.conn_flags.clear(ConnFlags::TIMING);
            if !self.is_syn_ack_of_crossed_open() {
                cx.counters.segments_retransmitted += 1;
                cx.counters.retransmitted_by_handshake += 1;
                self.flight.delivery_mut().count_segment_retransmitted();
            }
        }
        if self.conn_flags.has(ConnFlags::FAST_OPENED) {
            // The segment belongs to the handshake, not to the connection, as in Linux's counts.
            self.tx.discount_segment();
            // An answer to a repeated SYN leaves the timer as it is (Linux).
            if self.timers.retransmit_ns() == NEVER_NS {
                self.flight.arm_syn_ack_timer(
                    cx,
                    self.state(),
                    self.conn_flags,
                    &self.snd,
                    &mut self.timers,
                );
            }
        } else {
            self.flight.start_retransmit_timer(
                cx,
                self.state(),
                &mut self.conn_flags,
                &self.snd,
                &mut self.timers,
            );
        }
    }

    /// True for the first SYN-ACK after the SYNs crossed. It is a new segment, not a repetition,
    /// but its ACK may be for the SYN (Karn).
    fn is_syn_ack_of_crossed_open(&self) -> bool {
        self.state() == State::SynReceived
            && self.timers.retransmits() == 0
            && !self.conn_flags.has(ConnFlags::FAST_OPENED)
    }
}
