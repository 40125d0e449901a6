//! The state changes after a segment has left: sequence numbers, timers, measurements, counters.

use wire::SeqNumber;
use wire::tcp::Flags;

use super::Plan;
use super::defer::Deferral;
use crate::congestion::{CaState, Congestion, Event};
use crate::connection::Connection;
use crate::connection::timers::AckKind;
use crate::context::Cx;
use crate::marks::Marks;
use crate::records::tag;
use crate::recovery::rate::Busy;
use crate::recovery::{Pending, flag};
use crate::segment::SegmentOut;
use crate::state::State;
use crate::timers::NEVER_NS;

impl Connection {
    #[inline]
    pub(super) fn note_sent(&mut self, cx: &mut Cx<'_>, plan: Plan, out: &SegmentOut) {
        cx.counters.segments_out += 1;
        let bears_payload = matches!(plan, Plan::Fresh { .. } | Plan::Repeat { .. });
        let goes_on = bears_payload && !self.delivery.begins_burst();
        self.delivery.note_out(cx.now_ns, goes_on);
        if out.payload_len == 0 {
            self.pacing.on_control_sent(cx.now_ns);
        }
        // A RST that answers a foreign segment is no segment of this connection.
        let own = u32::from(plan != Plan::ReplyReset);
        self.tx.segs_out = self.tx.segs_out.wrapping_add(own);
        match plan {
            Plan::Nothing => {}
            Plan::Fresh {
                len,
                fin,
                probes_path,
            } => self.note_fresh(cx, len, fin, probes_path),
            Plan::Repeat { seq, len, fin } => self.note_repeat(cx, seq, len, fin),
            Plan::Syn => self.note_syn(cx, out.payload_len),
            // The ACK that it goes before is still due.
            Plan::OwedAck => return,
            Plan::Probe => self.marks.clear(Marks::PROBE_DUE),
            Plan::Ack => self.rx.pay_dup_ack(),
            Plan::Reset => {
                cx.counters.resets_out += 1;
                self.marks.clear(Marks::RESET_DUE);
                self.rx.held_mut().release(cx.ranges);
            }
            Plan::ReplyReset => {
                cx.counters.resets_out += 1;
                self.marks.clear(Marks::REPLY_RESET);
            }
        }
        if out.flags.contains(Flags::ACK) && self.state() != State::Closed {
            self.note_ack_sent(cx);
            // Further duplicate ACKs are owed, so this ACK does not settle them.
            if self.rx.dup_acks_due() > 0 {
                self.request_ack(AckKind::Due);
            }
        }
    }

    #[inline]
    fn note_fresh(&mut self, cx: &mut Cx<'_>, len: u32, fin: bool, probes_path: bool) {
        let idle = self.recovery.packets_out() == 0;
        if self.snd.flight() == 0 {
            self.tx.progress_ns = cx.now_ns;
        }
        if self.recovery.segments_in_flight() == 0 {
            self.tell_of_start(cx);
            self.pace_by_model(cx);
        }
        if probes_path {
            self.note_path_probe(cx, len);
        }
        let end = self.snd.nxt + len + u32::from(fin);
        let pushed = len > 0 && self.is_fresh_pushed(len);
        self.note_sent_new(cx, end, tag::of_end(fin, pushed));
        self.note_stream_out(cx, len, fin);
        if len > 0 {
            self.pace(cx, len);
            // A probe of the path MTU is no small segment, however small. Later data does not wait
            // for its ACK (Linux).
            if len < self.current_mss(cx) && !probes_path {
                self.tx.small_end = self.snd.nxt;
            }
        }
        let is_probe = self.marks.has(Marks::PERSIST | Marks::PUSH_DUE);
        self.marks.clear(Marks::PUSH_DUE);
        self.after_new_sent(cx, idle);
        if is_probe {
            // The retransmission timeout, not another probe, watches over data that the persist
            // timer sent (Linux).
            self.restart_retransmit_timer(cx);
        }
    }

    /// Bytes of the stream, and its end, leave for the first time.
    #[inline]
    pub(super) fn note_stream_out(&mut self, cx: &mut Cx<'_>, len: u32, fin: bool) {
        if fin {
            self.marks.set(Marks::FIN_SENT);
            self.delivery.start(cx.now_ns, Busy::Sending);
        }
        if len > 0 {
            self.tx.data_segs_out = self.tx.data_segs_out.wrapping_add(1);
            self.tx.last_sent_ns = cx.now_ns;
            self.delivery.count_fresh(len);
            self.rx.note_answer(cx.now_ns);
        }
    }

    /// A flight begins.
    #[inline]
    pub(super) fn tell_of_start(&mut self, cx: &Cx<'_>) {
        if self.congestion.heeds_start() {
            let idle_ns = cx.now_ns.saturating_sub(self.tx.last_sent_ns);
            let app_limited = self.delivery.is_app_limited();
            let event = Event::TxStart {
                idle_ns,
                app_limited,
            };
            self.tell_algorithm(cx, event);
        }
    }

