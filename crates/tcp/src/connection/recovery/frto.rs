//! ACKs in the Loss state, and F-RTO: was the timeout spurious (RFC 5682 3.1, with SACK and
//! without)?

use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::ack::Ack;
use crate::recovery::flag;

impl Connection {
    /// An ACK in Loss: back to Open when all is recovered or nothing was lost; else repeat on.
    pub(crate) fn take_ack_in_loss(&mut self, cx: &mut Cx<'_>, ack: &Ack) {
        let recovered = self.snd.una.ge(self.recovery.high_seq());
        if ack.advanced && self.try_undo_loss(cx, ack, false) {
            return;
        }
        if self.recovery.any(flag::FRTO) && self.frto_decides(cx, ack, recovered) {
            return;
        }
        if recovered {
            self.try_undo_recovery(cx, ack);
            return;
        }
        if self.is_reno() {
            // A duplicate now means that the new data of the test arrived.
            if self.snd.nxt.gt(self.recovery.high_seq()) && ack.duplicates > 0 {
                self.recovery
                    .add_reno_sack(&self.snd, cx.config, cx.counters, ack);
            } else if ack.advanced {
                self.recovery.reset_reno_sack();
            }
        }
        self.recovery.put(flag::SEND_LOST, true);
    }

    /// RFC 5682 3.1. True = nothing else is to be done for this ACK.
    fn frto_decides(&mut self, cx: &mut Cx<'_>, ack: &Ack, recovered: bool) -> bool {
        // Step 3.b: data that was never sent again has arrived, so not all of it was lost.
        if ack.original_acked && self.try_undo_loss(cx, ack, true) {
            return true;
        }
        if self.snd.nxt.gt(self.recovery.high_seq()) {
            if ack.sacked || ack.duplicates > 0 {
                // Step 3.a: the loss was real.
                self.recovery.put(flag::FRTO, false);
            }
        } else if ack.advanced && !recovered {
            self.recovery.await_ack_of(self.snd.nxt);
            // Step 2.b: new data, whose ACK will tell.
            if (self.unsent() > 0 || self.fin_unsent()) && self.snd.usable() > 0 {
                self.recovery.put(flag::SEND_NEW, true);
                return true;
            }
            self.recovery.put(flag::FRTO, false);
        }
        false
    }
}
