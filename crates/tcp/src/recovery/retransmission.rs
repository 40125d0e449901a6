//! Retransmission and transmission as the records see them: the next lost segment, and the changes
//! after a segment has left.

use wire::SeqNumber;

use crate::context::Cx;
use crate::records::{Index, NONE, Record, RecordPool, tag};
use crate::recovery::View;
use crate::recovery::rate::Delivery;
use crate::recovery::{Recovery, flag};
use crate::variables::Snd;

impl Recovery {
    /// True if F-RTO wanted to send new data and there was none.
    pub(crate) fn new_data_test_failed(&self, snd: &Snd) -> bool {
        let recovery = self;
        recovery.any(flag::SEND_NEW) && snd.nxt().le(recovery.high_seq)
    }

    /// Ends F-RTO's test if no new data could be sent: it is inconclusive (RFC 5682 2.1, step 2.b).
    /// The lost data is then retransmitted, when pacing allows it.
    #[cold]
    pub(crate) fn end_new_data_test(&mut self, snd: &Snd) {
        if self.new_data_test_failed(snd) {
            self.put(flag::FRTO, false);
            self.put(flag::SEND_LOST, true);
        }
        self.put(flag::SEND_NEW, false);
    }

    /// The first record that is lost and not retransmitted.
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

    /// Number of segments in the lost run that begins at `seq`.
    pub(crate) fn lost_run(&self, records: &RecordPool, seq: SeqNumber) -> u32 {
        if !self.any(flag::SEND_LOST) {
            return 1;
        }
        match records.get(self.next_lost(records)) {
            Some(record) if record.seq == seq => record.count(),
            _ => 1,
        }
    }

    /// The start of the first segment of a lost record that has not been retransmitted.
    pub(crate) fn retransmit_from(&self, snd: &Snd, record: &Record) -> SeqNumber {
        let recovery = self;
        let seq = record.seq.max(snd.una());
        match recovery.is_part_of(record) && !recovery.any(flag::SEND_HEAD) {
            true => recovery.part_end,
            false => seq,
        }
    }

    /// True if a retransmission that ends at `end` carries PSH. PSH stays where the text had it
    /// first; a segment merged from several has PSH if one of them had it (Linux).
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

    /// Notes that one segment of a run was retransmitted, up to `end`, without a record to separate
    /// it from the later ones. The run stays lost, and the retransmitted part counts as in flight.
    /// Only the run as a whole has a transmission time.
    #[cold]
    pub(crate) fn mark_part_retransmitted(
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
        // Smaller segments may be more than the run's own.
        let out = part.count().min(record.count() - 1).max(1);
        let recovery = &mut *self;
        if is_lost {
            (recovery.part_out, recovery.part_end) = (out, end);
            recovery.retrans_out += out;
        }
        recovery.count_retransmitted(now_ns, 1);
    }

    /// Segments retransmitted in one burst share a record. Returns the record's index.
    pub(crate) fn merge_retransmitted(&mut self, records: &mut RecordPool, at: Index) -> Index {
        let prev = records.prev(at);
        if !self.chain.merge_next(records, prev) {
            return at;
        }
        if self.highest == at {
            self.highest = prev;
        }
        prev
    }

    /// Adds a segment that has left and got no record of its own to the last record. The state of
    /// that record is reset, so that the new segment does not count as SACKed or lost. Returns the
    /// number of segments added.
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

impl Recovery {
    /// Cuts or merges records so that one ends at `end`.
    fn fit_record(&mut self, records: &mut RecordPool, view: View<'_>, at: Index, end: SeqNumber) {
        let (una, mss) = (view.snd.una(), view.snd.mss());
        let outdated = |record: &Record| record.mss > mss || record.seq.lt(una);
        if records.get(at).is_some_and(outdated) {
            self.recount(records, view.has_sack, at, |record| {
                record.seq = record.seq.max(una);
                record.mss = record.mss.min(mss);
            });
        }
        let Some(record) = records.get(at).copied() else {
            return;
        };
        if record.end.gt(end) {
            self.split(records, view.has_sack, at, end);
            return;
        }
        while let Some(record) = records.get(at).copied()
            && record.end.lt(end)
        {
            if !self.swallow_next(records, view, at) {
                break;
            }
        }
    }

    /// Merges the segment behind the record into the record's segment.
    fn swallow_next(&mut self, records: &mut RecordPool, view: View<'_>, at: Index) -> bool {
        let next = records.next(at);
        let Some(swallowed) = records.get(next).copied() else {
            return false;
        };
        self.forget_part();
        self.adjust_counts(view.has_sack, swallowed.tags, swallowed.count(), 0);
        if self.highest == next {
            self.highest = at;
        }
        if self.hint == next {
            self.hint = at;
        }
        self.chain.unlink(records, next);
        let mss = view.snd.mss();
        if let Some(record) = records.get_mut(at) {
            record.end = swallowed.end;
            record.mss = mss;
            record.tags |= swallowed.tags & (tag::EVER_RETRANS | tag::FIN | tag::PUSHED);
        }
        true
    }

    /// Changes a record, and corrects the counts if its number of segments changes.
    pub(super) fn recount(
        &mut self,
        records: &mut RecordPool,
        has_sack: bool,
        at: Index,
        change: impl FnOnce(&mut Record),
    ) {
        let Some(record) = records.get_mut(at) else {
            return;
        };
        self.forget_part();
        let before = record.count();
        change(record);
        let (tags, after) = (record.tags, record.count());
        self.adjust_counts(has_sack, tags, before, after);
    }

