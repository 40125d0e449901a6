//! The tail loss probe (RFC 8985 7) as the records see it. `flight::tlp` decides when it leaves.

use wire::SeqNumber;

use crate::context::Cx;
use crate::records::{NONE, Record, RecordPool, tag};
use crate::recovery::rate::Delivery;
use crate::recovery::{Pending, Recovery, View, flag};
use crate::timers::Timers;

impl Recovery {
    /// Time until the timeout, counted from the last transmission of the first segment in flight;
    /// `None`: it has passed.
    pub(crate) fn timeout_from_head_ns(
        &self,
        timers: &Timers,
        records: &RecordPool,
        now_ns: u64,
    ) -> Option<u64> {
        let head = records.get(self.chain.head)?;
        let at_ns = head.sent_ns + timers.rtt().rto_ns();
        at_ns.checked_sub(now_ns).filter(|&wait_ns| wait_ns > 0)
    }

    pub(crate) fn is_tail_sacked(&self, records: &RecordPool) -> bool {
        let tail = records.get(self.chain.tail);
        tail.is_some_and(|tail| tail.has(tag::SACKED))
    }
}

impl Recovery {
    /// Gives the last segment, which the probe retransmitted, a record of its own, and marks it as
    /// sent twice (Karn).
    pub(crate) fn note_probe_retransmitted(
        &mut self,
        cx: &mut Cx<'_>,
        view: View<'_>,
        delivery: &mut Delivery,
        seq: SeqNumber,
    ) {
        let mut at = self.chain.tail;
        if let Some(tail) = cx.records.get(at).copied()
            && seq.gt(tail.seq)
        {
            if seq == view.snd.una() {
                // The front of the only remaining segment is acknowledged. It counts as no segment.
                self.recount(cx.records, view.has_sack, at, |record| record.seq = seq);
            } else if self.split(cx.records, view.has_sack, at, seq) {
                at = self.chain.tail;
            }
        }
        self.stamp_sent(cx, delivery, at);
        if let Some(record) = cx.records.get_mut(at) {
            record.tags |= tag::EVER_RETRANS;
        }
        debug_assert!(at != NONE);
    }

    /// Notes that a probe has left with SND.NXT at `nxt`; `retransmitted`: it was the last segment
    /// again.
    pub(crate) fn note_probe(&mut self, nxt: SeqNumber, retransmitted: bool) {
        self.put(flag::PROBE_NEW | flag::PROBE_LAST, false);
        self.put(flag::TLP_RETRANS, retransmitted);
        self.put(flag::TLP, true);
        self.tlp_high_seq = nxt;
        self.pending = Pending::Timeout;
    }

    /// The last record in flight.
    pub(crate) fn tail<'a>(&self, records: &'a RecordPool) -> Option<&'a Record> {
        records.get(self.chain.tail)
    }
}
