//! State for undoing a needless reduction. `flight::undo` decides about it.

use crate::records::{NONE, RecordPool, tag};
use crate::recovery::{Recovery, flag};
use crate::variables::Snd;

impl Recovery {
    /// Begins a reduction that may be undone.
    pub(crate) fn begin_undo(&mut self, snd: &Snd) {
        let recovery = &mut *self;
        recovery.put(flag::UNDO, true);
        recovery.undo_marker = snd.una();
        recovery.undo_retrans = recovery.retrans_out as i32;
        if recovery.flags & (flag::TLP | flag::TLP_RETRANS) == flag::TLP | flag::TLP_RETRANS {
            recovery.undo_retrans += 1;
        }
        if recovery.undo_retrans == 0 {
            // Nothing was retransmitted yet; 0 would mean that every retransmission was needless.
            recovery.undo_retrans = -1;
        }
    }

    pub(crate) fn unmark_lost(&mut self, records: &mut RecordPool) {
        let mut at = self.chain.head;
        while let Some(record) = records.get_mut(at) {
            record.tags &= !tag::LOST;
            at = records.next(at);
        }
        self.forget_part();
        self.lost_out = 0;
        self.hint = NONE;
    }

    /// True if any retransmission may still be in the network.
    pub(crate) fn any_retransmitted(&self, records: &RecordPool) -> bool {
        self.retrans_out > 0
            || records
                .get(self.chain.head)
                .is_some_and(|head| head.has(tag::EVER_RETRANS))
    }

    pub(crate) fn clean_retrans_stamp(&mut self, records: &RecordPool) {
        if !self.any_retransmitted(records) {
            self.retrans_stamp_ms = 0;
        }
    }
}

impl Recovery {
    /// Ends an undo: there is nothing else to undo, and losses are searched anew.
    pub(crate) fn end_undo(&mut self) {
        self.put(flag::UNDO, false);
        self.look_for_losses();
    }

    /// True if D-SACKs have reported every retransmission as needless.
    pub(crate) fn are_all_needless(&self) -> bool {
        self.any(flag::UNDO) && self.undo_retrans == 0
    }
}
