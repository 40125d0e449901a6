//! Eighth step: FIN, in order or held until the text before it has arrived.

use wire::SeqNumber;

use crate::connection::{Connection, Cx};
use crate::effects::Effects;
use crate::marks::Marks;
use crate::reassembly::Range;
use crate::segment::Segment;
use crate::state::State;
use crate::timers::least_delay_us;

impl Connection {
    /// `fin` = the segment has one, and all text before it in the segment was taken.
    pub(super) fn step_fin(&mut self, cx: &mut Cx<'_>, seg: &Segment, fin: bool) -> Effects {
        if fin {
            let fin_seq = seg.seq + seg.len;
            if fin_seq.gt(self.rcv.nxt) {
                self.hold_fin(cx, fin_seq, seg.len == 0);
            } else if fin_seq == self.rcv.nxt {
                return self.fin_in_order(cx);
            }
        }
        if !self.marks.has(Marks::FIN_HELD) || self.rx.fin_seq.gt(self.rcv.nxt) {
            return Effects::NONE;
        }
        if self.rx.fin_seq == self.rcv.nxt {
            return self.fin_in_order(cx);
        }
        // The peer sent text beyond its own FIN: that FIN was none.
        self.marks.clear(Marks::FIN_HELD);
        self.refresh_out_of_order(cx);
        Effects::NONE
    }

    fn hold_fin(&mut self, cx: &mut Cx<'_>, fin_seq: SeqNumber, bare: bool) {
        if bare && self.marks.has(Marks::FIN_HELD) && self.rx.fin_seq == fin_seq {
            self.note_duplicate(cx, fin_seq, fin_seq + 1);
        }
        self.marks.set(Marks::FIN_HELD);
        self.rx.fin_seq = fin_seq;
        if bare {
            self.cold.out_of_order_in = self.cold.out_of_order_in.wrapping_add(1);
            if self.marks.has(Marks::SACK) {
                let reported = Range {
                    left: fin_seq,
                    right: fin_seq + 1,
                };
                self.rx.held.hear(cx.ranges, reported);
            }
            self.owe_duplicate_ack(cx);
        }
        self.refresh_out_of_order(cx);
    }

    fn fin_in_order(&mut self, cx: &mut Cx<'_>) -> Effects {
        self.rcv.nxt += 1;
        self.rx.bytes_received += 1;
        self.keep_edge();
        self.rx.dup_acks_due = 0;
        self.rx.held.release(cx.ranges);
        self.marks
            .clear(Marks::FIN_HELD | Marks::OUT_OF_ORDER | Marks::DSACK);
        match self.state {
            State::Established => {
                self.state = State::CloseWait;
                self.acknowledge_end(cx);
                Effects::EOF
            }
            State::FinWait1 => {
                // Had our FIN been acknowledged, the fifth step would have left this state.
                self.state = State::Closing;
                self.marks.set(Marks::ACK_NOW);
                Effects::EOF
            }
            State::FinWait2 => {
                self.marks.set(Marks::ACK_NOW);
                Effects::EOF | self.enter_time_wait(cx)
            }
            _ => {
                self.marks.set(Marks::ACK_NOW);
                Effects::NONE
            }
        }
    }

    /// The peer has said all. Our answer, or our own FIN, may follow soon, and the ACK rides on it (Linux).
    fn acknowledge_end(&mut self, cx: &mut Cx<'_>) {
        self.rx.interactive = true;
        if self.rx.charged > self.rx.buffer {
            self.marks.set(Marks::NO_MEMORY | Marks::ACK_NOW);
        }
        self.schedule_ack(cx);
        if self.rx.ato_us == 0 {
            // No text came before: there is no pace to wait for.
            self.rx.interactive = false;
            self.rx.ato_us = least_delay_us(cx);
        }
    }
}
