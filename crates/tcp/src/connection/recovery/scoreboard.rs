//! The scoreboard: SACK blocks become tags of records (RFC 2018, 6675), D-SACKs tell of needless
//! retransmissions (RFC 2883), late SACKs of reordering.

use wire::SeqNumber;
use wire::tcp::{SackBlock, SackBlocks};

use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::ack::Ack;
use crate::recovery::flag;
use crate::recovery::records::{Index, NONE, Record, RecordPool, tag};
use crate::recovery::scoreboard::Sorted;

impl Connection {
    /// Takes in the blocks of an ACK. SND.UNA has been advanced.
    pub(crate) fn take_sack(&mut self, cx: &mut Cx<'_>, blocks: &SackBlocks, ack: &mut Ack) {
        let blocks = blocks.as_slice();
        let Some(&first) = blocks.first() else {
            return;
        };
        ack.reordered = self.snd.nxt;
        let duplicate = self.is_dsack(first, blocks.get(1), ack.seq)
            && self
                .recovery
                .note_dsack(&self.snd, &self.tx, cx.counters, first, ack);
        // An ACK from further back than any window says nothing that still counts.
        let too_old = ack.seq.lt(ack.prior_una - self.tx.max_wnd);
        if too_old || self.recovery.packets_out == 0 {
            return;
        }
        let sorted =
            self.recovery
                .sort_blocks(&self.snd, &self.tx, cx.counters, blocks, duplicate, ack);
        self.tag_blocks(cx, &sorted, ack);
        let recovery = &self.recovery;
        if recovery.ca_state != CaState::Loss || recovery.any(flag::UNDO) {
            self.check_reordering(cx, ack.reordered);
        }
    }

    /// RFC 2883 4: a first block below SEG.ACK, or inside the second, reports a duplicate.
    fn is_dsack(&self, first: SackBlock, second: Option<&SackBlock>, ack: SeqNumber) -> bool {
        if first.left.lt(ack) {
            return true;
        }
        second.is_some_and(|second| first.right.le(second.right) && first.left.ge(second.left))
    }

    /// One walk over the records, lowest block first.
    fn tag_blocks(&mut self, cx: &mut Cx<'_>, sorted: &Sorted, ack: &mut Ack) {
        let mut at = NONE;
        for (i, &block) in sorted.as_slice().iter().enumerate() {
            let duplicate = sorted.duplicate == Some(i);
            let inner = (sorted.duplicate == Some(i + 1)).then(|| sorted.blocks[i + 1]);
            at = self.first_in(cx.records, at, block.left);
            while let Some(record) = cx.records.get(at).copied() {
                if record.seq.ge(block.right) {
                    break;
                }
                let twice = inner.is_some_and(|inner| {
                    record.seq.lt(inner.right) && self.cut_to_block(cx.records, at, inner)
                });
                if twice || self.cut_to_block(cx.records, at, block) {
                    self.tag_sacked(cx, at, duplicate || twice, ack);
                    // What is reported twice stands alone until it was looked at.
                    let end = cx.records.get(at).map_or(record.end, |record| record.end);
                    if !inner.is_some_and(|inner| inner.left.ge(end)) {
                        at = self.recovery.merge_sacked(cx.records, at);
                    }
                }
                at = cx.records.next(at);
            }
        }
    }

    /// The first record that may hold `left`, at or behind `at`.
    fn first_in(&self, records: &RecordPool, at: Index, left: SeqNumber) -> Index {
        let recovery = &self.recovery;
        let mut at = if at != NONE { at } else { recovery.chain.head };
        // New blocks mostly lie beyond all others.
        if left.ge(self.highest_sacked())
            && recovery.sacked_out > 0
            && let Some(highest) = records.get(recovery.highest)
            && highest.seq.le(left)
            && records
                .get(at)
                .is_none_or(|record| record.seq.le(highest.seq))
        {
            at = recovery.highest;
        }
        while let Some(record) = records.get(at)
            && record.end.le(left)
        {
            at = records.next(at);
        }
        at
    }

    /// Cuts the record so that the block covers it whole or not at all; blocks count in whole segments.
    /// True when `at` is covered now; false when it lies before the block, or cannot be cut.
    fn cut_to_block(&mut self, records: &mut RecordPool, at: Index, block: SackBlock) -> bool {
        let Some(record) = records.get(at).copied() else {
            return false;
        };
        if block.left.le(record.seq) && block.right.ge(record.end) {
            return true;
        }
        if record.count() <= 1 || record.end.le(block.left) || record.seq.ge(block.right) {
            return false;
        }
        let mss = u32::from(record.mss);
        if block.left.gt(record.seq) {
            let before = block.left.since(record.seq).div_ceil(mss) * mss;
            if before < record.len() {
                self.split(records, at, record.seq + before);
            }
            return false;
        }
        let covered = block.right.since(record.seq) / mss * mss;
        covered > 0 && self.split(records, at, record.seq + covered)
    }