    /// Corrects the counts for a record with `tags` that has `after` segments where it had
    /// `before`.
    pub(super) fn adjust_counts(&mut self, has_sack: bool, tags: u16, before: u32, after: u32) {
        let recovery = &mut *self;
        if !has_sack {
            // Duplicate ACKs have no records, so the count shrinks with the number of segments.
            recovery.sacked_out = recovery
                .sacked_out
                .saturating_sub(before.saturating_sub(after));
        }
        let adjust = |count: &mut u32| *count = (*count + after).saturating_sub(before);
        adjust(&mut recovery.packets_out);
        if tags & tag::SACKED != 0 {
            adjust(&mut recovery.sacked_out);
        }
        if tags & tag::LOST != 0 {
            adjust(&mut recovery.lost_out);
        }
        if tags & tag::RETRANS != 0 {
            adjust(&mut recovery.retrans_out);
        }
    }

    /// Marks a whole record as retransmitted; `before`: its segments that had been retransmitted
    /// already.
    fn mark_retransmitted(
        &mut self,
        cx: &mut Cx<'_>,
        delivery: &mut Delivery,
        at: Index,
        before: u32,
    ) {
        self.stamp_sent(cx, delivery, at);
        let Some(record) = cx.records.get_mut(at) else {
            return;
        };
        let count = record.count();
        let again = record.has(tag::RETRANS);
        record.tags |= tag::RETRANS | tag::EVER_RETRANS;
        let recovery = &mut *self;
        if !again {
            recovery.retrans_out += count;
        }
        recovery.count_retransmitted(cx.now_ns, count.saturating_sub(before).max(1));
    }

    /// Stamps a record that was just sent: its time, and the reference of its delivery rate.
    pub(super) fn stamp_sent(&mut self, cx: &mut Cx<'_>, delivery: &mut Delivery, at: Index) {
        let delivered = self.delivered;
        if let Some(record) = cx.records.get_mut(at) {
            record.sent_ns = delivery.last_out_ns();
            record.tags &= !tag::SETTLED;
            delivery.on_sent(record, delivered);
        }
    }

    /// Like [`note_sent_new`](Self::note_sent_new), for one segment when nothing is in flight and
    /// the state is Open.
    #[inline(always)]
    pub(crate) fn note_first_sent(
        &mut self,
        records: &mut RecordPool,
        snd: &Snd,
        delivery: &mut Delivery,
        end: SeqNumber,
        tags: u16,
    ) {
        let sent_ns = delivery.last_out_ns();
        let mut record = Record::new(snd.nxt(), end, snd.mss(), sent_ns, tags);
        delivery.on_first_sent(&mut record, self.delivered);
        self.chain.begin(records, record);
        self.packets_out = u32::from(!self.chain.is_empty());
    }

    /// Notes that new segments up to `end` have left for the first time; `tags` describe the last
    /// one. SND.NXT has not moved yet.
    #[inline(always)]
    pub(crate) fn note_sent_new(
        &mut self,
        records: &mut RecordPool,
        snd: &Snd,
        delivery: &mut Delivery,
        end: SeqNumber,
        tags: u16,
    ) {
        let sent_ns = delivery.last_out_ns();
        let mut record = Record::new(snd.nxt(), end, snd.mss(), sent_ns, tags);
        match self.packets_out {
            0 => delivery.on_first_sent(&mut record, self.delivered),
            _ => delivery.on_sent(&mut record, self.delivered),
        }
        let joins = !delivery.begins_burst();
        let pushed = self.chain.push(records, record, joins);
        let count = match pushed {
            Some(count) => count,
            None => self.swallow_sent(records, record),
        };
        let recovery = &mut *self;
        recovery.packets_out += count;
        if recovery.is_reducing() {
            recovery.prr_out += count;
        }
    }

    /// Notes that lost data has left again from `seq` to `end`. True if it was the first segment in
    /// flight.
    pub(crate) fn note_retransmitted(
        &mut self,
        cx: &mut Cx<'_>,
        view: View<'_>,
        delivery: &mut Delivery,
        seq: SeqNumber,
        end: SeqNumber,
    ) -> bool {
        let at = if self.any(flag::SEND_HEAD) {
            self.chain.head
        } else {
            self.next_lost(cx.records)
        };
        self.put(flag::SEND_HEAD, false);
        let is_first = cx.records.get(at).is_none_or(|record| seq.le(record.seq));
        let before = self.take_part(cx.records.get(at));
        self.fit_record(cx.records, view, at, end);
        // A single segment counts as retransmitted even if a part of it had no room.
        let is_part = |record: &Record| record.end.gt(end) && record.count() > 1;
        let is_whole = !cx.records.get(at).is_some_and(is_part);
        match is_whole {
            true => self.mark_retransmitted(cx, delivery, at, before),
            false => self.mark_part_retransmitted(cx.records, cx.now_ns, at, end),
        }
        let is_head = is_first && at == self.chain.head;
        self.hint = if delivery.begins_burst() || !is_whole {
            at
        } else {
            self.merge_retransmitted(cx.records, at)
        };
        is_head
    }
}
