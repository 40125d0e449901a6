//! The peer's FIN: held until the text before it has arrived, and acknowledged.

use wire::SeqNumber;

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::reassembly::Range;
use crate::receive::Receiver;
use crate::receive::delayed_ack::{AckKind, least_delay_us};
use crate::timers::Timers;
use crate::variables::Rcv;

impl Receiver {
    pub(crate) fn hold_fin(
        &mut self,
        cx: &mut Cx<'_>,
        fin_seq: SeqNumber,
        bare: bool,
        conn_flags: &mut ConnFlags,
        rcv: &Rcv,
        timers: &mut Timers,
    ) {
        if self
            .held_fin(*conn_flags)
            .is_some_and(|held| held.lt(fin_seq))
        {
            // Nothing follows a FIN, not even another FIN.
            self.owe_duplicate_ack(cx, conn_flags, rcv, timers);
            return;
        }
        if bare {
            self.note_duplicates(cx, fin_seq, fin_seq + 1, conn_flags);
        }
        conn_flags.set(ConnFlags::FIN_HELD);
        self.note_fin_seq(fin_seq);
        if bare {
            self.out_of_order_in = self.out_of_order_in.wrapping_add(1);
            if conn_flags.has(ConnFlags::SACK) {
                let reported = Range {
                    left: fin_seq,
                    right: fin_seq + 1,
                };
                self.held_mut().hear(cx.ranges, reported);
            }
            self.owe_duplicate_ack(cx, conn_flags, rcv, timers);
        }
        self.refresh_out_of_order(cx, conn_flags);
    }

    /// Acknowledges the peer's FIN. The application's answer, or our FIN, may follow soon, so the
    /// ACK waits to ride on it (Linux).
    pub(crate) fn acknowledge_end(
        &mut self,
        cx: &mut Cx<'_>,
        conn_flags: &mut ConnFlags,
        rcv: &Rcv,
        timers: &mut Timers,
    ) {
        self.expect_answer(true);
        if self.is_overfull() {
            conn_flags.set(ConnFlags::NO_MEMORY);
            self.request_ack(AckKind::End, conn_flags);
        }
        self.schedule_ack(cx, conn_flags, rcv, timers);
        if self.ato_us() == 0 {
            // No text came before, so there is no pace to follow.
            self.restart_pace(least_delay_us(cx));
        }
    }
}
