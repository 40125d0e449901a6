//! What to send again next, and what changes when it, or something new, has left.

use wire::SeqNumber;

use crate::recovery::records::{Index, NONE, Record, RecordPool, tag};
use crate::recovery::{Recovery, flag};
use crate::variables::Snd;

impl Recovery {
    /// F-RTO wanted to send new data, and there was none to send.
    pub(crate) fn new_data_test_failed(&self, snd: &Snd) -> bool {
        let recovery = self;
        recovery.any(flag::SEND_NEW) && snd.nxt.le(recovery.high_seq)
    }

    /// All has left that may leave now upon F-RTO's ACK. Without anything new the test tells nothing (RFC 5682 2.1, step 2.b), and what is lost is sent
    /// again, if pacing kept it back as well, when its time comes.
    #[cold]
    pub(crate) fn end_new_data_test(&mut self, snd: &Snd) {
        if self.new_data_test_failed(snd) {
            self.put(flag::FRTO, false);
            self.put(flag::SEND_LOST, true);
        }
        self.put(flag::SEND_NEW, false);
    }

    /// The first record that is lost and not sent again.
    pub(crate) fn next_lost(&self, records: &RecordPool) -> Index {
        let recovery = self;
        let mut at = if recovery.hint == NONE {
            recovery.chain.head
        } else {
            recovery.hint
        };
        let other = tag::LOST | tag::SACKED | tag::RETRANS;
        while let Some(record) = records.get(at) {
            if record.tags & other == tag::LOST {
                break;
            }
            at = records.next(at);
        }
        at
    }

    /// Segments of the run of lost ones that begins at `seq`.
    pub(crate) fn lost_run(&self, records: &RecordPool, seq: SeqNumber) -> u32 {
        if !self.any(flag::SEND_LOST) {
            return 1;
        }
        match records.get(self.next_lost(records)) {
            Some(record) if record.seq == seq => record.count(),
            _ => 1,
        }
    }

    /// Where the first segment of a lost record begins that has not left again.
    pub(crate) fn resend_from(&self, snd: &Snd, record: &Record) -> SeqNumber {
        let recovery = self;
        let seq = record.seq.max(snd.una);
        match recovery.is_part_of(record) && !recovery.any(flag::SEND_HEAD) {
            true => recovery.part_end,
            false => seq,
        }
    }

    /// PSH stands where the text had it when it was sent first; what is sent as one segment has it if a part had it (Linux).
    #[cold]
    pub(crate) fn is_repetition_pushed(&self, records: &RecordPool, end: SeqNumber) -> bool {
        let recovery = self;
        let mut at = if recovery.any(flag::SEND_HEAD) {
            recovery.chain.head
        } else if recovery.any(flag::PROBE_LAST) {
            recovery.chain.tail
        } else {
            self.next_lost(records)
        };
        while let Some(record) = records.get(at) {
            if (record.seq + record.payload()).gt(end) {
                return false;
            }
            if record.has(tag::PUSHED) {
                return true;
            }
            at = records.next(at);
        }
        false
    }

    /// One segment of a run has left again, up to `end`, and there was no record to tell it from those behind it: the run stays lost, and counts as under way as
    /// far as it left. When it was last sent is known of the whole only.
    #[cold]
    pub(crate) fn mark_part_resent(
        &mut self,
        records: &mut RecordPool,
        now_ns: u64,
        at: Index,
        end: SeqNumber,
    ) {
        let Some(record) = records.get_mut(at) else {
            return;
        };
        record.tags |= tag::EVER_RETRANS;
        let mut part = *record;
        part.end = end;
        let is_lost = record.tags & (tag::LOST | tag::RETRANS) == tag::LOST;
        // Smaller segments may come to more.
        let out = part.count().min(record.count() - 1).max(1);
        let recovery = &mut *self;
        if is_lost {
            (recovery.part_out, recovery.part_end) = (out, end);
            recovery.retrans_out += out;
        }
        recovery.count_resent(now_ns, 1);
    }

    /// Segments sent again in one burst share a record. Returns where the record stands now.
    pub(crate) fn merge_resent(&mut self, records: &mut RecordPool, at: Index) -> Index {
        let prev = records.prev(at);
        if !self.chain.merge_next(records, prev) {
            return at;
        }
        if self.highest == at {
            self.highest = prev;
        }
        prev
    }

    /// There is no record for `record`, which has left: it becomes part of the last one, and what was known of that is forgotten, lest the new segment be
    /// taken for SACKed or lost. Segments that it grows by.
    #[cold]
    pub(crate) fn swallow_sent(&mut self, records: &mut RecordPool, record: Record) -> u32 {
        let tail = self.chain.tail;
        if let Some(last) = records.get_mut(tail) {
            let (tags, count) = (last.tags, last.count());
            last.tags &= !(tag::SACKED | tag::LOST | tag::RETRANS | tag::SETTLED);
            let recovery = &mut *self;
            recovery.forget_part();
            let counts = [
                (tag::SACKED, &mut recovery.sacked_out),
                (tag::LOST, &mut recovery.lost_out),
                (tag::RETRANS, &mut recovery.retrans_out),
            ];
            for (_, total) in counts.into_iter().filter(|(one, _)| tags & one != 0) {
                *total = total.saturating_sub(count);
            }
        }
        if self.highest == tail {
            self.highest = NONE;
        }
        self.chain.swallow(records, record)
    }
}
