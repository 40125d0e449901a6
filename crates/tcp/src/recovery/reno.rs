//! Peers without SACK: each duplicate ACK counts as if it had SACKed a segment (RFC 6582, as Linux
//! emulates it).

use crate::config::Config;
use crate::context::Cx;
use crate::counters::Counters;
use crate::records::tag;
use crate::recovery::CaState;
use crate::recovery::Recovery;
use crate::recovery::ack::Ack;
use crate::variables::Snd;

impl Recovery {
    /// Limits SACKed and lost segments to the number in flight. True if the limit applied.
    pub(crate) fn limit_reno_sacked(&mut self) -> bool {
        let recovery = &mut *self;
        let holes = recovery.lost_out.max(1).min(recovery.packets_out);
        if recovery.sacked_out + holes <= recovery.packets_out {
            return false;
        }
        recovery.sacked_out = recovery.packets_out - holes;
        true
    }

    /// Takes more duplicates than segments as reordering, not loss.
    pub(crate) fn check_reno_reordering(
        &mut self,
        config: &Config,
        counters: &mut Counters,
        acked: u32,
    ) {
        if !self.limit_reno_sacked() {
            return;
        }
        let recovery = &mut *self;
        let segments = recovery.packets_out + acked;
        recovery.reordering = segments.min(u32::from(config.reordering_max)) as u16;
        recovery.reord_seen = recovery.reord_seen.saturating_add(1);
        counters.reordering_seen += 1;
    }

    /// Counts duplicate ACKs.
    pub(crate) fn add_reno_sack(
        &mut self,
        snd: &Snd,
        config: &Config,
        counters: &mut Counters,
        ack: &Ack,
    ) {
        if ack.duplicates == 0 {
            return;
        }
        let before = self.sacked_out;
        self.sacked_out += ack.duplicates;
        self.check_reno_reordering(config, counters, 0);
        let delivered = self.sacked_out.saturating_sub(before);
        self.count_delivered(snd, delivered, ack.ece);
    }

    /// Takes acknowledged segments: one was the gap, and duplicates had counted the others.
    pub(crate) fn remove_reno_sacks(
        &mut self,
        snd: &Snd,
        config: &Config,
        counters: &mut Counters,
        ack: &Ack,
    ) {
        if ack.acked > 0 {
            let sacked = self.sacked_out;
            let delivered = ack.acked.saturating_sub(sacked).max(1);
            self.count_delivered(snd, delivered, ack.ece);
            self.sacked_out = sacked.saturating_sub(ack.acked - 1);
        }
        self.check_reno_reordering(config, counters, ack.acked);
    }

    /// Resets the count of duplicate ACKs to zero.
    pub(crate) fn reset_reno_sack(&mut self) {
        self.sacked_out = 0;
    }
}

impl Recovery {
    /// Marks the first segment lost, after enough duplicates, or on a partial ACK in recovery.
    pub(crate) fn reno_mark_lost(&mut self, cx: &mut Cx<'_>, advanced: bool) {
        let enough = self.is_before_recovery() && self.sacked_out >= u32::from(self.reordering);
        let partial = self.ca_state == CaState::Recovery && advanced;
        if !enough && !partial {
            return;
        }
        let head = self.chain.head;
        let Some(record) = cx.records.get(head).copied() else {
            return;
        };
        if record.has(tag::LOST) {
            return;
        }
        if record.count() > 1 {
            let end = record.seq + u32::from(record.mss);
            let _ = self.split(cx.records, false, head, end);
        }
        self.mark_lost(cx.records, cx.counters, head);
        // A run that could not be cut for want of a record is lost as a whole: no duplicate ACK
        // stands for any of its segments.
        self.limit_reno_sacked();
    }
}