    /// Cuts a record in two; false when the pool is exhausted.
    pub(crate) fn split(&mut self, records: &mut RecordPool, at: Index, seq: SeqNumber) -> bool {
        let Some(whole) = records.get(at).copied() else {
            return false;
        };
        let Some(rest) = self.recovery.chain.split(records, at, seq) else {
            return false;
        };
        self.recovery.forget_part();
        let parts =
            records.get(at).map_or(0, Record::count) + records.get(rest).map_or(0, Record::count);
        self.adjust_counts(whole.tags, whole.count(), parts);
        if self.recovery.highest == at {
            self.recovery.highest = rest;
        }
        true
    }

    /// The record is covered by a block. `duplicate` = by a D-SACK.
    fn tag_sacked(&mut self, cx: &mut Cx<'_>, at: Index, duplicate: bool, ack: &mut Ack) {
        let Some(mut record) = cx.records.get(at).copied() else {
            return;
        };
        if duplicate && record.any(tag::RETRANS | tag::EVER_RETRANS) {
            self.recovery.note_needless(&record, ack);
        }
        if record.end.le(self.snd.una) {
            return;
        }
        let count = record.count();
        if !record.has(tag::SACKED) {
            self.recovery.rack_advance(&self.tx, cx.now_ns, &record);
            self.recovery.forget_part();
            self.leave_loss(&mut record, count, ack);
            record.tags |= tag::SACKED | tag::SETTLED;
            ack.sacked = true;
            ack.sack_delivered += count;
            ack.sacked_bytes += record.end.since(record.seq);
            let recovery = &mut self.recovery;
            recovery.sacked_out += count;
        }
        if duplicate && record.has(tag::RETRANS) {
            record.tags &= !tag::RETRANS;
            self.recovery.retrans_out = self.recovery.retrans_out.saturating_sub(count);
        }
        self.delivery.on_delivered(&record, &mut ack.rate);
        record.tags |= tag::SAMPLED;
        if self.recovery.sacked_out == count || record.end.gt(self.recovery.highest_sacked) {
            self.recovery.highest_sacked = record.end;
            self.recovery.highest = at;
        }
        if let Some(slot) = cx.records.get_mut(at) {
            *slot = record;
        }
    }

    /// A segment that was presumed lost, or in flight, has arrived.
    fn leave_loss(&mut self, record: &mut Record, count: u32, ack: &mut Ack) {
        let highest = self.highest_sacked();
        let recovery = &mut self.recovery;
        if record.has(tag::RETRANS) {
            // Not lost: the retransmission is believed to be still under way.
            if record.has(tag::LOST) {
                record.tags &= !(tag::LOST | tag::RETRANS);
                recovery.lost_out = recovery.lost_out.saturating_sub(count);
                recovery.retrans_out = recovery.retrans_out.saturating_sub(count);
            }
            return;
        }
        if !record.has(tag::EVER_RETRANS) {
            // Sent once, and SACKed after what was sent behind it: reordering.
            if record.seq.lt(highest) && record.seq.lt(ack.reordered) {
                ack.reordered = record.seq;
            }
            if record.end.le(recovery.high_seq) {
                ack.original_acked = true;
            }
            if ack.first_sacked_ns == 0 {
                ack.first_sacked_ns = record.sent_ns;
            }
            ack.last_sacked_ns = record.sent_ns;
        }
        if record.has(tag::LOST) {
            record.tags &= !tag::LOST;
            recovery.lost_out = recovery.lost_out.saturating_sub(count);
        }
    }

    /// Reordering: something beyond `low`, which was sent once only, arrived before it.
    pub(crate) fn check_reordering(&mut self, cx: &mut Cx<'_>, low: SeqNumber) {
        let highest = self.highest_sacked();
        if low.ge(highest) {
            return;
        }
        let distance = highest.since(low);
        let mss = u32::from(self.snd.mss.max(1));
        let recovery = &mut self.recovery;
        if distance > u32::from(recovery.reordering) * mss {
            let segments = distance.div_ceil(mss);
            recovery.reordering = segments.min(u32::from(cx.config.reordering_max)) as u16;
        }
        recovery.reord_seen = recovery.reord_seen.saturating_add(1);
        cx.counters.reordering_seen += 1;
    }
}
