//! First step: the sequence number (RFC 9293 3.10.7.4) and the timestamp (RFC 7323 5.3).

use wire::tcp::Flags;

use super::Step;
use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::receive::delayed_ack::AckKind;
use crate::segment::Segment;
use crate::timestamp::is_bare_ack;

impl Connection {
    pub(super) fn step_acceptable(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        // The next step judges a RST by narrower rules (RFC 5961 3; RFC 9293 MUST-66).
        if seg.has(Flags::RST) {
            return Step::Continue(Effects::NONE);
        }
        if !seg.flags.intersects(Flags::ACK | Flags::SYN) {
            // A segment without ACK is dropped, whatever its number (Linux).
            cx.counters.drop_no_ack += 1;
            return Step::Done(Effects::NONE);
        }
        if self
            .rx
            .paws_rejects(cx, seg, self.conn_flags, &self.snd, &self.rcv, &self.timers)
        {
            cx.counters.drop_paws += 1;
            // A bare ACK with an old number was overtaken, and the peer expects no answer (Linux).
            if !(is_bare_ack(seg) && seg.seq.lt(self.rcv.nxt())) {
                self.answer_invalid(cx, seg);
            }
            return Step::Done(Effects::NONE);
        }
        if self.rx.is_acceptable(seg, self.state(), &self.rcv)
            && (!self.conn_flags.has(ConnFlags::FAST_OPENED) || self.rcv.is_in_window(seg))
        {
            return Step::Continue(Effects::NONE);
        }
        if seg.has(Flags::SYN) {
            // A SYN outside the window too is only answered by a challenge ACK (RFC 5961 4.2).
            cx.counters.drop_syn_synchronized += 1;
            let _ = self.rx.challenge(cx, &mut self.conn_flags, &mut self.tx);
            return Step::Done(Effects::NONE);
        }
        self.timers
            .restart_time_wait(cx, seg, self.state(), &self.rcv);
        cx.counters.drop_outside_window += 1;
        self.answer_invalid(cx, seg);
        Step::Done(Effects::NONE)
    }

    /// Answers an unacceptable segment with an ACK (RFC 9293 3.10.7.4). Text is always answered,
    /// since its sender lacks our ACK. Answers to empty segments are limited, or two confused peers
    /// would answer each other for ever.
    pub(super) fn answer_invalid(&mut self, cx: &mut Cx<'_>, seg: &Segment) {
        if seg.len > 0 || seg.has(Flags::FIN) {
            // Before the handshake of a Fast Open is complete, the answer is like a half-open
            // connection's, without quick ACKs (Linux).
            if seg.seq.lt(self.rcv.nxt()) && !self.conn_flags.has(ConnFlags::FAST_OPENED) {
                self.rx.enter_quick_ack(cx, cx.config.quick_acks_max);
                self.ecn.suspect_option(seg, &self.snd, &self.rx);
                self.rx.report_duplicate(
                    cx,
                    seg.seq,
                    seg.end().min(self.rcv.nxt()),
                    &mut self.conn_flags,
                );
            }
            self.rx.request_ack(AckKind::Answer, &mut self.conn_flags);
        } else if self.tx.may_answer_invalid(cx.now_ns, cx.config) {
            self.rx.request_ack(AckKind::Answer, &mut self.conn_flags);
        }
    }
}
