//! Marks that arrived, and the ACE field that tells the peer of them (RFC 9768 3.2).

use wire::Ecn;

use crate::connection::Connection;
use crate::connection::timers::AckKind;
use crate::context::Cx;
use crate::ecn::classic::QUICK_ACKS;
use crate::ecn::handshake::reflection;
use crate::ecn::received::CEP_INITIAL;
use crate::ecn::{EcnLine, bit};
use crate::segment::{Segment, SegmentOut};
use crate::state::State;

impl Connection {
    /// A segment has passed the first steps: it counts, whatever of it is taken (RFC 9768 3.2.2.2,
    /// 3.2.3.1).
    pub(crate) fn note_arrival(&mut self, cx: &mut Cx<'_>, seg: &Segment) {
        self.ecn.accurate.ts_before = self.rcv.ts_recent;
        if self.state() == State::SynReceived {
            return;
        }
        if self.ecn.take(bit::THIRD_ACK) {
            self.take_third_ack(cx, seg);
        }
        self.ecn.count_arrival(cx.counters, seg.ecn, seg.len);
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

    /// Marks the segment ECN-capable. With accurate ECN every segment is, including ACKs and
    /// retransmissions (RFC 9768 3.1.5), unless the path drops such segments.
    pub(super) fn dress_accurate(&mut self, cx: &Cx<'_>, out: &mut SegmentOut) {
        let dsack = self.ecn.take(bit::DSACK_OUT);
        let reflects = self.ecn.take(bit::REFLECT);
        if self.ecn.sends_all_ecn_capable(self.snd.ecn) {
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
        self.ecn.add_option(
            self.tx.rtt.srtt_ns() / 1000,
            cx.now_ns,
            cx.config,
            out,
            dsack,
        );
    }

    /// Expects the ACE field of a segment that reports no new marks.
    pub(super) fn expect_known_ace(&mut self) {
        let known = self.recovery.delivered_ce().wrapping_add(CEP_INITIAL);
        EcnLine::expect(&mut self.snd.ecn, (known & 7) as u8);
    }
}
