//! Peers without SACK: duplicate ACKs are counted as if each had SACKed a segment (RFC 6582, as Linux
//! emulates it).

use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::records::tag;

impl Connection {
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
        self.recovery.mark_lost(cx.records, cx.counters, head);
        // Of a run that no record was left to split for, all is lost: none of it is what a duplicate stood for.
        self.recovery.limit_reno_sacked();
    }
}
