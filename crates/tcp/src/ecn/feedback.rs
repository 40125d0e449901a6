//! Accurate ECN's data sender (RFC 9768 3.2): how many of our segments arrived marked, from the peer's ACE field and option.
//!
//! The field has three bits. As long as an ACK covers no more than seven segments it is exact; beyond, it may have wrapped
//! (3.2.2.5.2): the option's bytes tell, or else the number of segments that ACKs usually cover, and what remains open is
//! taken for marked.

use crate::ecn::EcnState;

/// Weight and scale of the average of segments per ACK: 64 ACKs, in 1/64.
pub(crate) const AVERAGE_SHIFT: u32 = 6;

impl EcnState {
    pub(crate) fn average_acked(&mut self, segments: u32) {
        if segments == 0 {
            return;
        }
        let average = u32::from(self.accurate.acked_average);
        let now = segments.saturating_mul(1 << AVERAGE_SHIFT);
        let average = match average {
            0 => now,
            _ => {
                (average << AVERAGE_SHIFT)
                    .saturating_sub(average)
                    .saturating_add(now)
                    >> AVERAGE_SHIFT
            }
        };
        self.accurate.acked_average = average.min(u32::from(u16::MAX)) as u16;
    }
}
