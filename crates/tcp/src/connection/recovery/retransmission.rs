//! The next retransmission.

use crate::connection::Connection;
use crate::context::Cx;
use crate::plan::Retransmission;
use crate::records::{Index, tag};
use crate::recovery::flag;

impl Connection {
    /// The next segment to retransmit, if recovery and the congestion window allow one.
    pub(crate) fn plan_retransmission(&self, cx: &Cx<'_>) -> Option<Retransmission> {
        let recovery = &self.flight.recovery();
        if !recovery.any(flag::SEND) {
            return None;
        }
        if recovery.any(flag::SEND_HEAD) {
            return self.plan_record(cx, recovery.head_index());
        }
        if recovery.any(flag::PROBE_LAST) {
            return self.flight.plan_probe(
                cx,
                self.conn_flags,
                &self.snd,
                &self.timers,
                &self.rx,
                &self.ecn,
            );
        }
        let may =
            recovery.any(flag::SEND_LOST) || self.flight.recovery().new_data_test_failed(&self.snd);
        let room = recovery.in_flight() < self.flight.congestion().cwnd();
        if !may || !room || !recovery.has_lost() {
            return None;
        }
        self.plan_record(cx, self.flight.recovery().next_lost(cx.records))
    }

    /// The first segment of the record; a small one takes small neighbours along.
    fn plan_record(&self, cx: &Cx<'_>, at: Index) -> Option<Retransmission> {
        let record = cx.records.get(at)?;
        let mss = self
            .ecn
            .current_mss(cx, self.conn_flags, &self.snd, &self.timers, &self.rx);
        let seq = self.flight.recovery().retransmit_from(&self.snd, record);
        let payload_end = record.end - u32::from(record.has(tag::FIN));
        let left = payload_end.since(seq);
        let mut len = left.min(u32::from(record.mss)).min(mss);
        let mut fin = record.has(tag::FIN) && len == left;
        // Data within the window is retransmitted (RFC 9293 SHLD-16). The first segment is
        // retransmitted beyond a shrunken window too, as its probe (MAY-7).
        let room = if seq.lt(self.snd.wnd_end()) {
            self.snd.wnd_end().since(seq)
        } else if seq == self.snd.una() {
            mss
        } else {
            return None;
        };
        if record.count() == 1 && len == left && !fin && len < mss && seq.lt(self.snd.wnd_end()) {
            (len, fin) =
                self.tx
                    .with_neighbours(cx.records, at, len, mss.min(room), self.conn_flags);
        }
        if len > room {
            len = room;
            fin = false;
        }
        (len > 0 || fin).then_some(Retransmission::new(seq, len, fin))
    }
}
