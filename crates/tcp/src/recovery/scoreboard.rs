//! The scoreboard: SACK blocks become tags of records (RFC 2018, 6675); D-SACKs show needless
//! retransmissions (RFC 2883); late SACKs show reordering.

use wire::SeqNumber;
use wire::tcp::{SackBlock, SackBlocks};

use crate::context::Cx;
use crate::recovery::rate::Delivery;

use crate::counters::Counters;
use crate::records::{Index, NONE, Record, RecordPool, tag};
use crate::recovery::ack::Ack;
use crate::recovery::{CaState, Recovery, View, flag};
use crate::variables::Snd;

/// The valid blocks of an ACK, lowest first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sorted {
    pub blocks: [SackBlock; 4],
    pub len: usize,
    /// Index of the D-SACK among them.
    pub duplicate: Option<usize>,
}

impl Recovery {
    /// Counts a D-SACK, unless our retransmissions cannot have caused it. Returns whether it
    /// counts.
    pub(crate) fn note_dsack(
        &mut self,
        view: View<'_>,
        delivery: &Delivery,
        counters: &mut Counters,
        block: SackBlock,
        ack: &mut Ack,
    ) -> bool {
        if block.left.ge(block.right) {
            return false;
        }
        let len = block.right.since(block.left);
        if len > view.snd.max_wnd() {
            return false;
        }
        let mss = u32::from(view.snd.mss().max(1));
        let segments = len.div_ceil(mss);
        let recovery = &mut *self;
        if len <= mss && recovery.any(flag::TLP) && recovery.tlp_high_seq == block.right {
            ack.dsack_of_probe = true;
        }
        recovery.dsack_dups = recovery.dsack_dups.saturating_add(segments);
        // There are more duplicates than retransmissions: the network made them, or the receiver
        // lies (RFC 3708).
        if recovery.dsack_dups > delivery.segments_retrans() {
            return false;
        }
        counters.dsacks_in += 1;
        // RACK's window widens for duplicates that reordering may explain. A loss probe is sent by
        // the clock, so its duplicate says nothing about reordering.
        if recovery.reord_seen > 0 && !ack.dsack_of_probe {
            recovery.note_rack_dsack();
        }
        ack.dsack = true;
        ack.sack_delivered += segments;
        let old = block.right.le(ack.prior_una) && block.right.gt(recovery.undo_marker);
        if recovery.any(flag::UNDO) && recovery.undo_retrans > 0 && old {
            recovery.undo_retrans = (recovery.undo_retrans - segments as i32).max(0);
        }
        true
    }

    /// Drops blocks that no correct receiver sends, and sorts the others.
    pub(crate) fn sort_blocks(
        &self,
        snd: &Snd,
        counters: &mut Counters,
        blocks: &[SackBlock],
        duplicate: bool,
        ack: &Ack,
    ) -> Sorted {
        let mut sorted = Sorted::default();
        for (i, &block) in blocks.iter().enumerate() {
            let is_duplicate = duplicate && i == 0;
            if !self.is_valid(snd, block, is_duplicate) {
                // A block below SND.UNA comes from an ACK that a later one overtook.
                if is_duplicate || block.right.gt(snd.una()) {
                    counters.sack_blocks_discarded += 1;
                }
                continue;
            }
            if block.right.le(ack.prior_una) {
                continue;
            }
            let Some(slot) = sorted.blocks.get_mut(sorted.len) else {
                break;
            };
            *slot = block;
            if is_duplicate {
                sorted.duplicate = Some(sorted.len);
            }
            sorted.len += 1;
        }
        sorted.sort();
        sorted
    }

    /// True for a block between SND.UNA and SND.NXT. A D-SACK may also lie below, as far back as it
    /// can matter.
    pub(crate) fn is_valid(&self, snd: &Snd, block: SackBlock, duplicate: bool) -> bool {
        let SackBlock { left, right } = block;
        let recovery = self;
        if right.gt(snd.nxt()) || left.ge(right) || left.ge(snd.nxt()) {
            return false;
        }
        if left.gt(snd.una()) {
            return true;
        }
        if !duplicate || !recovery.any(flag::UNDO) || right.gt(snd.una()) {
            return false;
        }
        if left.ge(recovery.undo_marker) {
            return true;
        }
        right.gt(recovery.undo_marker) && left.ge(right - snd.max_wnd())
    }

    /// Notes that a retransmission was needless.
    pub(crate) fn note_needless(&mut self, record: &Record, ack: &mut Ack) {
        let recovery = &mut *self;
        if recovery.any(flag::UNDO)
            && recovery.undo_retrans > 0
            && record.end.gt(recovery.undo_marker)
        {
            recovery.undo_retrans = (recovery.undo_retrans - record.count() as i32).max(0);
        }
        if record.has(tag::SACKED) && record.seq.lt(ack.reordered) {
            ack.reordered = record.seq;
        }
    }

