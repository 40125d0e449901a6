//! The ACK of a whole flight that is one run of segments sent once: the usual ACK of a short
//! exchange. The code does the work of all mechanisms of [`recovery`](super) for this case, in
//! their order, without those that have no effect.
//!
//! The state is Open and no probe is out. Nothing is SACKed, lost or retransmitted, so there is no
//! hole, no reordering, no duplicate and nothing to undo. Nothing stays in flight, so the timer is
//! cleared. The fifth step and header prediction call it.

use crate::records::{Index, Record, RecordPool};
use crate::recovery::{Recovery, flag};

impl Recovery {
    /// True if at most one record is in flight, none of which is SACKed, lost or retransmitted.
    #[inline(always)]
    pub(crate) fn is_one_plain_run(&self) -> bool {
        self.chain.head == self.chain.tail
            && self.sacked_out | self.lost_out | self.retrans_out == 0
    }

    /// The index of the first record in flight.
    pub(crate) fn head_index(&self) -> Index {
        self.chain.head
    }

    /// The first record in flight.
    #[inline(always)]
    pub(crate) fn head<'a>(&self, records: &'a RecordPool) -> Option<&'a Record> {
        records.get(self.chain.head)
    }

    /// Counts everything in flight as delivered, and gives the only record back.
    #[inline(always)]
    pub(crate) fn take_whole_flight(&mut self, records: &mut RecordPool) {
        debug_assert!(!self.any(flag::RENEGING), "the state was not Open");
        let recovery = &mut *self;
        recovery.delivered = recovery.delivered.wrapping_add(recovery.packets_out);
        recovery.packets_out = 0;
        recovery.hint = crate::records::NONE;
        recovery.highest = crate::records::NONE;
        recovery.chain.clear_one(records);
    }
}
