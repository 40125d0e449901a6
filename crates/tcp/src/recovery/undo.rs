//! Undoing a reduction that was not called for: nothing was lost, only late. Shown by timestamps
//! (Eifel, RFC 3522 and 4015) or by D-SACKs of all that was sent again (RFC 3708).

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
            // Nothing sent again yet; 0 would mean that all of it was needless.
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

    /// Something sent again may still be in the network.
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
    /// The reduction was undone: there is no other to undo, and losses are looked for anew.
    pub(crate) fn end_undo(&mut self) {
        self.put(flag::UNDO, false);
        self.look_for_losses();
    }

    /// D-SACKs have called every retransmission needless.
    pub(crate) fn are_all_needless(&self) -> bool {
        self.any(flag::UNDO) && self.undo_retrans == 0
    }
}