    /// Merges SACKed neighbours, which need no records of their own. Returns the record's index.
    pub(crate) fn merge_sacked(&mut self, records: &mut RecordPool, at: Index) -> Index {
        let prev = records.prev(at);
        let mut at = at;
        if self.chain.merge_sacked(records, prev) {
            if self.highest == at {
                self.highest = prev;
            }
            if self.hint == at {
                self.hint = prev;
            }
            at = prev;
        }
        let next = records.next(at);
        if self.chain.merge_sacked(records, at) {
            if self.highest == next {
                self.highest = at;
            }
            if self.hint == next {
                self.hint = at;
            }
        }
        at
    }
}

impl Sorted {
    pub fn as_slice(&self) -> &[SackBlock] {
        &self.blocks[..self.len.min(self.blocks.len())]
    }

    /// Sorts by the first sequence number; equal ones keep their order.
    pub fn sort(&mut self) {
        for end in (1..self.len).rev() {
            for i in 0..end {
                if self.blocks[i].left.gt(self.blocks[i + 1].left) {
                    self.blocks.swap(i, i + 1);
                    if self.duplicate == Some(i) {
                        self.duplicate = Some(i + 1);
                    } else if self.duplicate == Some(i + 1) {
                        self.duplicate = Some(i);
                    }
                }
            }
        }
    }
}

impl Recovery {
    /// Takes the SACK blocks of an ACK. SND.UNA has been advanced.
    pub(crate) fn take_sack(
        &mut self,
        cx: &mut Cx<'_>,
        view: View<'_>,
        delivery: &mut Delivery,
        blocks: &SackBlocks,
        ack: &mut Ack,
    ) {
        let blocks = blocks.as_slice();
        let Some(&first) = blocks.first() else {
            return;
        };
        ack.reordered = view.snd.nxt();
        let duplicate = is_dsack(first, blocks.get(1), ack.seq)
            && self.note_dsack(view, delivery, cx.counters, first, ack);
        // An ACK from further back than any window does not count.
        let too_old = ack.seq.lt(ack.prior_una - view.snd.max_wnd());
        if too_old || self.packets_out == 0 {
            return;
        }
        let sorted = self.sort_blocks(view.snd, cx.counters, blocks, duplicate, ack);
        self.tag_blocks(cx, view, delivery, &sorted, ack);
        if self.ca_state != CaState::Loss || self.any(flag::UNDO) {
            self.check_reordering(cx, view, ack.reordered);
        }
    }

    /// Tags records in one walk, lowest block first.
    fn tag_blocks(
        &mut self,
        cx: &mut Cx<'_>,
        view: View<'_>,
        delivery: &mut Delivery,
        sorted: &Sorted,
        ack: &mut Ack,
    ) {
        let mut at = NONE;
        for (i, &block) in sorted.as_slice().iter().enumerate() {
            let duplicate = sorted.duplicate == Some(i);
            let inner = (sorted.duplicate == Some(i + 1)).then(|| sorted.blocks[i + 1]);
            at = self.first_in(cx.records, view, at, block.left);
            while let Some(record) = cx.records.get(at).copied() {
                if record.seq.ge(block.right) {
                    break;
                }
                let twice = inner.is_some_and(|inner| {
                    record.seq.lt(inner.right) && self.cut_to_block(cx.records, at, inner)
                });
                if twice || self.cut_to_block(cx.records, at, block) {
                    self.tag_sacked(cx, view, delivery, at, duplicate || twice, ack);
                    // A range that is reported twice keeps its own record until the second report
                    // was examined.
                    let end = cx.records.get(at).map_or(record.end, |record| record.end);
                    if !inner.is_some_and(|inner| inner.left.ge(end)) {
                        at = self.merge_sacked(cx.records, at);
                    }
                }
                at = cx.records.next(at);
            }
        }
    }

