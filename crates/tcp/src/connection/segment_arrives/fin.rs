//! Eighth step: the FIN, taken in order, or held until the text before it has arrived.

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::receive::delayed_ack::AckKind;
use crate::recv_buffer::RecvBuffer;
use crate::segment::Segment;
use crate::state::State;

impl Connection {
    /// Takes a FIN. `fin`: the segment has one, and all text before it in the segment was taken.
    pub(super) fn step_fin(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        fin: bool,
        rx: &mut impl RecvBuffer,
    ) -> Effects {
        if fin {
            let fin_seq = seg.seq + seg.len;
            if fin_seq.gt(self.rcv.nxt()) {
                self.rx.hold_fin(
                    cx,
                    fin_seq,
                    seg.len == 0,
                    &mut self.conn_flags,
                    &self.rcv,
                    &mut self.timers,
                );
            } else if fin_seq == self.rcv.nxt() {
                return self.fin_in_order(cx, rx);
            }
        }
        if self
            .rx
            .held_fin(self.conn_flags)
            .is_none_or(|fin| fin.gt(self.rcv.nxt()))
        {
            return Effects::NONE;
        }
        if self.rx.fin_seq() == self.rcv.nxt() {
            return self.fin_in_order(cx, rx);
        }
        // The peer sent text beyond its own FIN, so that FIN does not count.
        self.conn_flags.clear(ConnFlags::FIN_HELD);
        self.rx.refresh_out_of_order(cx, &mut self.conn_flags);
        Effects::NONE
    }

    fn fin_in_order(&mut self, cx: &mut Cx<'_>, rx: &mut impl RecvBuffer) -> Effects {
        self.rx.purge_beyond_fin(cx.ranges, cx.counters, rx);
        self.rcv.advance(1);
        self.rx.count_fin();
        self.rx.settle_dup_acks();
        self.rx.held_mut().release(cx.ranges);
        self.conn_flags
            .clear(ConnFlags::FIN_HELD | ConnFlags::OUT_OF_ORDER | ConnFlags::DSACK);
        match self.state() {
            State::Established => {
                self.state.transition_to(State::CloseWait);
                self.rx
                    .acknowledge_end(cx, &mut self.conn_flags, &self.rcv, &mut self.timers);
                Effects::EOF
            }
            State::FinWait1 => {
                // Our FIN is not acknowledged, because the fifth step would have left this state
                // otherwise.
                self.state.transition_to(State::Closing);
                self.rx.request_ack(AckKind::End, &mut self.conn_flags);
                Effects::EOF
            }
            State::FinWait2 => {
                self.rx.request_ack(AckKind::End, &mut self.conn_flags);
                Effects::EOF | self.enter_time_wait(cx)
            }
            _ => {
                self.rx.request_ack(AckKind::End, &mut self.conn_flags);
                Effects::NONE
            }
        }
    }
}
