//! Peers without SACK: duplicate ACKs are counted as if each had SACKed a segment (RFC 6582, as Linux
//! emulates it).

use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::ack::Ack;
use crate::recovery::records::tag;

impl Connection {
    /// SACKed and lost are no more than there is. Returns whether that had to be enforced.
    pub(crate) fn limit_reno_sacked(&mut self) -> bool {
        let recovery = &mut self.recovery;
        let holes = recovery.lost_out.max(1).min(recovery.packets_out);
        if recovery.sacked_out + holes <= recovery.packets_out {
            return false;
        }
        recovery.sacked_out = recovery.packets_out - holes;
        true
    }

    /// More duplicates than segments: they were reordered, not lost.
    fn check_reno_reordering(&mut self, cx: &mut Cx<'_>, acked: u32) {
        if !self.limit_reno_sacked() {
            return;
        }
        let recovery = &mut self.recovery;
        let segments = recovery.packets_out + acked;
        recovery.reordering = segments.min(u32::from(cx.config.reordering_max)) as u16;
        recovery.reord_seen = recovery.reord_seen.saturating_add(1);
        cx.counters.reordering_seen += 1;
    }

    /// Duplicate ACKs arrived.
    pub(crate) fn add_reno_sack(&mut self, cx: &mut Cx<'_>, ack: &Ack) {
        if ack.duplicates == 0 {
            return;
        }
        let before = self.recovery.sacked_out;
        self.recovery.sacked_out += ack.duplicates;
        self.check_reno_reordering(cx, 0);
        let delivered = self.recovery.sacked_out.saturating_sub(before);
        self.count_delivered(delivered, ack.ece);
    }

    /// Segments were acknowledged: one was the hole, duplicates had counted the others.
    pub(crate) fn remove_reno_sacks(&mut self, cx: &mut Cx<'_>, ack: &Ack) {
        if ack.acked > 0 {
            let sacked = self.recovery.sacked_out;
            let delivered = ack.acked.saturating_sub(sacked).max(1);
            self.count_delivered(delivered, ack.ece);
            self.recovery.sacked_out = sacked.saturating_sub(ack.acked - 1);
        }
        self.check_reno_reordering(cx, ack.acked);
    }

    /// None is counted any more.
    pub(crate) fn reset_reno_sack(&mut self) {
        self.recovery.sacked_out = 0;
    }

    /// Enough duplicates, or a partial ACK in recovery: the first segment is lost.
    pub(crate) fn reno_mark_lost(&mut self, cx: &mut Cx<'_>, advanced: bool) {
        let recovery = &self.recovery;
        let enough =
            recovery.is_before_recovery() && recovery.sacked_out >= u32::from(recovery.reordering);
        let partial = recovery.ca_state == CaState::Recovery && advanced;
        if !enough && !partial {
            return;
        }
        let head = recovery.chain.head;
        let Some(record) = cx.records.get(head).copied() else {
            return;
        };
        if record.has(tag::LOST) {
            return;
        }
        if record.count() > 1 {
            let end = record.seq + u32::from(record.mss);
            let _ = self.split(cx.records, head, end);
        }
        self.mark_lost(cx, head);
        // Of a run that no record was left to split for, all is lost: none of it is what a duplicate stood for.
        self.limit_reno_sacked();
    }
}
