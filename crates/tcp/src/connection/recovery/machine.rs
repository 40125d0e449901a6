//! The state machine of loss recovery (Linux's, which grew around RFC 5681, 6582, 6675 and 3168).
//!
//! ```text
//!   Open ──SACK, duplicate──► Disorder ──loss──► Recovery ──all acknowledged──► Open
//!    └──ECE──► CWR ───────────────────────loss──────┘            (or undone)
//!   any ──timeout──► Loss ──all acknowledged, or undone──► Open
//! ```

use crate::MILLISECOND_NS;
use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::ack::Ack;
use crate::recovery::flag;

impl Connection {
    /// Changes the state and informs the algorithm.
    pub(crate) fn set_ca_state(&mut self, cx: &Cx<'_>, state: CaState) {
        let moment = self.moment(cx);
        self.congestion.on_state(&moment, state);
        self.recovery.set_state(state);
    }

    /// An ACK that is no plain progress in Open.
    pub(crate) fn alert(&mut self, cx: &mut Cx<'_>, ack: &mut Ack) {
        self.recovery.put(flag::SEND_LOST | flag::SEND_NEW, false);
        self.recovery.forget_sacks_of_nothing();
        if ack.ece {
            // Congestion is proven: nothing to undo.
            self.congestion.forget_threshold();
        }
        if self.waits_for_reneging(cx, ack) || self.leave_state(cx, ack) {
            return;
        }
        let lost = match self.recovery.ca_state() {
            CaState::Recovery => self.ack_in_recovery(cx, ack),
            CaState::Loss => self.ack_in_loss(cx, ack),
            _ => self.ack_before_recovery(cx, ack),
        };
        if lost {
            self.recovery.put(flag::SEND_LOST, true);
            self.recovery.put(flag::SEND_NEW, false);
        }
    }

    /// True if the first segment in flight is SACKed after SND.UNA moved: the receiver dropped data
    /// that it had SACKed. It gets a little time to correct this before the timeout forgets its
    /// SACKs.
    fn waits_for_reneging(&mut self, cx: &Cx<'_>, ack: &mut Ack) -> bool {
        if !ack.reneging || !ack.advanced {
            return false;
        }
        let wait_ns = (self.tx.rtt.srtt_ns() / 2).max(10 * MILLISECOND_NS);
        self.arm_pending(crate::recovery::Pending::Timeout, cx.now_ns + wait_ns);
        ack.set_timer = false;
        true
    }

    /// The state ends when `high_seq` is acknowledged. True = nothing more is to be done for this
    /// ACK.
    fn leave_state(&mut self, cx: &mut Cx<'_>, ack: &Ack) -> bool {
        if self.recovery.ca_state() == CaState::Open {
            self.recovery.forget_retrans_stamp();
            return false;
        }
        if self.snd.una.lt(self.recovery.high_seq()) {
            return false;
        }
        match self.recovery.ca_state() {
            // Held until something beyond is acknowledged, so that the receiver has seen CWR.
            CaState::Cwr if self.snd.una != self.recovery.high_seq() => {
                self.end_reduction(cx);
                self.set_ca_state(cx, CaState::Open);
            }
            CaState::Recovery => {
                if self.is_reno() {
                    self.recovery.reset_reno_sack();
                }
                if self.try_undo_recovery(cx, ack) {
                    return true;
                }
                self.end_reduction(cx);
            }
            _ => {}
        }
        false
    }

    /// Returns whether lost segments should be sent again.
    fn ack_in_recovery(&mut self, cx: &mut Cx<'_>, ack: &mut Ack) -> bool {
        if !ack.advanced {
            if self.is_reno() {
                self.recovery
                    .add_reno_sack(&self.snd, cx.config, cx.counters, ack);
            }
        } else if self.try_undo_partial(cx, ack) {
            return false;
        }
        if self.try_undo_dsack(cx) {
            self.try_to_open(cx, ack);
        }
        self.find_losses(cx, ack);
        if self.recovery.ca_state() != CaState::Recovery {
            if self.recovery.lost_out() == 0 {
                return false;
            }
            // A loss after an undo: reordering is considered first, then loss.
            self.enter_recovery(cx, ack.ece);
        }
        true
    }

