//! The next retransmission, and the state changes after old or new data has left.

use wire::SeqNumber;

use crate::connection::Connection;
use crate::connection::output::Plan;
use crate::context::Cx;
use crate::records::{Index, RecordPool, tag};
use crate::recovery::{Pending, flag};

impl Connection {
    /// The next segment to send again, if recovery and the congestion window let it.
    pub(crate) fn plan_repeat(&self, cx: &Cx<'_>) -> Option<Plan> {
        let recovery = &self.recovery;
        if !recovery.any(flag::SEND) {
            return None;
        }
        if recovery.any(flag::SEND_HEAD) {
            return self.plan_record(cx, recovery.head_index());
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
        // SHLD-16: within the window; MAY-7: the first one beyond it too, as the probe of a
        // shrunken one.
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
            self.recovery
                .note_probe_repeated(cx, view!(self), &mut self.delivery, seq);
            self.note_probe_sent(cx, true);
            return;
        }
        let end = seq + len + u32::from(fin);
        let is_head = self
            .recovery
            .note_repeated(cx, view!(self), &mut self.delivery, seq, end);
        if is_head && !self.recovery.is_pending(Pending::Reorder) {
            self.restart_retransmit_timer(cx);
        }
    }

    /// New segments up to `end` have left for the first time, the last with what `tags` say of it.
    #[inline(always)]
    pub(crate) fn note_sent_new(&mut self, cx: &mut Cx<'_>, end: SeqNumber, tags: u16) {
        self.recovery
            .note_sent_new(cx.records, &self.snd, &mut self.delivery, end, tags);
        self.snd.nxt = end;
    }
}
