//! RACK in the connection: what was delivered, and what is lost by time (RFC 8985 6).

use crate::connection::Connection;
use crate::context::Cx;
use crate::limits::{RACK_RECOVERIES_MAX, TIMER_SLACK_NS};
use crate::recovery::rack::age_us;
use crate::recovery::records::{Index, NONE, Record, tag};
use crate::recovery::{Pending, flag};
use wire::SeqNumber;

impl Connection {
    /// A segment was delivered (RFC 8985 6.2 step 2).
    #[inline]
    pub(crate) fn rack_advance(&mut self, now_ns: u64, record: &Record) {
        let rtt_us = age_us(now_ns, record);
        if rtt_us < self.tx.rtt.min_us() && record.any(tag::RETRANS | tag::EVER_RETRANS) {
            // Too soon for the retransmission: it was the original.
            return;
        }
        let rack = &mut self.recovery.rack;
        rack.advanced = true;
        rack.rtt_us = rtt_us;
        if !rack.is_after(record) {
            rack.sent_ns = record.sent_ns;
            rack.end = record.end;
        }
    }

    /// The reordering window (RFC 8985 6.2 step 4): none while no reordering was seen and duplicates alone
    /// prove the loss, else some quarters of the least round trip.
    fn reordering_window_us(&self) -> u32 {
        let recovery = &self.recovery;
        if recovery.reord_seen == 0 {
            let proven = recovery.sacked_out >= u32::from(recovery.reordering);
            if !recovery.is_before_recovery() || proven {
                return 0;
            }
        }
        let quarter_us = u64::from(self.tx.rtt.min_us() / 4);
        let wide_us = quarter_us * u64::from(recovery.rack.steps);
        wide_us.min(u64::from(self.tx.rtt.srtt_us)) as u32
    }

    /// How long until the record counts as lost; 0 or less = it does.
    pub(crate) fn rack_remaining_us(&self, now_ns: u64, record: &Record, window_us: u32) -> i64 {
        let age_us = age_us(now_ns, record);
        i64::from(self.recovery.rack.rtt_us) + i64::from(window_us) - i64::from(age_us)
    }

    /// Marks what is lost. Returns how long to wait for the rest, in microseconds; 0 = nothing to wait for.
    pub(crate) fn rack_detect_loss(&mut self, cx: &mut Cx<'_>) -> u32 {
        let window_us = self.reordering_window_us();
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
            let remaining_us = self.rack_remaining_us(cx.now_ns, &record, window_us);
            if remaining_us > 0 {
                wait_us = wait_us.max(remaining_us.min(i64::from(u32::MAX)) as u32);
                continue;
            }
            self.mark_lost(cx, here);
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
                if !self.congestion.algorithm.is_model() {
                    self.reduce_window(1, newly_lost, false);
                }
            }
            self.recovery.put(flag::SEND_LOST, true);
        }
        self.rearm_retransmit(cx);
    }

    /// D-SACKs widen the reordering window, at most once a round trip; recoveries without narrow it again.
    /// `prior_delivered` is the rate sample's.
    #[inline]
    pub(crate) fn rack_update_window(&mut self, prior_delivered: u32) {
        let recovery = &mut self.recovery;
        let rack = &mut recovery.rack;
        if prior_delivered == 0 {
            return;
        }
        if (prior_delivered.wrapping_sub(rack.last_delivered) as i32) < 0 {
            rack.dsack_seen = false;
        }
        if core::mem::take(&mut rack.dsack_seen) {
            rack.steps = rack.steps.saturating_add(1);
            rack.last_delivered = recovery.delivered;
            rack.persist = RACK_RECOVERIES_MAX;
        } else if rack.persist == 0 {
            rack.steps = 1;
        }
    }

    /// The record is presumed lost (again).
    pub(crate) fn mark_lost(&mut self, cx: &mut Cx<'_>, at: Index) {
        let Some(record) = cx.records.get_mut(at) else {
            return;
        };
        if record.has(tag::SACKED) {
            return;
        }
        self.recovery.forget_part();
        let count = record.count();
        let seq = record.seq;
        let again = record.has(tag::LOST | tag::RETRANS);
        let known = record.has(tag::LOST);
        record.tags |= tag::LOST;
        if again {
            record.tags &= !tag::RETRANS;
        }
        self.lower_hint(cx, at, seq);
        let recovery = &mut self.recovery;
        if again {
            recovery.retrans_out = recovery.retrans_out.saturating_sub(count);
            cx.counters.retransmissions_lost += u64::from(count);
        } else if known {
            return;
        } else {
            recovery.lost_out += count;
        }
        recovery.lost = recovery.lost.wrapping_add(count);
    }

    /// The first lost segment to send again may be this one.
    fn lower_hint(&mut self, cx: &Cx<'_>, at: Index, seq: SeqNumber) {
        let recovery = &mut self.recovery;
        let first = match cx.records.get(recovery.hint) {
            Some(hint) => seq.lt(hint.seq),
            None => !recovery.has_lost(),
        };
        if first {
            recovery.hint = at;
        } else if recovery.hint == NONE {
            recovery.hint = recovery.chain.head;
        }
    }
}