    /// The first record at or behind `at` that may hold `left`.
    fn first_in(&self, records: &RecordPool, view: View<'_>, at: Index, left: SeqNumber) -> Index {
        let recovery = self;
        let mut at = if at != NONE { at } else { recovery.chain.head };
        // New blocks mostly lie beyond all others, so the search starts at the highest.
        if left.ge(self.highest_sacked(view))
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

    /// Cuts the record so that the block covers it as a whole or not at all; blocks count in whole
    /// segments. True if `at` is covered now. False if it lies before the block, or cannot be cut.
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
                self.split(records, true, at, record.seq + before);
            }
            return false;
        }
        let covered = block.right.since(record.seq) / mss * mss;
        covered > 0 && self.split(records, true, at, record.seq + covered)
    }

    /// Cuts a record in two; false when the pool is exhausted.
    pub(crate) fn split(
        &mut self,
        records: &mut RecordPool,
        has_sack: bool,
        at: Index,
        seq: SeqNumber,
    ) -> bool {
        let Some(whole) = records.get(at).copied() else {
            return false;
        };
        let Some(rest) = self.chain.split(records, at, seq) else {
            return false;
        };
        self.forget_part();
        let parts =
            records.get(at).map_or(0, Record::count) + records.get(rest).map_or(0, Record::count);
        self.adjust_counts(has_sack, whole.tags, whole.count(), parts);
        if self.highest == at {
            self.highest = rest;
        }
        true
    }

    /// Tags a record that a block covers; `duplicate`: the block is a D-SACK.
    fn tag_sacked(
        &mut self,
        cx: &mut Cx<'_>,
        view: View<'_>,
        delivery: &mut Delivery,
        at: Index,
        duplicate: bool,
        ack: &mut Ack,
    ) {
        let Some(mut record) = cx.records.get(at).copied() else {
            return;
        };
        if duplicate && record.any(tag::RETRANS | tag::EVER_RETRANS) {
            self.note_needless(&record, ack);
        }
        if record.end.le(view.snd.una()) {
            return;
        }
        let count = record.count();
        if !record.has(tag::SACKED) {
            self.rack_advance(view.timers, cx.now_ns, &record);
            self.forget_part();
            self.leave_loss(view, &mut record, count, ack);
            record.tags |= tag::SACKED | tag::SETTLED;
            ack.sacked = true;
            ack.sack_delivered += count;
            ack.sacked_bytes += record.end.since(record.seq);
            let recovery = &mut *self;
            recovery.sacked_out += count;
        }
        if duplicate && record.has(tag::RETRANS) {
            record.tags &= !tag::RETRANS;
            self.retrans_out = self.retrans_out.saturating_sub(count);
        }
        delivery.on_delivered(&record, &mut ack.rate);
        record.tags |= tag::SAMPLED;
        if self.sacked_out == count || record.end.gt(self.highest_sacked) {
            self.highest_sacked = record.end;
            self.highest = at;
        }
        if let Some(slot) = cx.records.get_mut(at) {
            *slot = record;
        }
    }

    /// Takes the arrival of a segment that was presumed lost or in flight.
    fn leave_loss(&mut self, view: View<'_>, record: &mut Record, count: u32, ack: &mut Ack) {
        let highest = self.highest_sacked(view);
        let recovery = &mut *self;
        if record.has(tag::RETRANS) {
            // The segment is not lost. Its retransmission may still be in the network.
            if record.has(tag::LOST) {
                record.tags &= !(tag::LOST | tag::RETRANS);
                recovery.lost_out = recovery.lost_out.saturating_sub(count);
                recovery.retrans_out = recovery.retrans_out.saturating_sub(count);
            }
            return;
        }
        if !record.has(tag::EVER_RETRANS) {
            // The segment was sent once, and SACKed after later ones, so it was reordered.
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

    /// Notes reordering: data beyond `low`, which was sent only once, arrived before it.
    pub(crate) fn check_reordering(&mut self, cx: &mut Cx<'_>, view: View<'_>, low: SeqNumber) {
        let highest = self.highest_sacked(view);
        if low.ge(highest) {
            return;
        }
        let distance = highest.since(low);
        let mss = u32::from(view.snd.mss().max(1));
        let recovery = &mut *self;
        if distance > u32::from(recovery.reordering) * mss {
            let segments = distance.div_ceil(mss);
            recovery.reordering = segments.min(u32::from(cx.config.reordering_max)) as u16;
        }
        recovery.reord_seen = recovery.reord_seen.saturating_add(1);
        cx.counters.reordering_seen += 1;
    }

    /// The end of the highest SACKed segment; SND.UNA if there is none (FACK).
    #[inline]
    pub(crate) fn highest_sacked(&self, view: View<'_>) -> SeqNumber {
        if self.sacked_out == 0 || !view.has_sack {
            view.snd.una()
        } else {
            self.highest_sacked
        }
    }
}

/// True if the first block is a D-SACK: it lies below SEG.ACK, or inside the second block (RFC 2883
/// 4).
fn is_dsack(first: SackBlock, second: Option<&SackBlock>, ack: SeqNumber) -> bool {
    if first.left.lt(ack) {
        return true;
    }
    second.is_some_and(|second| first.right.le(second.right) && first.left.ge(second.left))
}
