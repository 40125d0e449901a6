//! The ACK of all that is in flight, where that is one run of segments that left once: the usual ACK of a short exchange. What the mechanisms of
//! [`recovery`](super) come to for it, in their order and without those that have nothing to say.
//!
//! The state is Open and no probe is out; nothing is SACKed, lost or sent again, so there is no hole, no reordering, no duplicate and nothing to undo;
//! nothing stays in flight, so the timer goes. Called by the fifth step and by header prediction.

use crate::records::{Index, Record, RecordPool};
use crate::recovery::{Recovery, flag};

impl Recovery {
    /// One record at most is in flight, and nothing of it is SACKed, lost or sent again.
    #[inline(always)]
    pub(crate) fn is_one_plain_run(&self) -> bool {
        self.chain.head == self.chain.tail
            && self.sacked_out | self.lost_out | self.retrans_out == 0
            && !self.any(flag::RENEGING)
    }

    /// Where the first record in flight is.
    pub(crate) fn head_index(&self) -> Index {
        self.chain.head
    }

    /// The first record in flight.
    #[inline(always)]
    pub(crate) fn head<'a>(&self, records: &'a RecordPool) -> Option<&'a Record> {
        records.get(self.chain.head)
    }

    /// All that is in flight was delivered, and its only record goes back.
    #[inline(always)]
    pub(crate) fn take_whole_flight(&mut self, records: &mut RecordPool) {
        let recovery = &mut *self;
        recovery.delivered = recovery.delivered.wrapping_add(recovery.packets_out);
        recovery.packets_out = 0;
        recovery.hint = crate::records::NONE;
        recovery.highest = crate::records::NONE;
        recovery.chain.clear_one(records);
    }
}
