//! Eighth step: FIN, in order or held until the text before it has arrived.

use wire::SeqNumber;

use crate::connection::Connection;
use crate::connection::timers::{AckKind, least_delay_us};
use crate::context::Cx;
use crate::effects::Effects;
use crate::marks::Marks;
use crate::reassembly::Range;
use crate::recv_buffer::RecvBuffer;
use crate::segment::Segment;
use crate::state::State;

impl Connection {
    /// `fin` = the segment has one, and all text before it in the segment was taken.
    pub(super) fn step_fin(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        fin: bool,
        rx: &mut impl RecvBuffer,
    ) -> Effects {
        if fin {
            let fin_seq = seg.seq + seg.len;
            if fin_seq.gt(self.rcv.nxt) {
                self.hold_fin(cx, fin_seq, seg.len == 0);
            } else if fin_seq == self.rcv.nxt {
                return self.fin_in_order(cx, rx);
            }
        }
        if self
            .rx
            .held_fin(self.marks)
            .is_none_or(|fin| fin.gt(self.rcv.nxt))
        {
            return Effects::NONE;
        }
        if self.rx.fin_seq() == self.rcv.nxt {
            return self.fin_in_order(cx, rx);
        }
        // The peer sent text beyond its own FIN, so that FIN was none.
        self.marks.clear(Marks::FIN_HELD);
        self.refresh_out_of_order(cx);
        Effects::NONE
    }

    fn hold_fin(&mut self, cx: &mut Cx<'_>, fin_seq: SeqNumber, bare: bool) {
        if self
            .rx
            .held_fin(self.marks)
            .is_some_and(|held| held.lt(fin_seq))
        {
            // Nothing follows a FIN, another FIN neither.
            self.owe_duplicate_ack(cx);
            return;
        }
        if bare {
            self.note_duplicates(cx, fin_seq, fin_seq + 1);
        }
        self.marks.set(Marks::FIN_HELD);
        self.rx.hold_fin(fin_seq);
        if bare {
            self.cold.out_of_order_in = self.cold.out_of_order_in.wrapping_add(1);
            if self.marks.has(Marks::SACK) {
                let reported = Range {
                    left: fin_seq,
                    right: fin_seq + 1,
                };
                self.rx.held_mut().hear(cx.ranges, reported);
            }
            self.owe_duplicate_ack(cx);
        }
        self.refresh_out_of_order(cx);
    }

    fn fin_in_order(&mut self, cx: &mut Cx<'_>, rx: &mut impl RecvBuffer) -> Effects {
        self.rx.purge_beyond_fin(cx.ranges, cx.counters, rx);
        self.rcv.nxt += 1;
        self.rx.count_fin();
        self.keep_edge();
        self.rx.settle_dup_acks();
        self.rx.held_mut().release(cx.ranges);
        self.marks
            .clear(Marks::FIN_HELD | Marks::OUT_OF_ORDER | Marks::DSACK);
        match self.state() {
            State::Established => {
                self.state.transition_to(State::CloseWait);
                self.acknowledge_end(cx);
                Effects::EOF
            }
            State::FinWait1 => {
                // Had our FIN been acknowledged, the fifth step would have left this state.
                self.state.transition_to(State::Closing);
                self.request_ack(AckKind::End);
                Effects::EOF
            }
            State::FinWait2 => {
                self.request_ack(AckKind::End);
                Effects::EOF | self.enter_time_wait(cx)
            }
            _ => {
                self.request_ack(AckKind::End);
                Effects::NONE
            }
        }
    }

    /// The peer has said all. Our answer, or our own FIN, may follow soon, and the ACK rides on it
    /// (Linux).
    fn acknowledge_end(&mut self, cx: &mut Cx<'_>) {
        self.rx.expect_answer(true);
        if self.rx.is_overfull() {
            self.marks.set(Marks::NO_MEMORY);
            self.request_ack(AckKind::End);
        }
        self.schedule_ack(cx);
        if self.rx.ato_us() == 0 {
            // No text came before: there is no pace to wait for.
            self.rx.restart_pace(least_delay_us(cx));
        }
    }
}
