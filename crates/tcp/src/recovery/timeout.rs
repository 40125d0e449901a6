//! Records that count as lost after a retransmission timeout (RFC 6298 5), or because the path no
//! longer carries them.

use wire::SeqNumber;

use crate::context::Cx;
use crate::records::{NONE, Record, tag};
use crate::recovery::{CaState, Recovery, flag};

impl Recovery {
    /// Marks everything lost except segments sent less than a round trip ago. If the first segment
    /// in flight is SACKed, the receiver has reneged (RFC 2018 8), and its SACKs are forgotten.
    pub(crate) fn timeout_mark_lost(&mut self, cx: &mut Cx<'_>, has_sack: bool) {
        let head = self.chain.head;
        let reneged = cx
            .records
            .get(head)
            .is_some_and(|record| record.has(tag::SACKED));
        if reneged {
            cx.counters.sack_reneged += 1;
            self.sacked_out = 0;
            self.highest = NONE;
            self.put(flag::RENEGING, true);
        } else if !has_sack {
            self.reset_reno_sack();
        }
        let mut at = head;
        while let Some(record) = cx.records.get_mut(at) {
            let next_of = at;
            if reneged {
                record.tags &= !(tag::SACKED | tag::SETTLED);
            }
            let record = *record;
            at = cx.records.next(at);
            let recent =
                next_of != head && !reneged && self.rack_remaining_us(cx.now_ns, &record, 0) > 0;
            if !recent {
                self.mark_lost(cx.records, cx.counters, next_of);
            }
        }
        self.hint = NONE;
    }

    /// Marks segments of more than `mss` bytes as lost, because the path does not carry them. False
    /// if there is none.
    pub(crate) fn mark_too_long(&mut self, cx: &mut Cx<'_>, mss: u16) -> bool {
        let mut at = self.chain.head;
        while let Some(record) = cx.records.get(at).copied() {
            if record.mss > mss && record.payload() > u32::from(mss) {
                self.mark_lost(cx.records, cx.counters, at);
            }
            at = cx.records.next(at);
        }
        self.lost_out > 0
    }

    /// Marks the first segment in flight as lost.
    pub(crate) fn mark_head_lost(&mut self, cx: &mut Cx<'_>) {
        self.mark_lost(cx.records, cx.counters, self.chain.head);
    }

    /// Adds `record`, which is in flight without a record, as lost.
    pub(crate) fn push_lost(&mut self, cx: &mut Cx<'_>, record: Record) {
        let pushed = self.chain.push(cx.records, record, false);
        self.packets_out += pushed.unwrap_or_default();
        self.mark_head_lost(cx);
    }

    /// Limits the reordering to `default` segments after many duplicates and a timeout: it was
    /// overestimated.
    pub(crate) fn limit_reordering(&mut self, default: u16) {
        if matches!(self.ca_state, CaState::Open | CaState::Disorder)
            && self.sacked_out >= u32::from(default)
        {
            self.reordering = self.reordering.min(default);
        }
    }

    /// Notes that the Loss state was entered; it ends when `nxt` is acknowledged. `frto`: F-RTO
    /// tests whether the timeout was spurious.
    pub(crate) fn begin_loss(&mut self, nxt: SeqNumber, frto: bool) {
        self.high_seq = nxt;
        self.put(flag::TLP | flag::SEND | flag::NOT_CONGESTED, false);
        self.put(flag::FRTO, frto);
    }
}
