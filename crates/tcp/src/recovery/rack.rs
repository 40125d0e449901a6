//! RACK: a segment is lost when one that was sent later has arrived, and the time allowed for
//! reordering has passed (RFC 8985 6, with Linux's choices).

use wire::SeqNumber;

use crate::context::Cx;
use crate::counters::Counters;
use crate::limits::RACK_RECOVERIES_MAX;
use crate::pack::{Packing, Usual};
use crate::records::{Index, NONE, Record, RecordPool, tag};
use crate::recovery::Recovery;
use crate::timers::Timers;

/// RACK's state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rack {
    /// Transmission time of the delivered segment that was sent last.
    sent_ns: u64,
    /// The end of that segment's record.
    end: SeqNumber,
    /// Round trip of that segment.
    rtt_us: u32,
    /// Segments delivered when the reordering window was last widened.
    last_delivered: u32,
    /// The reordering window in quarters of the least round trip.
    steps: u8,
    /// Number of recoveries for which a widened window stays.
    persist: u8,
    /// A segment was delivered since the last search for losses.
    advanced: bool,
    /// A D-SACK arrived that reordering may explain.
    dsack_seen: bool,
}

impl Rack {
    /// The state before any segment was delivered.
    pub fn new(una: SeqNumber) -> Self {
        Rack {
            sent_ns: 0,
            end: una,
            rtt_us: 0,
            last_delivered: 0,
            steps: 1,
            persist: 0,
            advanced: false,
            dsack_seen: false,
        }
    }

    pub fn pack(&mut self, p: &mut impl Packing, delivered: u32, usual: &Usual) {
        let Rack {
            sent_ns,
            end,
            rtt_us,
            last_delivered,
            steps,
            persist,
            advanced,
            dsack_seen,
        } = self;
        let was_used = delivered > 1;
        p.u64(sent_ns, if was_used { usual.now_ns } else { 0 });
        p.seq(end, usual.una);
        p.u32(rtt_us, 0);
        p.u32(last_delivered, 0);
        p.u8(steps, 1);
        p.u8(persist, 0);
        p.bool(advanced);
        p.bool(dsack_seen);
    }

    /// True if the latest delivered segment was sent after `record`. Only segments of one burst
    /// have the same transmission time (`Delivery::note_out`).
    #[inline]
    pub(crate) fn is_after(&self, record: &Record) -> bool {
        if self.sent_ns != record.sent_ns {
            return self.sent_ns > record.sent_ns;
        }
        self.end.gt(record.end)
    }
}

/// Time since the record was sent, in microseconds. Bursts of one turn, which are a nanosecond
/// apart, get the same age.
#[inline]
pub(crate) fn age_us(now_ns: u64, record: &Record) -> u32 {
    let age_us = (now_ns / 1000).saturating_sub(record.sent_ns / 1000);
    u32::try_from(age_us).unwrap_or(u32::MAX)
}

impl Recovery {
    /// Takes a delivered segment (RFC 8985 6.2 step 2).
    #[inline]
    pub(crate) fn rack_advance(&mut self, timers: &Timers, now_ns: u64, record: &Record) {
        let rtt_us = age_us(now_ns, record);
        if rtt_us < timers.rtt().min_us() && record.any(tag::RETRANS | tag::EVER_RETRANS) {
            // The ACK came too soon for the retransmission, so the original arrived.
            return;
        }
        let rack = &mut self.rack;
        rack.advanced = true;
        rack.rtt_us = rtt_us;
        if !rack.is_after(record) {
            rack.sent_ns = record.sent_ns;
            rack.end = record.end;
        }
    }

    /// The reordering window (RFC 8985 6.2 step 4). Without any reordering seen it is 0 in
    /// recovery, or if the SACKed segments alone prove the loss. Otherwise it is some quarters of
    /// the least round trip.
    pub(crate) fn reordering_window_us(&self, timers: &Timers) -> u32 {
        let recovery = self;
        if recovery.reord_seen == 0 {
            let proven = recovery.sacked_out >= u32::from(recovery.reordering);
            if !recovery.is_before_recovery() || proven {
                return 0;
            }
        }
        let quarter_us = u64::from(timers.rtt().min_us() / 4);
        let wide_us = quarter_us * u64::from(recovery.rack.steps);
        wide_us.min(u64::from(timers.rtt().srtt_us())) as u32
    }

