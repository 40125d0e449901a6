//! Accurate ECN's data sender (RFC 9768 3.2): how many of our segments arrived marked, from the
//! peer's ACE field and option.
//!
//! The field has three bits. It is exact as long as an ACK covers no more than seven segments.
//! Beyond that it may have wrapped (3.2.2.5.2). The option's byte counters then decide, or else the
//! number of segments that ACKs usually cover. Segments that remain open count as marked.

use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::ecn::received::CEP_INITIAL;
use crate::recovery::ack::Ack;
use crate::segment::Segment;

/// The ACE field counts modulo eight.
const ACE_MASK: u32 = 7;
/// Fewer marked bytes than half of what so many segments have: the field has not wrapped.
const SAFETY_SHIFT: u32 = 1;

impl Connection {
    /// Takes the marks that an acceptable ACK reports. Newly marked segments count, and ask for a
    /// reduction as ECE does.
    pub(crate) fn take_feedback(&mut self, cx: &Cx<'_>, seg: &Segment, ack: &mut Ack) {
        let marked = self.newly_marked(cx, seg, ack);
        if marked > 0 {
            self.flight.recovery_mut().count_marked(marked);
            ack.ece = true;
            self.flight.expect_known_ace(&mut self.snd);
        }
    }

    fn newly_marked(&mut self, cx: &Cx<'_>, seg: &Segment, ack: &Ack) -> u32 {
        // The ACK is newer than others, by the data it covers or by its timestamp. Any other ACK
        // may have been overtaken.
        let stamp_moved = self.ecn.has_stamp_moved(self.rcv.ts_recent());
        if !ack.is_progress() && !stamp_moved {
            return 0;
        }
        let segments = self
            .flight
            .recovery()
            .delivered()
            .wrapping_sub(ack.prior_delivered);
        let bytes = self.flight.bytes_delivered(cx, ack, &self.snd);
        let marked_before = self.ecn.marked_bytes();
        let told = self
            .ecn
            .take_option(seg, bytes, self.flight.delivery().bytes_sent());
        self.ecn.average_acked(segments);
        let field = u32::from(seg.flags.ace()).wrapping_sub(CEP_INITIAL);
        let least = field.wrapping_sub(self.flight.recovery().delivered_ce()) & ACE_MASK;
        if segments <= ACE_MASK {
            return least;
        }
        let most = segments - (segments.wrapping_sub(least) & ACE_MASK);
        if told {
            let marked = self.ecn.marked_bytes();
            self.judge_by_bytes(
                segments,
                bytes,
                marked.wrapping_sub(marked_before),
                least,
                most,
            )
        } else if self.ecn.thins_acks() {
            least
        } else {
            most
        }
    }

    /// `marked` of `bytes` newly delivered were marked. Returns how many segments the field stands
    /// for, between `least` and `most`: it may have wrapped.
    fn judge_by_bytes(&self, segments: u32, bytes: u32, marked: u32, least: u32, most: u32) -> u32 {
        if marked == 0 {
            return least;
        }
        let calm = matches!(
            self.flight.recovery().ca_state(),
            CaState::Open | CaState::Cwr
        );
        if segments > 2 * ACE_MASK + 1 && (!self.conn_flags.is_reno() || calm) {
            if bytes <= marked {
                return most;
            }
            let share = (u64::from(marked) * u64::from(segments)).div_ceil(u64::from(bytes));
            // Less than `segments`, since `marked` is less than `bytes`.
            return most.min(least + (share as u32 & !ACE_MASK));
        }
        let mss = u32::from(self.snd.mss());
        if marked > least.saturating_mul(mss) {
            most
        } else if marked < most.saturating_mul(mss) >> SAFETY_SHIFT {
            least
        } else {
            most
        }
    }
}
