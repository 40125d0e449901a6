//! Accurate ECN's data sender (RFC 9768 3.2): how many of our segments arrived marked, from the
//! peer's ACE field and option.
//!
//! The field has three bits. It is exact as long as an ACK covers no more than seven segments.
//! Beyond that it may have wrapped (3.2.2.5.2). The option's byte counters then decide, or else the
//! number of segments that ACKs usually cover. Segments that remain open count as marked.

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledged segments per ACK, in 1/64.
    fn average(acks: &[u32]) -> u16 {
        let mut state = EcnState::default();
        for &segments in acks {
            state.average_acked(segments);
        }
        state.accurate.acked_average
    }

    #[test]
    fn average_begins_with_the_first_ack_and_follows_by_a_64th() {
        assert_eq!(average(&[]), 0);
        assert_eq!(average(&[2]), 2 * 64);
        assert_eq!(average(&[2, 2]), 2 * 64);
        // 63/64 of the old average and 1/64 of the new number.
        assert_eq!(average(&[2, 66]), 2 * 64 + 64);
        assert_eq!(average(&[2, 0]), 2 * 64);
    }

    #[test]
    fn average_of_giant_acks_stays_within_its_field() {
        assert_eq!(average(&[u32::MAX]), u16::MAX);
        assert_eq!(average(&[1, u32::MAX]), u16::MAX);
    }
}
