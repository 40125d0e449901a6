//! Undoing a reduction that was not called for: nothing was lost, only late. Shown by timestamps
//! (Eifel, RFC 3522 and 4015) or by D-SACKs of all that was sent again (RFC 3708).

use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::ack::Ack;
use crate::recovery::flag;

impl Connection {
    /// In Loss: tests whether the timeout was spurious, by timestamp, D-SACK, or F-RTO.
    pub(crate) fn try_undo_loss(&mut self, cx: &mut Cx<'_>, ack: &Ack, by_frto: bool) -> bool {
        if !by_frto && !self.flight.may_undo(ack, self.marks, &self.snd) {
            return false;
        }
        cx.counters.undone_loss += 1;
        if by_frto {
            cx.counters.timeouts_spurious += 1;
        }
        self.flight.undo_reduction(cx, true, &mut self.ecn);
        self.timers.settle_retransmits();
        if self.flight.holds_reno(cx, self.marks, &self.snd) {
            return true;
        }
        if by_frto || !self.marks.is_reno() {
            self.flight.set_ca_state(cx, CaState::Open, &self.snd);
            self.flight.recovery_mut().put(flag::RENEGING, false);
        }
        true
    }
}
