//! What to send again next, and what changes when it, or something new, has left.

use wire::SeqNumber;

use crate::connection::Connection;
use crate::connection::output::Plan;
use crate::context::Cx;
use crate::recovery::records::{Index, Record, RecordPool, tag};
use crate::recovery::{Pending, flag};

impl Connection {
    /// The next segment to send again, if recovery and the congestion window let it.
    pub(crate) fn plan_repeat(&self, cx: &Cx<'_>) -> Option<Plan> {
        let recovery = &self.recovery;
        if !recovery.any(flag::SEND) {
            return None;
        }
        if recovery.any(flag::SEND_HEAD) {
            return self.plan_record(cx, recovery.chain.head);
        }
        if recovery.any(flag::PROBE_LAST) {
            return self.plan_probe(cx);
        }
        let may = recovery.any(flag::SEND_LOST) || self.recovery.new_data_test_failed(&self.snd);
        let room = recovery.in_flight() < self.congestion.cwnd();
        if !may || !room || !recovery.has_lost() {
            return None;
        }
        self.plan_record(cx, self.recovery.next_lost(cx.records))
    }

    /// The record's first segment; a small one takes its small neighbours along.
    fn plan_record(&self, cx: &Cx<'_>, at: Index) -> Option<Plan> {
        let record = cx.records.get(at)?;
        let mss = self.current_mss(cx);
        let seq = self.recovery.resend_from(&self.snd, record);
        let payload_end = record.end - u32::from(record.has(tag::FIN));
        let left = payload_end.since(seq);
        let mut len = left.min(u32::from(record.mss)).min(mss);
        let mut fin = record.has(tag::FIN) && len == left;
        // SHLD-16: within the window; MAY-7: the first one beyond it too, as the probe of a shrunken one.
        let room = if seq.lt(self.snd.wnd_end()) {
            self.snd.wnd_end().since(seq)
        } else if seq == self.snd.una {
            mss
        } else {
            return None;
        };
        if record.count() == 1 && len == left && !fin && len < mss && seq.lt(self.snd.wnd_end()) {
            (len, fin) = self.with_neighbours(cx.records, at, len, mss.min(room));
        }
        if len > room {
            len = room;
            fin = false;
        }
        (len > 0 || fin).then_some(Plan::Repeat { seq, len, fin })
    }

    /// Small segments behind the record that fit the same segment, and the FIN.
    fn with_neighbours(&self, records: &RecordPool, at: Index, len: u32, room: u32) -> (u32, bool) {
        let mut len = len;
        let mut at = records.next(at);
        while let Some(next) = records.get(at) {
            let fits = len + next.payload() <= room && !self.ends_record(next.seq);
            if next.count() > 1 || next.has(tag::SACKED) || !fits {
                break;
            }
            len += next.payload();
            if next.has(tag::FIN) {
                return (len, true);
            }
            at = records.next(at);
        }
        (len, false)
    }

    /// `len` bytes from `seq` on, and the FIN behind them, have left again.
    #[cold]
    pub(crate) fn note_resent(&mut self, cx: &mut Cx<'_>, seq: SeqNumber, len: u32, fin: bool) {
        if self.recovery.any(flag::PROBE_LAST) && !self.recovery.any(flag::SEND_HEAD) {
            self.note_probe_repeated(cx, seq);
            self.note_probe_sent(cx, true);
            return;
        }
        let at = if self.recovery.any(flag::SEND_HEAD) {
            self.recovery.chain.head
        } else {
            self.recovery.next_lost(cx.records)
        };
        self.recovery.put(flag::SEND_HEAD, false);
        let is_first = cx.records.get(at).is_none_or(|record| seq.le(record.seq));
        let end = seq + len + u32::from(fin);
        let before = self.recovery.take_part(cx.records.get(at));
        self.fit_record(cx.records, at, end);
        // A lone segment counts as sent again whatever had no room.
        let is_part = |record: &Record| record.end.gt(end) && record.count() > 1;
        let is_whole = !cx.records.get(at).is_some_and(is_part);
        match is_whole {
            true => self.mark_resent(cx, at, before),
            false => self
                .recovery
                .mark_part_resent(cx.records, cx.now_ns, at, end),
        }
        let is_head = is_first && at == self.recovery.chain.head;
        if is_head && self.recovery.pending != Pending::Reorder {
            self.restart_retransmit_timer(cx);
        }
        self.recovery.hint = if self.delivery.begins_burst() || !is_whole {
            at
        } else {
            self.recovery.merge_resent(cx.records, at)
        };
    }

