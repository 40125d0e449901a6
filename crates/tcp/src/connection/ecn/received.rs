//! See [`crate::ecn`].

use crate::connection::Connection;
use crate::connection::timers::AckKind;
use crate::context::Cx;
use crate::ecn::classic::QUICK_ACKS;
use crate::ecn::handshake::reflection;
use crate::ecn::option::field_of;
use crate::ecn::received::{
    AccurateEcnInfo, BYTES_TOLD_SHIFT, CE_COUNTED_MAX, CE_UNTOLD_MAX, CEP_INITIAL, fail,
};
use crate::ecn::{EcnLine, bit};
use crate::segment::{Segment, SegmentOut};
use crate::state::State;
use wire::Ecn;

impl Connection {
    pub(crate) fn accurate_ecn_info(&self) -> AccurateEcnInfo {
        let accurate = &self.ecn.accurate;
        AccurateEcnInfo {
            mode: self.snd.ecn.mode(),
            option_seen: accurate.option_seen as u8,
            fail_mode: accurate.failed,
            received_ce: accurate.received_ce,
            delivered_bytes: accurate.delivered.all(),
            received_bytes: accurate.received.all(),
        }
    }

    /// A segment has passed the first steps: it counts, whatever of it is taken (RFC 9768 3.2.2.2, 3.2.3.1).
    pub(crate) fn note_arrival(&mut self, cx: &mut Cx<'_>, seg: &Segment) {
        self.ecn.accurate.ts_before = self.rcv.ts_recent;
        if self.state() == State::SynReceived {
            return;
        }
        if self.ecn.take(bit::THIRD_ACK) {
            self.take_third_ack(cx, seg);
        }
        self.count_arrival(cx, seg.ecn, seg.len);
    }

    /// A segment with `len` bytes of payload arrived with this codepoint.
    pub(super) fn count_arrival(&mut self, cx: &mut Cx<'_>, codepoint: Ecn, len: u32) {
        let marked = codepoint == Ecn::Ce;
        let accurate = &mut self.ecn.accurate;
        if codepoint != Ecn::NotEct {
            self.ecn.flags |= bit::SEEN;
            if marked {
                cx.counters.ce_marks_in += 1;
                accurate.received_ce = accurate.received_ce.wrapping_add(1);
                accurate.ce_untold = (accurate.ce_untold + 1).min(CE_COUNTED_MAX);
                if accurate.ce_untold >= CE_UNTOLD_MAX {
                    self.ecn.flags |= bit::ACK_NEXT;
                }
            }
            if len > 0 {
                let before = accurate.received.of(codepoint);
                let after = before.wrapping_add(len);
                accurate.received.set(codepoint, after);
                accurate.fields_min = accurate.fields_min.max(field_of(codepoint));
                if before >> BYTES_TOLD_SHIFT != after >> BYTES_TOLD_SHIFT {
                    accurate.demand_at_least(1);
                }
            }
        }
        let changed = accurate.latest != codepoint;
        if changed || marked {
            accurate.latest = codepoint;
            // Two ACKs: the second one tells the new codepoint apart from the old.
            accurate.demand = 2;
            if changed {
                self.ecn.flags |= bit::ACK_NEXT;
            }
        }
    }

    pub(super) fn note_codepoint_accurate(&mut self, cx: &mut Cx<'_>, codepoint: Ecn) {
        if codepoint == Ecn::NotEct && self.ecn.has(bit::SEEN) {
            // A repetition, or bleached: as under RFC 3168.
            self.enter_quick_ack(cx, QUICK_ACKS);
        }
        if self.ecn.has(bit::ACK_NEXT) {
            self.request_ack(AckKind::Congestion);
        }
    }

    /// An ACK leaves: what was to be told at once is told.
    #[inline]
    pub(crate) fn note_ecn_told(&mut self) {
        if self.snd.ecn.is_accurate() {
            self.ecn.put(bit::ACK_NEXT, false);
        }
    }

    /// The segment that leaves carries a D-SACK.
    pub(crate) fn note_dsack_out(&mut self) {
        self.ecn.put(bit::DSACK_OUT, true);
    }

    /// See [`dress_accurate`](Self::dress_accurate).
    pub(crate) fn sends_all_ecn_capable(&self) -> bool {
        let failed = fail::ACE_RECV | fail::ACE_SEND;
        self.snd.ecn.is_accurate() && !self.ecn.accurate.has_failed(failed)
    }

    /// Every segment is ECN-capable, ACKs and repetitions too (RFC 9768 3.1.5), unless the path was found not to bear it.
    pub(super) fn dress_accurate(&mut self, cx: &Cx<'_>, out: &mut SegmentOut) {
        let dsack = self.ecn.take(bit::DSACK_OUT);
        let reflects = self.ecn.take(bit::REFLECT);
        if self.sends_all_ecn_capable() {
            out.ecn = Ecn::Ect0;
        }
        let accurate = &mut self.ecn.accurate;
        let ace = if reflects && out.payload_len == 0 {
            reflection(accurate.syn_received)
        } else {
            accurate.ce_untold = 0;
            (accurate.received_ce.wrapping_add(CEP_INITIAL) & 7) as u8
        };
        out.flags = out.flags.with_ace(ace);
        self.add_option(cx, out, dsack);
    }

    /// The ACE field of a segment that tells of no more marks than we know.
    pub(super) fn expect_known_ace(&mut self) {
        let known = self.recovery.delivered_ce.wrapping_add(CEP_INITIAL);
        EcnLine::expect(&mut self.snd.ecn, (known & 7) as u8);
    }
}
