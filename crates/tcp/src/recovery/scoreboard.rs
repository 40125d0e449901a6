//! The scoreboard: SACK blocks become tags of records (RFC 2018, 6675), D-SACKs tell of needless
//! retransmissions (RFC 2883), late SACKs of reordering.

use wire::tcp::SackBlock;

use crate::counters::Counters;
use crate::recovery::ack::Ack;
use crate::recovery::records::{Index, Record, RecordPool, tag};
use crate::recovery::{Recovery, flag};
use crate::send::Sender;
use crate::variables::Snd;

/// The blocks that count, lowest first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sorted {
    pub blocks: [SackBlock; 4],
    pub len: usize,
    /// Where the D-SACK stands among them.
    pub duplicate: Option<usize>,
}

impl Recovery {
    /// Counts a D-SACK, unless it cannot be of our making. Returns whether it counts.
    pub(crate) fn note_dsack(
        &mut self,
        snd: &Snd,
        tx: &Sender,
        counters: &mut Counters,
        block: SackBlock,
        ack: &mut Ack,
    ) -> bool {
        if block.left.ge(block.right) {
            return false;
        }
        let len = block.right.since(block.left);
        if len > tx.max_wnd {
            return false;
        }
        let mss = u32::from(snd.mss.max(1));
        let segments = len.div_ceil(mss);
        let recovery = &mut *self;
        if len <= mss && recovery.any(flag::TLP) && recovery.tlp_high_seq == block.right {
            ack.dsack_of_probe = true;
        }
        recovery.dsack_dups = recovery.dsack_dups.saturating_add(segments);
        // More duplicates than retransmissions: the network made them, or the receiver lies (RFC 3708).
        if recovery.dsack_dups > tx.total_retrans {
            return false;
        }
        counters.dsacks_in += 1;
        // RACK's window grows for duplicates that reordering may explain; a probe is sent by the clock.
        if recovery.reord_seen > 0 && !ack.dsack_of_probe {
            recovery.rack.dsack_seen = true;
        }
        ack.dsack = true;
        ack.sack_delivered += segments;
        let old = block.right.le(ack.prior_una) && block.right.gt(recovery.undo_marker);
        if recovery.any(flag::UNDO) && recovery.undo_retrans > 0 && old {
            recovery.undo_retrans = (recovery.undo_retrans - segments as i32).max(0);
        }
        true
    }

    /// Leaves out what no receiver in its senses would say, and sorts the rest.
    pub(crate) fn sort_blocks(
        &self,
        snd: &Snd,
        tx: &Sender,
        counters: &mut Counters,
        blocks: &[SackBlock],
        duplicate: bool,
        ack: &Ack,
    ) -> Sorted {
        let mut sorted = Sorted::default();
        for (i, &block) in blocks.iter().enumerate() {
            let is_duplicate = duplicate && i == 0;
            if !self.is_valid(snd, tx, block, is_duplicate) {
                // Below SND.UNA: an ACK that was overtaken by a later one.
                if is_duplicate || block.right.gt(snd.una) {
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

    /// Between SND.UNA and SND.NXT; a D-SACK may also lie below, as far back as it can matter.
    pub(crate) fn is_valid(
        &self,
        snd: &Snd,
        tx: &Sender,
        block: SackBlock,
        duplicate: bool,
    ) -> bool {
        let SackBlock { left, right } = block;
        let recovery = self;
        if right.gt(snd.nxt) || left.ge(right) || left.ge(snd.nxt) {
            return false;
        }
        if left.gt(snd.una) {
            return true;
        }
        if !duplicate || !recovery.any(flag::UNDO) || right.gt(snd.una) {
            return false;
        }
        if left.ge(recovery.undo_marker) {
            return true;
        }
        right.gt(recovery.undo_marker) && left.ge(right - tx.max_wnd)
    }

    /// A retransmission was needless.
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

    /// SACKed neighbours need not be told apart. Returns where the record stands now.
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

    /// By the first sequence number; equal ones stay as they are.
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
