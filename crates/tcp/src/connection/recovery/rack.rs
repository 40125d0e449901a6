//! RACK in the connection: delivered segments, and losses found by time (RFC 8985 6).

use crate::connection::Connection;
use crate::context::Cx;
use crate::limits::TIMER_SLACK_NS;

use crate::recovery::{Pending, flag};

impl Connection {
    /// Runs after an ACK. Returns whether the reordering timer was set.
    pub(crate) fn rack_mark_lost(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.recovery.take_advanced() {
            return false;
        }
        let wait_us = self.recovery.detect_losses(cx, &self.tx);
        if wait_us == 0 {
            return false;
        }
        let wait_ns = u64::from(wait_us) * 1000 + TIMER_SLACK_NS;
        self.arm_pending(
            Pending::Reorder,
            cx.now_ns + wait_ns.min(self.tx.rtt.rto_ns()),
        );
        true
    }

    /// The time for reordering has passed.
    pub(crate) fn on_reorder_timer(&mut self, cx: &mut Cx<'_>) {
        let in_flight = self.recovery.in_flight();
        let lost = self.recovery.lost();
        let _ = self.recovery.detect_losses(cx, &self.tx);
        if in_flight != self.recovery.in_flight() {
            if self.recovery.ca_state() != crate::congestion::CaState::Recovery {
                self.enter_recovery(cx, false);
                let newly_lost = self.recovery.lost().wrapping_sub(lost);
                // An algorithm that models the path sets the amount that may leave by itself, with
                // the next ACK (Linux).
                if !self.congestion.is_model() {
                    self.reduce_window(1, newly_lost, false);
                }
            }
            self.recovery.put(flag::SEND_LOST, true);
        }
        self.rearm_retransmit(cx);
    }
}
