//! ACKs in the Loss state. F-RTO tests whether the timeout was spurious (RFC 5682 3.1, with SACK
//! and without).

use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::ack::Ack;
use crate::recovery::flag;

impl Connection {
    /// Takes an ACK in Loss: back to Open when all is recovered or nothing was lost, otherwise
    /// retransmission goes on.
    pub(crate) fn take_ack_in_loss(&mut self, cx: &mut Cx<'_>, ack: &Ack) {
        let recovered = self.snd.una().ge(self.flight.recovery().high_seq());
        if ack.advanced && self.try_undo_loss(cx, ack, false) {
            return;
        }
        if self.flight.recovery().any(flag::FRTO) && self.frto_decides(cx, ack, recovered) {
            return;
        }
        if recovered {
            self.flight
                .try_undo_recovery(cx, ack, self.conn_flags, &self.snd, &mut self.ecn);
            return;
        }
        if self.conn_flags.is_reno() {
            // A duplicate ACK now means that the new data of F-RTO's test arrived.
            if self.snd.nxt().gt(self.flight.recovery().high_seq()) && ack.duplicates > 0 {
                self.flight
                    .recovery_mut()
                    .add_reno_sack(&self.snd, cx.config, cx.counters, ack);
            } else if ack.advanced {
                self.flight.recovery_mut().reset_reno_sack();
            }
        }
        self.flight.recovery_mut().put(flag::SEND_LOST, true);
    }

    /// F-RTO's decision by RFC 5682 3.1. True: nothing else is to be done for this ACK.
    fn frto_decides(&mut self, cx: &mut Cx<'_>, ack: &Ack, recovered: bool) -> bool {
        // Step 3.b: data arrived that was never retransmitted, so not all of it was lost.
        if ack.original_acked && self.try_undo_loss(cx, ack, true) {
            return true;
        }
        if self.snd.nxt().gt(self.flight.recovery().high_seq()) {
            if ack.sacked || ack.duplicates > 0 {
                // Step 3.a: the loss was real.
                self.flight.recovery_mut().put(flag::FRTO, false);
            }
        } else if ack.advanced && !recovered {
            self.flight.recovery_mut().await_ack_of(self.snd.nxt());
            // Step 2.b: sends new data, whose ACK decides.
            if (self.snd.unsent(self.state(), self.conn_flags) > 0 || self.conn_flags.fin_unsent())
                && self.snd.usable() > 0
            {
                self.flight.recovery_mut().put(flag::SEND_NEW, true);
                return true;
            }
            self.flight.recovery_mut().put(flag::FRTO, false);
        }
        false
    }

    /// Tests in Loss whether the timeout was spurious, by timestamp, D-SACK, or F-RTO.
    pub(crate) fn try_undo_loss(&mut self, cx: &mut Cx<'_>, ack: &Ack, by_frto: bool) -> bool {
        if !by_frto && !self.flight.may_undo(ack, self.conn_flags, &self.snd) {
            return false;
        }
        cx.counters.undone_loss += 1;
        if by_frto {
            cx.counters.timeouts_spurious += 1;
        }
        self.flight.undo_reduction(cx, true, &mut self.ecn);
        self.timers.settle_retransmits();
        if self.flight.holds_reno(cx, self.conn_flags, &self.snd) {
            return true;
        }
        if by_frto || !self.conn_flags.is_reno() {
            self.flight.set_ca_state(cx, CaState::Open, &self.snd);
            self.flight.recovery_mut().put(flag::RENEGING, false);
        }
        true
    }
}
