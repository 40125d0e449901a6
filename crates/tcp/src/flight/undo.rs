//! Undoing a needless reduction: nothing was lost, only late. Timestamps show that (Eifel, RFC 3522
//! and 4015), or D-SACKs of everything that was retransmitted (RFC 3708).

use crate::congestion::CaState;
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::ecn::EcnState;
use crate::flight::Flight;
use crate::recovery::ack::Ack;
use crate::recovery::flag;
use crate::timers::Timers;
use crate::variables::Snd;

impl Flight {
    /// True if the acknowledged data is older than the first retransmission, or if nothing was
    /// retransmitted at all.
    fn was_delayed(&self, ack: &Ack, conn_flags: ConnFlags, snd: &Snd) -> bool {
        if self.recovery.retrans_stamp_ms() != 0 {
            return ack.echoes_before(self.recovery.retrans_stamp_ms());
        }
        // Without SACK the timestamp of the retransmission is forgotten early, when `high_seq` is
        // reached.
        !(conn_flags.is_reno() && snd.una().ge(self.recovery.high_seq()))
    }

    pub(crate) fn may_undo(&self, ack: &Ack, conn_flags: ConnFlags, snd: &Snd) -> bool {
        let recovery = &self.recovery;
        recovery.are_all_needless()
            || (recovery.any(flag::UNDO) && self.was_delayed(ack, conn_flags, snd))
    }

    /// Restores window and threshold. `unmark`: no segment counts as lost any more.
    pub(crate) fn undo_reduction(&mut self, cx: &mut Cx<'_>, unmark: bool, ecn: &mut EcnState) {
        if unmark {
            self.recovery.unmark_lost(cx.records);
        }
        if self.congestion.undo(cx.config, cx.now_ns) {
            ecn.withdraw_cwr();
        }
        self.recovery.end_undo();
    }

    /// Without SACK, keeps the state until data beyond `high_seq` is acknowledged. Otherwise
    /// duplicate ACKs for earlier data would start recovery again (RFC 6582 4.1).
    pub(crate) fn holds_reno(&mut self, cx: &Cx<'_>, conn_flags: ConnFlags, snd: &Snd) -> bool {
        if snd.una() != self.recovery.high_seq() || !conn_flags.is_reno() {
            return false;
        }
        self.recovery.clean_retrans_stamp(cx.records);
        true
    }

    /// Handles the ACK of all data that was in flight when recovery began. True: the state stays
    /// nevertheless.
    pub(crate) fn try_undo_recovery(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &Ack,
        conn_flags: ConnFlags,
        snd: &Snd,
        ecn: &mut EcnState,
    ) -> bool {
        if self.may_undo(ack, conn_flags, snd) {
            cx.counters.undone_full += 1;
            self.undo_reduction(cx, false, ecn);
        } else {
            self.recovery.narrow_rack();
        }
        if self.holds_reno(cx, conn_flags, snd) {
            return true;
        }
        self.set_ca_state(cx, CaState::Open, snd);
        self.recovery.put(flag::RENEGING, false);
        false
    }

    /// Undoes the reduction if D-SACKs have reported every retransmission as needless.
    pub(crate) fn try_undo_dsack(&mut self, cx: &mut Cx<'_>, ecn: &mut EcnState) -> bool {
        if !self.recovery.are_all_needless() {
            return false;
        }
        self.recovery.persist_rack();
        cx.counters.undone_dsack += 1;
        self.undo_reduction(cx, false, ecn);
        true
    }

    /// Tests, on a partial ACK in Recovery, whether a delayed original filled the gap. True: no
    /// more retransmissions for now.
    pub(crate) fn try_undo_partial(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &Ack,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
        ecn: &mut EcnState,
    ) -> bool {
        if !self.recovery.any(flag::UNDO) || !self.was_delayed(ack, conn_flags, snd) {
            return false;
        }
        self.check_reordering(cx, ack.prior_una, conn_flags, snd, timers);
        if self.recovery.retrans_out() > 0 {
            return true;
        }
        self.recovery.clean_retrans_stamp(cx.records);
        cx.counters.undone_partial += 1;
        self.undo_reduction(cx, true, ecn);
        self.try_keep_open(cx, snd);
        false
    }
}
