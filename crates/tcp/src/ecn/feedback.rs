//! Accurate ECN's data sender (RFC 9768 3.2): byte counters from the peer's options, and the
//! average number of segments per ACK. `connection::ecn` computes the number of marked segments
//! from them.

use wire::Ecn;

use crate::ecn::EcnState;
use crate::ecn::fail;
use crate::ecn::option_values::OptionSeen;
use crate::segment::Segment;

/// Weight and scale of the average number of segments per ACK: 64 ACKs, in 1/64.
pub(crate) const AVERAGE_SHIFT: u32 = 6;

/// Average above which ACKs seem to be merged or thinned out by the path. A jump of the ACE field
/// then does not count as wrapped.
const ACKS_THINNED_ABOVE: u16 = 4 << AVERAGE_SHIFT;
impl EcnState {
    /// Notes TS.Recent before a segment is processed.
    pub(crate) fn note_stamp(&mut self, ts_recent: u32) {
        self.accurate.ts_before = ts_recent;
    }

    /// True if the segment that is being processed moved TS.Recent.
    pub(crate) fn has_stamp_moved(&self, ts_recent: u32) -> bool {
        ts_recent.wrapping_sub(self.accurate.ts_before) as i32 > 0
    }

    /// Payload bytes of ours that the peer's options reported as marked.
    pub(crate) fn marked_bytes(&self) -> u32 {
        self.accurate.delivered.of(Ecn::Ce)
    }

    /// True if the path seems to merge or thin out ACKs.
    pub(crate) fn thins_acks(&self) -> bool {
        self.accurate.acked_average > ACKS_THINNED_ABOVE
    }

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

/// Bytes that may be sent without any option from the peer. With more, its counters may have
/// wrapped unseen.
const BYTES_WITHOUT_OPTION_MAX: u64 = (1 << 23) - 1;

impl EcnState {
    /// Takes the option of an ACK that delivered `bytes`, or estimates its values. True if the byte
    /// counters are reliable. `bytes_sent`: payload bytes sent in all.
    pub(crate) fn take_option(&mut self, seg: &Segment, bytes: u32, bytes_sent: u64) -> bool {
        let option = &seg.options.accecn;
        let accurate = &mut self.accurate;
        if accurate.has_failed(fail::OPTION_RECV) {
            return false;
        }
        let estimate = accurate.estimate;
        if !option.is_present() {
            if accurate.option_seen == OptionSeen::None {
                if bytes_sent >= BYTES_WITHOUT_OPTION_MAX {
                    accurate.option_seen = OptionSeen::Zeroed;
                    accurate.failed |= fail::OPTION_RECV;
                }
                return false;
            }
            let known = accurate.delivered.of(estimate);
            accurate.delivered.set(estimate, known.wrapping_add(bytes));
            return estimate != Ecn::NotEct;
        }
        accurate.see_option(option);
        let mut reliable = estimate != Ecn::NotEct;
        let mut ambiguous = false;
        let mut new_estimate = None;
        accurate.delivered.take(option, |codepoint, step| {
            if step < 0 {
                ambiguous = true;
            }
            if codepoint != estimate && new_estimate.replace(codepoint).is_some() {
                ambiguous = true;
            }
        });
        if let Some(codepoint) = new_estimate {
            accurate.estimate = codepoint;
        }
        if ambiguous {
            accurate.estimate = Ecn::NotEct;
            reliable = false;
        }
        reliable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The average of acknowledged segments per ACK, in 1/64.
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
