//! The state machine of loss recovery (Linux's, which grew around RFC 5681, 6582, 6675 and 3168).
//!
//! ```text
//!   Open ──SACK, duplicate──► Disorder ──loss──► Recovery ──all acknowledged──► Open
//!    └──ECE──► CWR ───────────────────────loss──────┘            (or undone)
//!   any ──timeout──► Loss ──all acknowledged, or undone──► Open
//! ```

use crate::MILLISECOND_NS;
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
    /// Changes the state and informs the algorithm.
    pub(crate) fn set_ca_state(&mut self, cx: &Cx<'_>, state: CaState, snd: &Snd) {
        let moment = self.moment(cx, snd);
        self.congestion.on_state(&moment, state);
        self.recovery.set_state(state);
    }

    /// True if the first segment in flight is SACKed after SND.UNA moved: the receiver dropped data
    /// that it had SACKed. It gets a short time to correct this before the timeout discards its
    /// SACKs.
    pub(crate) fn waits_for_reneging(
        &mut self,
        cx: &Cx<'_>,
        ack: &mut Ack,
        timers: &mut Timers,
    ) -> bool {
        if !ack.reneging || !ack.advanced {
            return false;
        }
        let wait_ns = (timers.rtt().srtt_ns() / 2).max(10 * MILLISECOND_NS);
        self.arm_pending(
            crate::recovery::Pending::Timeout,
            cx.now_ns + wait_ns,
            timers,
        );
        ack.set_timer = false;
        true
    }

    /// Leaves a state that ends because `high_seq` is acknowledged. True: nothing more is to be
    /// done for this ACK.
    pub(crate) fn leave_state(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &Ack,
        conn_flags: ConnFlags,
        snd: &Snd,
        ecn: &mut EcnState,
    ) -> bool {
        if self.recovery.ca_state() == CaState::Open {
            self.recovery.forget_retrans_stamp();
            return false;
        }
        if snd.una().lt(self.recovery.high_seq()) {
            return false;
        }
        match self.recovery.ca_state() {
            // CWR lasts until data beyond `high_seq` is acknowledged, so that the receiver has seen
            // the CWR flag.
            CaState::Cwr if snd.una() != self.recovery.high_seq() => {
                self.end_reduction(cx, snd);
                self.set_ca_state(cx, CaState::Open, snd);
            }
            CaState::Recovery => {
                if conn_flags.is_reno() {
                    self.recovery.reset_reno_sack();
                }
                if self.try_undo_recovery(cx, ack, conn_flags, snd, ecn) {
                    return true;
                }
                self.end_reduction(cx, snd);
            }
            _ => {}
        }
        false
    }

    /// Takes an ACK in Recovery. True if lost segments should be retransmitted.
    pub(crate) fn ack_in_recovery(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &mut Ack,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
        ecn: &mut EcnState,
    ) -> bool {
        if !ack.advanced {
            if conn_flags.is_reno() {
                self.recovery
                    .add_reno_sack(snd, cx.config, cx.counters, ack);
            }
        } else if self.try_undo_partial(cx, ack, conn_flags, snd, timers, ecn) {
            return false;
        }
        if self.try_undo_dsack(cx, ecn) {
            self.try_to_open(cx, ack, snd, ecn);
        }
        self.find_losses(cx, ack, conn_flags, timers);
        if self.recovery.ca_state() != CaState::Recovery {
            if self.recovery.lost_out() == 0 {
                return false;
            }
            // A loss after an undo of the earlier recovery.
            self.enter_recovery(cx, ack.ece, snd, ecn);
        }
        true
    }

    /// Marks the segments that this ACK shows to be lost.
    pub(crate) fn find_losses(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &mut Ack,
        conn_flags: ConnFlags,
        timers: &mut Timers,
    ) {
        if self.recovery.packets_out() == 0 {
            return;
        }
        if conn_flags.is_reno() {
            self.recovery.reno_mark_lost(cx, ack.advanced);
            return;
        }
        let retrans_out = self.recovery.retrans_out();
        if self.rack_mark_lost(cx, timers) {
            ack.set_timer = false;
        }
        if self.recovery.retrans_out() < retrans_out {
            ack.lost_retrans = true;
        }
    }

    /// Begins fast recovery (RFC 5681 3.2, RFC 6675 5).
    pub(crate) fn enter_recovery(
        &mut self,
        cx: &mut Cx<'_>,
        ece: bool,
        snd: &Snd,
        ecn: &mut EcnState,
    ) {
        cx.counters.fast_retransmits += 1;
        self.recovery.clean_retrans_stamp(cx.records);
        self.congestion.forget_threshold();
        self.recovery.begin_undo(snd);
        if !self.recovery.is_reducing() {
            if !ece {
                self.congestion.remember_threshold(self.current_ssthresh());
            }
            self.begin_reduction(cx, snd, ecn);
        }
        self.set_ca_state(cx, CaState::Recovery, snd);
    }

    /// Begins a reduction that the network requested without loss (RFC 3168 6.1.2). It cannot be
    /// undone.
    pub(crate) fn enter_cwr(&mut self, cx: &mut Cx<'_>, snd: &Snd, ecn: &mut EcnState) {
        self.congestion.forget_threshold();
        if matches!(self.recovery.ca_state(), CaState::Open | CaState::Disorder) {
            self.recovery.put(flag::UNDO, false);
            self.begin_reduction(cx, snd, ecn);
            self.set_ca_state(cx, CaState::Cwr, snd);
        }
    }

    /// Enters Open when nothing is lost, or Disorder while anything is SACKed or retransmitted.
    pub(crate) fn try_keep_open(&mut self, cx: &Cx<'_>, snd: &Snd) {
        let disorder = self.recovery.left_out() > 0 || self.recovery.any_retransmitted(cx.records);
        let state = if disorder {
            CaState::Disorder
        } else {
            CaState::Open
        };
        if self.recovery.ca_state() != state {
            self.set_ca_state(cx, state, snd);
            self.recovery.await_ack_of(snd.nxt());
        }
    }

    pub(crate) fn try_to_open(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &Ack,
        snd: &Snd,
        ecn: &mut EcnState,
    ) {
        self.recovery.clean_retrans_stamp(cx.records);
        if ack.ece {
            self.enter_cwr(cx, snd, ecn);
        }
        if self.recovery.ca_state() != CaState::Cwr {
            self.try_keep_open(cx, snd);
        }
    }
}