    /// Cuts or merges so that the record ends at `end`.
    fn fit_record(&mut self, records: &mut RecordPool, at: Index, end: SeqNumber) {
        let (una, mss) = (self.snd.una, self.snd.mss);
        let outdated = |record: &Record| record.mss > mss || record.seq.lt(una);
        if records.get(at).is_some_and(outdated) {
            self.recount(records, at, |record| {
                record.seq = record.seq.max(una);
                record.mss = record.mss.min(mss);
            });
        }
        let Some(record) = records.get(at).copied() else {
            return;
        };
        if record.end.gt(end) {
            self.split(records, at, end);
            return;
        }
        while let Some(record) = records.get(at).copied()
            && record.end.lt(end)
        {
            if !self.swallow_next(records, at) {
                break;
            }
        }
    }

    /// The segment behind the record becomes part of its segment.
    fn swallow_next(&mut self, records: &mut RecordPool, at: Index) -> bool {
        let next = records.next(at);
        let Some(swallowed) = records.get(next).copied() else {
            return false;
        };
        self.recovery.forget_part();
        self.adjust_counts(swallowed.tags, swallowed.count(), 0);
        if self.recovery.highest == next {
            self.recovery.highest = at;
        }
        if self.recovery.hint == next {
            self.recovery.hint = at;
        }
        self.recovery.chain.unlink(records, next);
        let mss = self.snd.mss;
        if let Some(record) = records.get_mut(at) {
            record.end = swallowed.end;
            record.mss = mss;
            record.tags |= swallowed.tags & (tag::EVER_RETRANS | tag::FIN | tag::PUSHED);
        }
        true
    }

    /// Changes a record in a way that may change its number of segments.
    pub(super) fn recount(
        &mut self,
        records: &mut RecordPool,
        at: Index,
        change: impl FnOnce(&mut Record),
    ) {
        let Some(record) = records.get_mut(at) else {
            return;
        };
        self.recovery.forget_part();
        let before = record.count();
        change(record);
        let (tags, after) = (record.tags, record.count());
        self.adjust_counts(tags, before, after);
    }

    /// A record with `tags` has `after` segments where it had `before`.
    pub(crate) fn adjust_counts(&mut self, tags: u16, before: u32, after: u32) {
        let is_reno = self.is_reno();
        let recovery = &mut self.recovery;
        if is_reno {
            // What duplicates count has no record of its own: of fewer segments fewer have arrived.
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

    /// The record has left again, whole: `before` segments of it some time ago.
    fn mark_resent(&mut self, cx: &mut Cx<'_>, at: Index, before: u32) {
        self.stamp_sent(cx, at);
        let Some(record) = cx.records.get_mut(at) else {
            return;
        };
        let count = record.count();
        let again = record.has(tag::RETRANS);
        record.tags |= tag::RETRANS | tag::EVER_RETRANS;
        let recovery = &mut self.recovery;
        if !again {
            recovery.retrans_out += count;
        }
        recovery.count_resent(cx.now_ns, count.saturating_sub(before).max(1));
    }

    /// The record was sent just now: its time, and what its delivery rate is measured against.
    pub(crate) fn stamp_sent(&mut self, cx: &mut Cx<'_>, at: Index) {
        let delivered = self.recovery.delivered;
        if let Some(record) = cx.records.get_mut(at) {
            record.sent_ns = self.delivery.last_out_ns();
            record.tags &= !tag::SETTLED;
            self.delivery.on_sent(record, delivered, false);
        }
    }

    /// As [`note_sent_new`](Self::note_sent_new), of one segment when nothing is in flight and the state is Open.
    #[inline]
    pub(crate) fn note_first_sent(&mut self, cx: &mut Cx<'_>, end: SeqNumber, tags: u16) {
        let sent_ns = self.delivery.last_out_ns();
        let mut record = Record::new(self.snd.nxt, end, self.snd.mss, sent_ns, tags);
        let recovery = &mut self.recovery;
        self.delivery.on_sent(&mut record, recovery.delivered, true);
        recovery.chain.begin(cx.records, record);
        recovery.packets_out = u32::from(!recovery.chain.is_empty());
        self.snd.nxt = end;
    }

    /// New segments up to `end` have left for the first time, the last with what `tags` say of it. SND.NXT still stands before them.
    #[inline]
    pub(crate) fn note_sent_new(&mut self, cx: &mut Cx<'_>, end: SeqNumber, tags: u16) {
        let idle = self.recovery.packets_out == 0;
        let sent_ns = self.delivery.last_out_ns();
        let mut record = Record::new(self.snd.nxt, end, self.snd.mss, sent_ns, tags);
        let delivered = self.recovery.delivered;
        self.delivery.on_sent(&mut record, delivered, idle);
        let joins = !self.delivery.begins_burst();
        let pushed = self.recovery.chain.push(cx.records, record, joins);
        let count = match pushed {
            Some(count) => count,
            None => self.recovery.swallow_sent(cx.records, record),
        };
        let recovery = &mut self.recovery;
        recovery.packets_out += count;
        if recovery.is_reducing() {
            recovery.prr_out += count;
        }
        self.snd.nxt = end;
    }
}
