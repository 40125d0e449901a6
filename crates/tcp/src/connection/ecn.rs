//! Accurate ECN's data sender (RFC 9768 3.2): the number of our segments that arrived marked, from
//! the peer's ACE field and option.
//!
//! The ACE field has three bits. It is exact as long as an ACK covers at most seven segments.
//! Beyond that it may have wrapped (RFC 9768 3.2.2.5.2). Then the option's byte counters decide, or
//! else the number of segments that ACKs usually cover. In doubt the larger number of marks counts.

use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::ecn::received::CEP_INITIAL;
use crate::recovery::ack::Ack;
use crate::segment::Segment;

/// The ACE field counts modulo eight.
const ACE_MASK: u32 = 7;
/// Shift for half: if fewer bytes are marked than half of what the larger number of segments
/// carries, the field has not wrapped.
const SAFETY_SHIFT: u32 = 1;

impl Connection {
    /// Takes the marks that an acceptable ACK reports. Newly marked segments are counted, and they
    /// ask for a reduction as ECE does.
    pub(crate) fn take_feedback(&mut self, cx: &Cx<'_>, seg: &Segment, ack: &mut Ack) {
        let marked = self.newly_marked(cx, seg, ack);
        if marked > 0 {
            self.flight.recovery_mut().count_marked(marked);
            ack.ece = true;
            self.flight.expect_known_ace(&mut self.snd);
        }
    }

    fn newly_marked(&mut self, cx: &Cx<'_>, seg: &Segment, ack: &Ack) -> u32 {
        // Only an ACK that is newer than all before, by the data it covers or by its timestamp,
        // counts. Any other may have been overtaken.
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

    /// Number of newly marked segments, at least `least` and at most `most` (the field may have
    /// wrapped), judged by `marked` of `bytes` newly delivered bytes.
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
            // Less than `segments`, because `marked` is less than `bytes`.
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