    fn ack_in_loss(&mut self, cx: &mut Cx<'_>, ack: &mut Ack) -> bool {
        self.take_ack_in_loss(cx, ack);
        if self.recovery.ca_state() != CaState::Loss {
            self.cold.tally.end(self.clock_ms(cx.now_ns));
        }
        self.find_losses(cx, ack);
        let goes_on = self.recovery.ca_state() == CaState::Open || ack.lost_retrans;
        if goes_on {
            self.ack_before_recovery(cx, ack)
        } else {
            false
        }
    }

    /// Open, Disorder and CWR.
    fn ack_before_recovery(&mut self, cx: &mut Cx<'_>, ack: &mut Ack) -> bool {
        if self.is_reno() {
            if ack.advanced {
                self.recovery.reset_reno_sack();
            }
            self.recovery
                .add_reno_sack(&self.snd, cx.config, cx.counters, ack);
        }
        if matches!(self.recovery.ca_state(), CaState::Open | CaState::Disorder) {
            self.try_undo_dsack(cx);
        }
        self.find_losses(cx, ack);
        if self.recovery.lost_out() == 0 {
            self.try_to_open(cx, ack);
            return false;
        }
        if self.path_probe_lost(cx) {
            return false;
        }
        self.enter_recovery(cx, ack.ece);
        true
    }

    /// Marks what this ACK shows to be lost.
    fn find_losses(&mut self, cx: &mut Cx<'_>, ack: &mut Ack) {
        if self.recovery.packets_out() == 0 {
            return;
        }
        if self.is_reno() {
            self.recovery.reno_mark_lost(cx, ack.advanced);
            return;
        }
        let retrans_out = self.recovery.retrans_out();
        if self.rack_mark_lost(cx) {
            ack.set_timer = false;
        }
        if self.recovery.retrans_out() < retrans_out {
            ack.lost_retrans = true;
        }
    }

    /// Fast recovery begins (RFC 5681 3.2, RFC 6675 5).
    pub(crate) fn enter_recovery(&mut self, cx: &mut Cx<'_>, ece: bool) {
        cx.counters.fast_retransmits += 1;
        self.recovery.clean_retrans_stamp(cx.records);
        self.congestion.forget_threshold();
        self.recovery.begin_undo(&self.snd);
        if !self.recovery.is_reducing() {
            if !ece {
                self.congestion.remember_threshold(self.current_ssthresh());
            }
            self.begin_reduction(cx);
        }
        self.set_ca_state(cx, CaState::Recovery);
    }

    /// The network asks for a reduction without loss (RFC 3168 6.1.2). This reduction is not
    /// undone.
    pub(crate) fn enter_cwr(&mut self, cx: &mut Cx<'_>) {
        self.congestion.forget_threshold();
        if matches!(self.recovery.ca_state(), CaState::Open | CaState::Disorder) {
            self.recovery.put(flag::UNDO, false);
            self.begin_reduction(cx);
            self.set_ca_state(cx, CaState::Cwr);
        }
    }

    /// Nothing is lost: Open, or Disorder as long as something is out of order or sent twice.
    pub(crate) fn try_keep_open(&mut self, cx: &Cx<'_>) {
        let disorder = self.recovery.left_out() > 0 || self.recovery.any_retransmitted(cx.records);
        let state = if disorder {
            CaState::Disorder
        } else {
            CaState::Open
        };
        if self.recovery.ca_state() != state {
            self.set_ca_state(cx, state);
            self.recovery.await_ack_of(self.snd.nxt);
        }
    }

    fn try_to_open(&mut self, cx: &mut Cx<'_>, ack: &Ack) {
        self.recovery.clean_retrans_stamp(cx.records);
        if ack.ece {
            self.enter_cwr(cx);
        }
        if self.recovery.ca_state() != CaState::Cwr {
            self.try_keep_open(cx);
        }
    }
}
