//! The ACK of all that is in flight, where that is one run of segments that left once: the usual ACK of a short exchange. What the mechanisms of
//! [`recovery`](super) come to for it, in their order and without those that have nothing to say.
//!
//! The state is Open and no probe is out; nothing is SACKed, lost or sent again, so there is no hole, no reordering, no duplicate and nothing to undo;
//! nothing stays in flight, so the timer goes. Called by the fifth step and by header prediction.

use crate::recovery::Recovery;
use crate::recovery::records::RecordPool;

impl Recovery {
    /// The only record goes back.
    #[inline]
    pub(crate) fn forget_whole_flight(&mut self, records: &mut RecordPool) {
        let recovery = &mut *self;
        recovery.packets_out = 0;
        recovery.hint = crate::recovery::records::NONE;
        recovery.highest = crate::recovery::records::NONE;
        recovery.chain.clear_one(records);
    }
}
