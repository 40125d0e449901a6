//! ACKs in the Loss state. F-RTO tests whether the timeout was spurious (RFC 5682 3.1, with SACK
//! and without).

use crate::congestion::CaState;
use crate::context::Cx;
use crate::flight::Flight;
use crate::flight::send_parts::SendParts;
use crate::recovery::ack::Ack;
use crate::recovery::flag;

impl Flight {
    /// Takes an ACK in Loss: back to Open when all is recovered or nothing was lost, otherwise
    /// retransmission goes on.
    pub(super) fn take_ack_in_loss(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &Ack,
        parts: &mut SendParts<'_>,
    ) {
        let recovered = parts.snd.una().ge(self.recovery.high_seq());
        if ack.advanced && self.try_undo_loss(cx, ack, false, parts) {
            return;
        }
        if self.recovery.any(flag::FRTO) && self.frto_decides(cx, ack, recovered, parts) {
            return;
        }
        if recovered {
            self.try_undo_recovery(cx, ack, *parts.conn_flags, parts.snd, parts.ecn);
            return;
        }
        if parts.conn_flags.is_reno() {
            // A duplicate ACK now means that the new data of F-RTO's test arrived.
            if parts.snd.nxt().gt(self.recovery.high_seq()) && ack.duplicates > 0 {
                self.recovery
                    .add_reno_sack(parts.snd, cx.config, cx.counters, ack);
            } else if ack.advanced {
                self.recovery.reset_reno_sack();
            }
        }
        self.recovery.put(flag::SEND_LOST, true);
    }

    /// F-RTO's decision by RFC 5682 3.1. True: nothing else is to be done for this ACK.
    fn frto_decides(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &Ack,
        recovered: bool,
        parts: &mut SendParts<'_>,
    ) -> bool {
        // Step 3.b: data arrived that was never retransmitted, so not all of it was lost.
        if ack.original_acked && self.try_undo_loss(cx, ack, true, parts) {
            return true;
        }
        if parts.snd.nxt().gt(self.recovery.high_seq()) {
            if ack.sacked || ack.duplicates > 0 {
                // Step 3.a: the loss was real.
                self.recovery.put(flag::FRTO, false);
            }
        } else if ack.advanced && !recovered {
            self.recovery.await_ack_of(parts.snd.nxt());
            // Step 2.b: sends new data, whose ACK decides.
            if (parts.snd.unsent(parts.state, *parts.conn_flags) > 0
                || parts.conn_flags.fin_unsent())
                && parts.snd.usable() > 0
            {
                self.recovery.put(flag::SEND_NEW, true);
                return true;
            }
            self.recovery.put(flag::FRTO, false);
        }
        false
    }

    /// Tests in Loss whether the timeout was spurious, by timestamp, D-SACK, or F-RTO.
    fn try_undo_loss(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &Ack,
        by_frto: bool,
        parts: &mut SendParts<'_>,
    ) -> bool {
        if !by_frto && !self.may_undo(ack, *parts.conn_flags, parts.snd) {
            return false;
        }
        cx.counters.undone_loss += 1;
        if by_frto {
            cx.counters.timeouts_spurious += 1;
        }
        self.undo_reduction(cx, true, parts.ecn);
        parts.timers.settle_retransmits();
        if self.holds_reno(cx, *parts.conn_flags, parts.snd) {
            return true;
        }
        if by_frto || !parts.conn_flags.is_reno() {
            self.set_ca_state(cx, CaState::Open, parts.snd);
            self.recovery.put(flag::RENEGING, false);
        }
        true
    }
}