    /// Timers and the use of the window, after a new segment; `idle` = nothing was in flight
    /// before.
    #[inline]
    pub(super) fn after_new_sent(&mut self, cx: &mut Cx<'_>, idle: bool) {
        if self.marks.has(Marks::PERSIST) {
            self.end_persist();
        }
        if idle || self.recovery.pending() == Pending::Probe {
            self.rearm_retransmit(cx);
        }
        self.note_use(false);
        self.delivery.note_new();
        if self.recovery.any(flag::PROBE_NEW) {
            self.note_probe_sent(cx, false);
        } else {
            self.schedule_probe(cx, false);
        }
    }

    /// Notes how far the window is used.
    #[inline]
    fn note_use(&mut self, deferred: bool) {
        let limited = deferred || self.recovery.segments_in_flight() >= self.congestion.cwnd();
        let (snd, flight) = (&self.snd, self.recovery.packets_out());
        self.congestion
            .note_flight(snd.una, snd.nxt, flight, limited);
    }

    /// Notes how far all sent data uses the window (RFC 2861). A window that stays unused decays.
    #[inline]
    pub(super) fn validate_window(&mut self, cx: &Cx<'_>, deferred: bool) {
        self.note_use(deferred);
        self.delivery.settle_new();
        let flight = self.recovery.packets_out();
        let rto_ns = self.tx.rtt.rto_ns();
        let unused = self.congestion.is_unused_for(flight, cx.now_ns, rto_ns);
        let may_decay = cx.config.slow_start_after_idle && !self.congestion.is_model();
        if unused && may_decay {
            self.decay_window(cx);
        }
    }

    #[cold]
    fn decay_window(&mut self, cx: &Cx<'_>) {
        let remembered = self.current_ssthresh();
        let initial = Congestion::initial_window(cx.config, false);
        if self.recovery.ca_state() == CaState::Open {
            self.congestion.decay(initial, remembered, cx.now_ns);
        } else {
            self.congestion.note_use(cx.now_ns);
        }
    }

    /// Nothing more to send now: who was the limit?
    pub(super) fn note_stop(&mut self, cx: &Cx<'_>) {
        self.note_busy(cx);
        let waits = self.unsent() > 0;
        let is_full = || self.recovery.segments_in_flight() >= self.congestion.cwnd();
        // For a sender that pacing holds back, Linux does not ask whether the window would hold it
        // too.
        let is_deferred = || {
            !self.pacing.holds(cx.now_ns)
                && self.deferral(cx, self.current_mss(cx)) == Some(Deferral::Congestion)
        };
        if waits && !is_full() && is_deferred() {
            self.validate_window(cx, true);
        } else if self.delivery.has_sent_new() || (waits && is_full()) {
            self.validate_window(cx, false);
        }
    }

    #[cold]
    fn note_repeat(&mut self, cx: &mut Cx<'_>, seq: SeqNumber, len: u32, fin: bool) {
        cx.counters.segments_retransmitted += 1;
        self.tx.total_retrans = self.tx.total_retrans.wrapping_add(1);
        if len > 0 {
            self.tx.data_segs_out = self.tx.data_segs_out.wrapping_add(1);
            self.tx.last_sent_ns = cx.now_ns;
            self.delivery.count_repeated(len);
            // Linux tells a repetition from an answer no more than we can.
            self.rx.note_answer(cx.now_ns);
            self.pace(cx, len);
        }
        self.note_resent(cx, seq, len, fin);
        // A retransmission makes the probe's result ambiguous.
        self.path.probe = 0;
        self.after_recovery_event();
    }

    #[cold]
    fn note_syn(&mut self, cx: &mut Cx<'_>, len: u32) {
        self.marks.clear(Marks::SYN_DUE);
        if self.is_first_syn() {
            self.cold.is_syn_sent = true;
            // The first SYN counts, also as a SYN-ACK when the peer's SYN was faster. A Fast Open's
            // SYN-ACK is counted from the beginning.
            if !self.is_fast_opened() {
                self.snd.nxt += 1 + len;
                self.cold.syn_bytes = len as u16;
            }
            if len > 0 {
                self.tx.data_segs_out = self.tx.data_segs_out.wrapping_add(1);
                self.delivery.count_fresh(len);
                self.tx.last_sent_ns = cx.now_ns;
            }
            self.tx.progress_ns = cx.now_ns;
            self.marks.set(Marks::TIMING);
            self.tx.rtt.timed_at_ns = cx.now_ns;
        } else {
            self.marks.clear(Marks::TIMING);
            if !self.is_syn_ack_of_crossed_open() {
                cx.counters.segments_retransmitted += 1;
                self.tx.total_retrans = self.tx.total_retrans.wrapping_add(1);
            }
        }
        if self.is_fast_opened() {
            // The segment belongs to the handshake, not to the connection, as Linux counts.
            self.tx.segs_out = self.tx.segs_out.wrapping_sub(1);
            // An answer to a repeated SYN leaves the timer as it is (Linux).
            if self.tx.timers.retransmit_ns == NEVER_NS {
                self.arm_syn_ack_timer(cx);
            }
        } else {
            self.start_retransmit_timer(cx);
        }
    }

    /// The first SYN-ACK after the SYNs crossed: another segment, no repetition; but its ACK may be
    /// the SYN's (Karn).
    fn is_syn_ack_of_crossed_open(&self) -> bool {
        self.state() == State::SynReceived && self.tx.retransmits == 0 && !self.is_fast_opened()
    }
}
