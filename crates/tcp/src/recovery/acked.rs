//! What SEG.ACK covers leaves the records: counts, round trips, signs of reordering and of reneging.

use wire::SeqNumber;

use crate::recovery::Recovery;
use crate::recovery::ack::Ack;
use crate::recovery::records::{NONE, RecordPool};
use crate::variables::Snd;

/// What is learnt while acknowledged records leave.
pub(crate) struct Leaving {
    /// When the first and the last of those sent once only were sent; 0 = none.
    pub first_sent_ns: u64,
    pub last_sent_ns: u64,
    /// The lowest of them.
    pub lowest: SeqNumber,
    /// The last record left whole.
    pub whole: bool,
    /// SACKed segments before.
    pub prior_sacked: u32,
}

impl Recovery {
    pub(crate) fn trim_head(&mut self, snd: &Snd, records: &mut RecordPool) {
        if let Some(head) = records.get_mut(self.chain.head) {
            head.seq = snd.una;
        }
    }

    #[inline]
    pub(crate) fn drop_head(&mut self, records: &mut RecordPool) {
        let recovery = &mut *self;
        let head = recovery.chain.head;
        if recovery.hint == head {
            recovery.hint = NONE;
        }
        if recovery.highest == head {
            recovery.highest = NONE;
        }
        recovery.chain.unlink(records, head);
    }

    /// Delivered segments, by whatever kind of acknowledgment. Classic ECN knows no better than that all of them were marked.
    #[inline]
    pub(crate) fn count_delivered(&mut self, snd: &Snd, segments: u32, ece: bool) {
        let recovery = &mut *self;
        recovery.delivered = recovery.delivered.wrapping_add(segments);
        if ece && snd.ecn.is_classic() {
            recovery.delivered_ce = recovery.delivered_ce.wrapping_add(segments);
        }
    }

    /// A lone small segment, acknowledged in order: its ACK was probably delayed.
    pub(crate) fn is_maybe_delayed(&self, snd: &Snd, ack: &Ack, leaving: &Leaving) -> bool {
        ack.acked == 1
            && leaving.whole
            && leaving.prior_sacked == 0
            && snd.una.since(ack.prior_una) < u32::from(snd.mss)
            && ack.rate.prior_delivered.wrapping_add(1) == self.delivered
            && !ack.sacked
            && !ack.dsack
            && !ack.ece
    }
}
