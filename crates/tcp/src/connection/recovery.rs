//! Loss recovery as methods of the connection: [`crate::recovery`] holds the state.

use wire::SeqNumber;

use crate::connection::Connection;
use crate::context::Cx;
use crate::marks::Marks;
use crate::recovery::records::{NONE, tag};

mod acked;
mod frto;
mod machine;
mod prr;
mod rack;
mod rate;
mod reno;
mod resend;
mod scoreboard;
mod timeout;
mod tlp;
mod undo;
mod whole_flight;

impl Connection {
    /// Recovery may have begun or ended: header prediction and the plan for output depend on it.
    #[inline]
    pub(crate) fn after_recovery_event(&mut self) {
        let disturbed = self.recovery.is_disturbed();
        self.marks.put(Marks::RECOVERING, disturbed);
    }

    /// The end of the highest SACKed segment, SND.UNA if there is none (FACK).
    #[inline]
    pub(crate) fn highest_sacked(&self) -> SeqNumber {
        if self.recovery.sacked_out == 0 || self.is_reno() {
            self.snd.una
        } else {
            self.recovery.highest_sacked
        }
    }

    /// The peer does not SACK: duplicate ACKs are counted instead.
    #[inline]
    pub(crate) fn is_reno(&self) -> bool {
        !self.marks.has(Marks::SACK)
    }

    /// Panics unless records, counts and sequence numbers agree; for tests.
    #[doc(hidden)]
    pub fn check_in_flight(&self, cx: &Cx<'_>) {
        self.check_packing();
        let recovery = &self.recovery;
        let mut counts = [0u32; 4];
        let mut at = recovery.chain.head;
        let mut next = None;
        let mut is_part_found = recovery.part_out == 0;
        while let Some(record) = cx.records.get(at) {
            is_part_found |= recovery.is_part_of(record);
            assert!(next.is_none_or(|next| record.seq == next), "{record:?}");
            assert!(record.end.gt(record.seq), "{record:?}");
            let count = record.count();
            counts[0] += count;
            for (i, tag) in [tag::SACKED, tag::LOST, tag::RETRANS].iter().enumerate() {
                counts[i + 1] += if record.has(*tag) { count } else { 0 };
            }
            next = Some(record.end);
            assert!(cx.records.next(at) != NONE || recovery.chain.tail == at);
            at = cx.records.next(at);
        }
        if self.is_reno() {
            counts[1] = recovery.sacked_out;
        }
        let [out, sacked, lost, retrans] = counts;
        assert_eq!(out, recovery.packets_out, "out: {recovery:?}");
        assert_eq!(sacked, recovery.sacked_out, "SACKed: {recovery:?}");
        assert_eq!(lost, recovery.lost_out, "lost: {recovery:?}");
        assert!(is_part_found, "a part of what? {recovery:?}");
        let whole = recovery.retrans_out - recovery.part_out;
        assert_eq!(retrans, whole, "sent again: {recovery:?}");
        assert!(sacked + lost <= out, "{recovery:?}");
        if self.state().is_synchronized() && !self.is_fast_opened() {
            assert!(next.is_none_or(|next| next == self.snd.nxt), "{recovery:?}");
            assert_eq!(out == 0, self.snd.una == self.snd.nxt, "{recovery:?}");
        }
    }
}
