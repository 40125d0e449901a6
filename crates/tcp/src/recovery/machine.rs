//! The state machine of loss recovery (Linux's, which grew around RFC 5681, 6582, 6675 and 3168).
//!
//! ```text
//!   Open ──SACK, duplicate──► Disorder ──loss──► Recovery ──all acknowledged──► Open
//!    └──ECE──► CWR ───────────────────────loss──────┘            (or undone)
//!   any ──timeout──► Loss ──all acknowledged, or undone──► Open
//! ```

use crate::recovery::CaState;
use crate::recovery::Recovery;
use crate::recovery::ack::Ack;

impl Recovery {
    /// Anything about this ACK that needs the machine?
    pub(crate) fn is_dubious(&self, ack: &Ack) -> bool {
        let alerts = ack.sacked || ack.dsack || ack.ece;
        !ack.is_no_duplicate() || alerts || self.ca_state != CaState::Open
    }
}
