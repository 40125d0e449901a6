//! RACK in the connection: delivered segments, and losses found by time (RFC 8985 6).

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::ecn::EcnState;
use crate::flight::Flight;
use crate::limits::TIMER_SLACK_NS;
use crate::recovery::{Pending, flag};
use crate::state::State;
use crate::timers::Timers;
use crate::variables::Snd;

impl Flight {
    /// Marks losses after an ACK. True if the reordering timer was armed.
    pub(crate) fn rack_mark_lost(&mut self, cx: &mut Cx<'_>, timers: &mut Timers) -> bool {
        if !self.recovery.take_advanced() {
            return false;
        }
        let wait_us = self.recovery.detect_losses(cx, timers);
        if wait_us == 0 {
            return false;
        }
        let wait_ns = u64::from(wait_us) * 1000 + TIMER_SLACK_NS;
        self.arm_pending(
            Pending::Reorder,
            cx.now_ns + wait_ns.min(timers.rtt().rto_ns()),
            timers,
        );
        true
    }

    /// Marks losses when the reordering timer expires.
    pub(crate) fn on_reorder_timer(
        &mut self,
        cx: &mut Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
        ecn: &mut EcnState,
    ) {
        let in_flight = self.recovery.in_flight();
        let lost = self.recovery.lost();
        let _ = self.recovery.detect_losses(cx, timers);
        if in_flight != self.recovery.in_flight() {
            if self.recovery.ca_state() != crate::congestion::CaState::Recovery {
                self.enter_recovery(cx, false, snd, ecn);
                let newly_lost = self.recovery.lost().wrapping_sub(lost);
                // An algorithm that models the path itself sets, with the next ACK, how much may
                // leave (Linux).
                if !self.congestion.is_model() {
                    self.reduce_window(1, newly_lost, false);
                }
            }
            self.recovery.put(flag::SEND_LOST, true);
        }
        self.rearm_retransmit(cx, state, conn_flags, snd, timers);
    }
}
