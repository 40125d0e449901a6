//! Accurate ECN's data sender (RFC 9768 3.2): how many of our segments arrived marked, from the
//! peer's ACE field and option.
//!
//! The field has three bits. It is exact as long as an ACK covers no more than seven segments.
//! Beyond that it may have wrapped (3.2.2.5.2). The option's byte counters then decide, or else the
//! number of segments that ACKs usually cover. Segments that remain open count as marked.

use wire::Ecn;

use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::ecn::feedback::AVERAGE_SHIFT;
use crate::ecn::option::OptionSeen;
use crate::ecn::received::{CEP_INITIAL, fail};
use crate::recovery::ack::Ack;
use crate::segment::Segment;

/// The ACE field counts modulo eight.
const ACE_MASK: u32 = 7;
/// Bytes that may be sent without an option from the peer. After more bytes its counters may have
/// wrapped.
const BYTES_WITHOUT_OPTION_MAX: u64 = (1 << 23) - 1;
/// ACKs that cover more segments than this were merged or thinned out on their way, so none is
/// counted as missing.
const ACKS_THINNED_ABOVE: u16 = 4 << AVERAGE_SHIFT;
/// Fewer marked bytes than half of what so many segments have: the field has not wrapped.
const SAFETY_SHIFT: u32 = 1;

impl Connection {
    /// Takes the marks that an acceptable ACK reports. Newly marked segments count, and ask for a
    /// reduction as ECE does.
    pub(crate) fn take_feedback(&mut self, cx: &Cx<'_>, seg: &Segment, ack: &mut Ack) {
        let marked = self.newly_marked(cx, seg, ack);
        if marked > 0 {
            self.recovery.count_marked(marked);
            ack.ece = true;
            self.expect_known_ace();
        }
    }

    fn newly_marked(&mut self, cx: &Cx<'_>, seg: &Segment, ack: &Ack) -> u32 {
        // The ACK is newer than others, by the data it covers or by its timestamp. Any other ACK
        // may have been overtaken.
        let stamp_moved = self.rcv.ts_recent.wrapping_sub(self.ecn.accurate.ts_before) as i32 > 0;
        if !ack.is_progress() && !stamp_moved {
            return 0;
        }
        let segments = self.recovery.delivered().wrapping_sub(ack.prior_delivered);
        let bytes = self.bytes_delivered(cx, ack);
        let marked_before = self.ecn.accurate.delivered.of(Ecn::Ce);
        let told = self.take_option(seg, bytes);
        self.ecn.average_acked(segments);
        let field = u32::from(seg.flags.ace()).wrapping_sub(CEP_INITIAL);
        let least = field.wrapping_sub(self.recovery.delivered_ce()) & ACE_MASK;
        if segments <= ACE_MASK {
            return least;
        }
        let most = segments - (segments.wrapping_sub(least) & ACE_MASK);
        if told {
            let marked = self.ecn.accurate.delivered.of(Ecn::Ce);
            self.judge_by_bytes(
                segments,
                bytes,
                marked.wrapping_sub(marked_before),
                least,
                most,
            )
        } else if self.ecn.accurate.acked_average > ACKS_THINNED_ABOVE {
            least
        } else {
            most
        }
    }

    /// `marked` of `bytes` newly delivered were marked: how often did the field wrap, between
    /// `least` and `most` segments?
    fn judge_by_bytes(&self, segments: u32, bytes: u32, marked: u32, least: u32, most: u32) -> u32 {
        if marked == 0 {
            return least;
        }
        let calm = matches!(self.recovery.ca_state(), CaState::Open | CaState::Cwr);
        if segments > 2 * ACE_MASK + 1 && (!self.is_reno() || calm) {
            if bytes <= marked {
                return most;
            }
            let share = (u64::from(marked) * u64::from(segments)).div_ceil(u64::from(bytes));
            // Less than `segments`, since `marked` is less than `bytes`.
            return most.min(least + (share as u32 & !ACE_MASK));
        }
        let mss = u32::from(self.snd.mss);
        if marked > least.saturating_mul(mss) {
            most
        } else if marked < most.saturating_mul(mss) >> SAFETY_SHIFT {
            least
        } else {
            most
        }
    }

    /// Payload that the ACK reports for the first time.
    fn bytes_delivered(&self, cx: &Cx<'_>, ack: &Ack) -> u32 {
        if ack.acked == 0 {
            return ack.sacked_bytes;
        }
        let head = self.recovery.head(cx.records);
        let end = head.map_or(self.snd.una, |head| head.seq);
        if end.gt(ack.prior_una) {
            end.since(ack.prior_una)
        } else {
            0
        }
    }

    /// Takes the option, or estimates its values. Returns whether the byte counters can be relied
    /// on.
    fn take_option(&mut self, seg: &Segment, bytes: u32) -> bool {
        let option = &seg.options.accecn;
        let accurate = &mut self.ecn.accurate;
        if accurate.has_failed(fail::OPTION_RECV) {
            return false;
        }
        let estimate = accurate.estimate;
        if !option.is_present() {
            if accurate.option_seen == OptionSeen::None {
                if self.delivery.bytes_sent() >= BYTES_WITHOUT_OPTION_MAX {
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

    /// The SYN-ACK is an ACK too: its option counts, its ACE field is spent on the handshake (RFC
    /// 9768 3.2.2.1).
    pub(crate) fn take_feedback_of_syn_ack(&mut self, seg: &Segment) {
        if self.snd.ecn.is_accurate() {
            self.take_option(seg, 0);
            self.ecn.average_acked(1);
            self.expect_known_ace();
        }
    }
}
