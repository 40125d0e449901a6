//! Undoing a reduction that was not called for: nothing was lost, only late. Shown by timestamps
//! (Eifel, RFC 3522 and 4015) or by D-SACKs of all that was sent again (RFC 3708).

use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::ack::Ack;
use crate::recovery::flag;

impl Connection {
    /// True if the acknowledged data is older than the first retransmission, or if nothing was
    /// retransmitted at all.
    fn was_delayed(&self, ack: &Ack) -> bool {
        if self.recovery.retrans_stamp_ms() != 0 {
            return ack.echoes_before(self.recovery.retrans_stamp_ms());
        }
        // Without SACK the timestamp is forgotten early, when `high_seq` is reached.
        !(self.is_reno() && self.snd.una.ge(self.recovery.high_seq()))
    }

    fn may_undo(&self, ack: &Ack) -> bool {
        let recovery = &self.recovery;
        recovery.are_all_needless() || (recovery.any(flag::UNDO) && self.was_delayed(ack))
    }

    /// Restores window and threshold; `unmark` = nothing counts as lost any more.
    fn undo_reduction(&mut self, cx: &mut Cx<'_>, unmark: bool) {
        if unmark {
            self.recovery.unmark_lost(cx.records);
        }
        if self.congestion.undo(cx.now_ns) {
            self.ecn.withdraw_cwr();
        }
        self.recovery.end_undo();
    }

    /// Without SACK, keeps the state until data beyond `high_seq` is acknowledged. Otherwise
    /// duplicate ACKs for earlier data would start recovery again (RFC 6582 4.1).
    fn holds_reno(&mut self, cx: &Cx<'_>) -> bool {
        if self.snd.una != self.recovery.high_seq() || !self.is_reno() {
            return false;
        }
        self.recovery.clean_retrans_stamp(cx.records);
        true
    }

    /// All data that was out when recovery began is acknowledged. True = the state stays
    /// nevertheless.
    pub(crate) fn try_undo_recovery(&mut self, cx: &mut Cx<'_>, ack: &Ack) -> bool {
        if self.may_undo(ack) {
            cx.counters.undone_full += 1;
            self.undo_reduction(cx, false);
        } else {
            self.recovery.narrow_rack();
        }
        if self.holds_reno(cx) {
            return true;
        }
        self.set_ca_state(cx, CaState::Open);
        self.recovery.put(flag::RENEGING, false);
        false
    }

    /// D-SACKs have called every retransmission needless.
    pub(crate) fn try_undo_dsack(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.recovery.are_all_needless() {
            return false;
        }
        self.recovery.persist_rack();
        cx.counters.undone_dsack += 1;
        self.undo_reduction(cx, false);
        true
    }

    /// In Loss: tests whether the timeout was spurious, by timestamp, D-SACK, or F-RTO.
    pub(crate) fn try_undo_loss(&mut self, cx: &mut Cx<'_>, ack: &Ack, by_frto: bool) -> bool {
        if !by_frto && !self.may_undo(ack) {
            return false;
        }
        cx.counters.undone_loss += 1;
        if by_frto {
            cx.counters.timeouts_spurious += 1;
        }
        self.undo_reduction(cx, true);
        self.tx.retransmits = 0;
        if self.holds_reno(cx) {
            return true;
        }
        if by_frto || !self.is_reno() {
            self.set_ca_state(cx, CaState::Open);
            self.recovery.put(flag::RENEGING, false);
        }
        true
    }

    /// In Recovery, on a partial ACK: tests whether a delayed original filled the hole. True = no
    /// more retransmissions for now.
    pub(crate) fn try_undo_partial(&mut self, cx: &mut Cx<'_>, ack: &Ack) -> bool {
        if !self.recovery.any(flag::UNDO) || !self.was_delayed(ack) {
            return false;
        }
        self.check_reordering(cx, ack.prior_una);
        if self.recovery.retrans_out() > 0 {
            return true;
        }
        self.recovery.clean_retrans_stamp(cx.records);
        cx.counters.undone_partial += 1;
        self.undo_reduction(cx, true);
        self.try_keep_open(cx);
        false
    }
}
