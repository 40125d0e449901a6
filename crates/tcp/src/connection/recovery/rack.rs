//! RACK in the connection: what was delivered, and what is lost by time (RFC 8985 6).

use crate::connection::Connection;
use crate::context::Cx;
use crate::limits::TIMER_SLACK_NS;
use crate::recovery::records::{Index, tag};
use crate::recovery::{Pending, flag};

impl Connection {
    /// Marks what is lost. Returns how long to wait for the rest, in microseconds; 0 = nothing to wait for.
    pub(crate) fn rack_detect_loss(&mut self, cx: &mut Cx<'_>) -> u32 {
        let window_us = self.recovery.reordering_window_us(&self.tx);
        let mut wait_us = 0;
        let mut at: Index = self.recovery.chain.head;
        while let Some(record) = cx.records.get(at).copied() {
            let here = at;
            at = cx.records.next(at);
            let waits = record.has(tag::LOST) && !record.has(tag::RETRANS);
            if record.has(tag::SETTLED) || waits {
                continue;
            }
            if !self.recovery.rack.is_after(&record) {
                if record.has(tag::EVER_RETRANS) {
                    continue;
                }
                // Whatever stands behind was sent no earlier.
                break;
            }
            let remaining_us = self
                .recovery
                .rack_remaining_us(cx.now_ns, &record, window_us);
            if remaining_us > 0 {
                wait_us = wait_us.max(remaining_us.min(i64::from(u32::MAX)) as u32);
                continue;
            }
            self.recovery.mark_lost(cx.records, cx.counters, here);
            if let Some(record) = cx.records.get_mut(here) {
                record.tags |= tag::SETTLED;
            }
        }
        wait_us
    }

    /// After an ACK. Returns whether the reordering timer was set.
    pub(crate) fn rack_mark_lost(&mut self, cx: &mut Cx<'_>) -> bool {
        if !core::mem::take(&mut self.recovery.rack.advanced) {
            return false;
        }
        let wait_us = self.rack_detect_loss(cx);
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
        let lost = self.recovery.lost;
        let _ = self.rack_detect_loss(cx);
        if in_flight != self.recovery.in_flight() {
            if self.recovery.ca_state != crate::congestion::CaState::Recovery {
                self.enter_recovery(cx, false);
                let newly_lost = self.recovery.lost.wrapping_sub(lost);
                // Who models the path says by itself how much may leave, with the next ACK (Linux).
                if !self.congestion.is_model() {
                    self.reduce_window(1, newly_lost, false);
                }
            }
            self.recovery.put(flag::SEND_LOST, true);
        }
        self.rearm_retransmit(cx);
    }
}
