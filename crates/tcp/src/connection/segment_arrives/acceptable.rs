//! First step: is the sequence number acceptable (RFC 9293 3.10.7.4), is the timestamp (RFC 7323
//! 5.3)?

use wire::tcp::Flags;

use super::Step;
use crate::connection::Connection;
use crate::connection::timers::AckKind;
use crate::connection::timestamp::is_bare_ack;
use crate::context::Cx;
use crate::effects::Effects;
use crate::marks::Marks;
use crate::segment::Segment;
use crate::state::State;

impl Connection {
    pub(super) fn step_acceptable(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        // The next step judges a RST by narrower rules of its own (RFC 5961 3; MUST-66).
        if seg.has(Flags::RST) {
            return Step::Continue(Effects::NONE);
        }
        if !seg.flags.intersects(Flags::ACK | Flags::SYN) {
            // A segment without ACK has no use, whatever its number (Linux).
            cx.counters.drop_no_ack += 1;
            return Step::Done(Effects::NONE);
        }
        if self.paws_rejects(cx, seg) {
            cx.counters.drop_paws += 1;
            // A bare ACK with an old number was overtaken: the peer expects no answer (Linux).
            if !(is_bare_ack(seg) && seg.seq.lt(self.rcv.nxt)) {
                self.answer_invalid(cx, seg);
            }
            return Step::Done(Effects::NONE);
        }
        if self.is_acceptable(seg) && (!self.is_fast_opened() || self.is_in_window(seg)) {
            return Step::Continue(Effects::NONE);
        }
        if seg.has(Flags::SYN) {
            // Outside the window too, a SYN earns a challenge, no more (RFC 5961 4.2).
            cx.counters.drop_syn_synchronized += 1;
            let _ = self.challenge(cx);
            return Step::Done(Effects::NONE);
        }
        self.restart_time_wait(cx, seg);
        cx.counters.drop_outside_window += 1;
        self.answer_invalid(cx, seg);
        Step::Done(Effects::NONE)
    }

    /// Linux's reading of RFC 9293 table 6: a segment that ends before our last ACK is old, and one
    /// that starts behind the window is not for us. Other segments pass for the sake of their ACK
    /// (MUST-66), and the window cuts their text later.
    fn is_acceptable(&self, seg: &Segment) -> bool {
        let edge = self.rcv.nxt + self.promised_window();
        if seg.end().lt(self.rcv.acked) || seg.seq.gt(edge) {
            return false;
        }
        // While unread text waits, a segment with text beyond the edge is ignored, including its
        // ACK (recent Linux). A FIN takes no room, and neither does the peer's FIN.
        let is_waiting = self.rx.unread() > 0 || !self.state().receives_data();
        if (seg.seq + seg.len).gt(edge) && is_waiting {
            return false;
        }
        // Text at the very edge of an open window says only that it came too soon.
        seg.seq == self.rcv.nxt || seg.seq != edge || seg.len == 0
    }

    /// RFC 9293 table 6 to the letter, as it completes the handshake of a connection that was
    /// opened fast (Linux).
    fn is_in_window(&self, seg: &Segment) -> bool {
        let edge = self.rcv.nxt + self.promised_window();
        let is_within = seg.end().gt(self.rcv.nxt) && seg.seq.lt(edge);
        seg.seq == self.rcv.nxt || is_within || (seg.seq == edge && seg.end() == edge)
    }

    /// An unacceptable segment is answered with an ACK (RFC 9293 3.10.7.4). Text always is, since
    /// its sender lacks our ACK; empty segments only so often, or two confused peers would answer
    /// each other for ever.
    pub(super) fn answer_invalid(&mut self, cx: &mut Cx<'_>, seg: &Segment) {
        if seg.len > 0 || seg.has(Flags::FIN) {
            // Before the handshake of a Fast Open is over, the segment is answered as by a
            // half-open connection, briefly (Linux).
            if seg.seq.lt(self.rcv.nxt) && !self.is_fast_opened() {
                self.enter_quick_ack(cx, cx.config.quick_acks_max);
                self.suspect_option(seg);
                self.report_duplicate(cx, seg.seq, seg.end().min(self.rcv.nxt));
            }
            self.request_ack(AckKind::Answer);
        } else if self.tx.may_answer_invalid(cx.now_ns, cx.config) {
            self.request_ack(AckKind::Answer);
        }
    }

    /// A challenge ACK (RFC 5961), if the connection's and the stack's limits grant it.
    pub(crate) fn challenge(&mut self, cx: &mut Cx<'_>) -> bool {
        let granted = self.tx.may_answer_invalid(cx.now_ns, cx.config)
            && cx.challenge.allow(cx.now_ns, cx.config);
        if granted {
            cx.counters.challenge_acks_out += 1;
            self.request_ack(AckKind::Answer);
        } else {
            cx.counters.challenge_acks_limited += 1;
        }
        granted
    }

    /// The SYN of a connection that was opened fast came again: so does our SYN-ACK.
    pub(super) fn on_repeated_fast_syn(&mut self, cx: &mut Cx<'_>) {
        cx.counters.syns_repeated += 1;
        if self.tx.may_answer_invalid(cx.now_ns, cx.config) {
            self.marks.set(Marks::SYN_DUE);
        }
    }

    /// The peer sent its FIN again: it has not seen our ACK, TIME_WAIT starts over (RFC 9293
    /// 3.10.7.4, eighth step).
    pub(super) fn restart_time_wait(&mut self, cx: &Cx<'_>, seg: &Segment) {
        if self.state() == State::TimeWait && seg.has(Flags::FIN) && seg.end() == self.rcv.nxt {
            self.arm_slow(cx.now_ns.saturating_add(cx.config.time_wait_ns));
        }
    }
}
