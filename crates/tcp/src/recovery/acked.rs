//! Removal of the records that SEG.ACK covers: counts, round trips, signs of reordering and of
//! reneging.

use wire::SeqNumber;

use crate::context::Cx;
use crate::records::{NONE, Record, RecordPool, tag};
use crate::recovery::Recovery;
use crate::recovery::View;
use crate::recovery::ack::Ack;
use crate::recovery::rate::Delivery;
use crate::variables::Snd;

/// Results of removing acknowledged records.
pub(crate) struct RemovedRecords {
    /// Transmission times of the first and the last removed segment, of those sent only once; 0:
    /// none.
    pub first_sent_ns: u64,
    pub last_sent_ns: u64,
    /// Lowest sequence number of those segments.
    pub lowest: SeqNumber,
    /// True if the last removed record was acknowledged as a whole.
    pub whole: bool,
    /// Segments that were SACKed before.
    pub prior_sacked: u32,
}

impl Recovery {
    pub(crate) fn trim_head(&mut self, snd: &Snd, records: &mut RecordPool) {
        if let Some(head) = records.get_mut(self.chain.head) {
            head.seq = snd.una();
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

    /// Counts delivered segments, acknowledged in either way. With classic ECN and ECE, all of them
    /// count as marked, since ECE does not tell which were.
    #[inline]
    pub(crate) fn count_delivered(&mut self, snd: &Snd, segments: u32, ece: bool) {
        let recovery = &mut *self;
        recovery.delivered = recovery.delivered.wrapping_add(segments);
        if ece && snd.ecn().is_classic() {
            recovery.delivered_ce = recovery.delivered_ce.wrapping_add(segments);
        }
    }

    /// True if a lone small segment was acknowledged in order, so that its ACK was probably
    /// delayed.
    pub(crate) fn is_maybe_delayed(&self, snd: &Snd, ack: &Ack, removed: &RemovedRecords) -> bool {
        ack.acked == 1
            && removed.whole
            && removed.prior_sacked == 0
            && snd.una().since(ack.prior_una) < u32::from(snd.mss())
            && ack.rate.prior_delivered.wrapping_add(1) == self.delivered
            && !ack.sacked
            && !ack.dsack
            && !ack.ece
    }
}

impl Recovery {
    /// Number of whole segments of the first record before SND.UNA.
    #[inline]
    fn covered(snd: &Snd, record: &Record) -> u32 {
        let count = record.count();
        if record.end.le(snd.una()) {
            return count;
        }
        if count == 1 || snd.una().le(record.seq) {
            return 0;
        }
        let mut rest = *record;
        rest.seq = snd.una();
        count - rest.count()
    }

    /// Counts `covered` segments of the first record as acknowledged.
    #[inline]
    fn leave(
        &mut self,
        now_ns: u64,
        view: View<'_>,
        record: &Record,
        covered: u32,
        ack: &mut Ack,
        removed: &mut RemovedRecords,
    ) {
        let recovery = &mut *self;
        if record.any(tag::RETRANS | tag::EVER_RETRANS) {
            if record.has(tag::RETRANS) {
                recovery.retrans_out = recovery.retrans_out.saturating_sub(covered);
            }
            ack.retrans_acked = true;
        } else if !record.has(tag::SACKED) {
            removed.last_sent_ns = record.sent_ns.max(1);
            if removed.first_sent_ns == 0 {
                removed.first_sent_ns = removed.last_sent_ns;
            }
            removed.lowest = removed.lowest.min(record.seq);
            ack.original_acked |= record.end.le(recovery.high_seq);
        }
        if record.has(tag::LOST) {
            recovery.lost_out = recovery.lost_out.saturating_sub(covered);
            if recovery.is_part_of(record) {
                recovery.part_acked(view.snd.una(), covered);
            }
        }
        recovery.packets_out = recovery.packets_out.saturating_sub(covered);
        ack.acked += covered;
        if record.has(tag::SACKED) {
            recovery.sacked_out = recovery.sacked_out.saturating_sub(covered);
        } else if view.has_sack {
            self.count_delivered(view.snd, covered, ack.ece);
            if !was_needless(record, ack) {
                self.rack_advance(view.timers, now_ns, record);
            }
        }
    }

    /// Removes records up to SND.UNA, which may have moved. Returns the record that is first then.
    #[inline(always)]
    pub(crate) fn take_acked(
        &mut self,
        cx: &mut Cx<'_>,
        view: View<'_>,
        delivery: &mut Delivery,
        ack: &mut Ack,
        removed: &mut RemovedRecords,
    ) -> Option<Record> {
        let snd = view.snd;
        while let Some(record) = cx.records.get(self.chain.head).copied() {
            let covered = Self::covered(snd, &record);
            if covered == 0 {
                // The acknowledged part of a run is cut off, even within a segment. A single
                // segment stays as it was sent (Linux).
                if record.count() > 1 && record.seq.lt(snd.una()) {
                    if self.is_part_of(&record) {
                        self.part_acked(snd.una(), 0);
                    }
                    self.trim_head(snd, cx.records);
                }
                break;
            }
            self.leave(cx.now_ns, view, &record, covered, ack, removed);
            delivery.on_delivered(&record, &mut ack.rate);
            if record.end.gt(snd.una()) {
                removed.whole = false;
                self.trim_head(snd, cx.records);
                break;
            }
            self.drop_head(cx.records);
        }
        cx.records.get(self.chain.head).copied()
    }
}

/// True if the echoed timestamp is older than the retransmission, so that the original had arrived
/// (Eifel, RFC 3522).
fn was_needless(record: &Record, ack: &Ack) -> bool {
    record.any(tag::RETRANS | tag::EVER_RETRANS)
        && ack.echoes_before((record.sent_ns / crate::MILLISECOND_NS) as u32)
}

impl Recovery {
    /// Counts `segments` of the delivered ones as marked.
    pub(crate) fn count_marked(&mut self, segments: u32) {
        self.delivered_ce = self.delivered_ce.wrapping_add(segments);
    }

    /// Sets the count of delivered segments to that of the handshake.
    pub(crate) fn begin_count(&mut self) {
        self.delivered = 1;
    }
}