    /// Time until the record counts as lost, in microseconds; 0 or less: it is lost.
    pub(crate) fn rack_remaining_us(&self, now_ns: u64, record: &Record, window_us: u32) -> i64 {
        let age_us = age_us(now_ns, record);
        i64::from(self.rack.rtt_us) + i64::from(window_us) - i64::from(age_us)
    }

    /// Widens the reordering window on D-SACKs, at most once a round trip, and narrows it after
    /// enough recoveries without any. `prior_delivered` is the rate sample's.
    #[inline]
    pub(crate) fn rack_update_window(&mut self, prior_delivered: u32) {
        let recovery = &mut *self;
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

    /// Marks the record as lost, perhaps again.
    pub(crate) fn mark_lost(
        &mut self,
        records: &mut RecordPool,
        counters: &mut Counters,
        at: Index,
    ) {
        let Some(record) = records.get_mut(at) else {
            return;
        };
        if record.has(tag::SACKED) {
            return;
        }
        self.forget_part();
        let count = record.count();
        let seq = record.seq;
        let again = record.has(tag::LOST | tag::RETRANS);
        let known = record.has(tag::LOST);
        record.tags |= tag::LOST;
        if again {
            record.tags &= !tag::RETRANS;
        }
        self.lower_hint(records, at, seq);
        let recovery = &mut *self;
        if again {
            recovery.retrans_out = recovery.retrans_out.saturating_sub(count);
            counters.retransmissions_lost += u64::from(count);
        } else if known {
            return;
        } else {
            recovery.lost_out += count;
        }
        recovery.lost = recovery.lost.wrapping_add(count);
    }

    /// Notes that this may be the first lost segment to retransmit.
    pub(crate) fn lower_hint(&mut self, records: &RecordPool, at: Index, seq: SeqNumber) {
        let recovery = &mut *self;
        let first = match records.get(recovery.hint) {
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

impl Recovery {
    /// Marks lost records. Returns the wait until the next one may be lost, in microseconds; 0:
    /// none.
    pub(crate) fn detect_losses(&mut self, cx: &mut Cx<'_>, timers: &Timers) -> u32 {
        let window_us = self.reordering_window_us(timers);
        let mut wait_us = 0;
        let mut at: Index = self.chain.head;
        while let Some(record) = cx.records.get(at).copied() {
            let here = at;
            at = cx.records.next(at);
            let waits = record.has(tag::LOST) && !record.has(tag::RETRANS);
            if record.has(tag::SETTLED) || waits {
                continue;
            }
            if !self.rack.is_after(&record) {
                if record.has(tag::EVER_RETRANS) {
                    continue;
                }
                // All later records were sent at the same time or later.
                break;
            }
            let remaining_us = self.rack_remaining_us(cx.now_ns, &record, window_us);
            if remaining_us > 0 {
                wait_us = wait_us.max(remaining_us.min(i64::from(u32::MAX)) as u32);
                continue;
            }
            self.mark_lost(cx.records, cx.counters, here);
            if let Some(record) = cx.records.get_mut(here) {
                record.tags |= tag::SETTLED;
            }
        }
        wait_us
    }

    /// True if a segment was delivered since the last call.
    pub(crate) fn take_advanced(&mut self) -> bool {
        core::mem::take(&mut self.rack.advanced)
    }

    /// Counts a recovery that ended without a sign of reordering: a widened window stays for one
    /// less.
    pub(crate) fn narrow_rack(&mut self) {
        self.rack.persist = self.rack.persist.saturating_sub(1);
    }

    /// Counts a loss that was reordering: a widened window stays for one more recovery.
    pub(crate) fn persist_rack(&mut self) {
        self.rack.persist = (self.rack.persist + 1).min(RACK_RECOVERIES_MAX);
    }

    /// Notes a D-SACK that reordering may explain.
    pub(crate) fn note_rack_dsack(&mut self) {
        self.rack.dsack_seen = true;
    }

    /// Lets the next ACK search for losses, whatever it delivers.
    pub(crate) fn look_for_losses(&mut self) {
        self.rack.advanced = true;
    }
}
