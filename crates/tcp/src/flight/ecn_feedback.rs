//! Feedback of ECN for the flight: the peer's reports of marks, counted for our segments (RFC 9768
//! 3.2).

use wire::Ecn;

use crate::context::Cx;
use crate::ecn::fail;
use crate::ecn::handshake::reflected;
use crate::ecn::received::CEP_INITIAL;
use crate::ecn::{EcnState, bit};
use crate::flight::Flight;
use crate::recovery::ack::Ack;
use crate::segment::Segment;
use crate::state::State;
use crate::variables::{Rcv, Snd};

impl Flight {
    /// Payload bytes that the ACK reports for the first time.
    pub(crate) fn bytes_delivered(&self, cx: &Cx<'_>, ack: &Ack, snd: &Snd) -> u32 {
        if ack.acked == 0 {
            return ack.sacked_bytes;
        }
        let head = self.recovery.head(cx.records);
        let end = head.map_or(snd.una(), |head| head.seq);
        if end.gt(ack.prior_una) {
            end.since(ack.prior_una)
        } else {
            0
        }
    }

    /// Takes the option of a SYN-ACK like that of any ACK. Its ACE field belongs to the handshake
    /// (RFC 9768 3.2.2.1).
    pub(crate) fn take_feedback_of_syn_ack(
        &self,
        seg: &Segment,
        snd: &mut Snd,
        ecn: &mut EcnState,
    ) {
        if snd.ecn().is_accurate() {
            ecn.take_option(seg, 0, self.delivery.bytes_sent());
            ecn.average_acked(1);
            self.expect_known_ace(snd);
        }
    }

    /// Takes the first segment after our SYN-ACK. If it is the third ACK itself, its ACE field
    /// reports how our SYN-ACK arrived (RFC 9768 3.2.2.1, table 4).
    pub(crate) fn take_third_ack(
        &mut self,
        cx: &Cx<'_>,
        seg: &Segment,
        snd: &mut Snd,
        ecn: &mut EcnState,
    ) {
        ecn.see_handshake_option(seg, 1);
        let plain = seg.seq_len() == 0 && seg.options.sack.is_empty();
        match seg.flags.ace() {
            0b000 if seg.options.sack.is_empty() => {
                ecn.fail(fail::ACE_RECV | fail::OPTION_RECV);
            }
            ace @ (0b010 | 0b011 | 0b100 | 0b110) if plain => {
                let believed = ecn.believes_feedback(cx.config, ace);
                if believed && reflected(ace) == Ecn::Ce && self.recovery.delivered_ce() == 0 {
                    self.recovery.count_marked(1);
                }
            }
            _ => {}
        }
        self.expect_known_ace(snd);
    }

    /// Counts a segment that has passed the first steps, whatever part of it is taken (RFC 9768
    /// 3.2.2.2, 3.2.3.1).
    pub(crate) fn note_arrival(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        state: State,
        snd: &mut Snd,
        rcv: &Rcv,
        ecn: &mut EcnState,
    ) {
        ecn.note_stamp(rcv.ts_recent());
        if state == State::SynReceived {
            return;
        }
        if ecn.take(bit::THIRD_ACK) {
            self.take_third_ack(cx, seg, snd, ecn);
        }
        ecn.count_arrival(cx.counters, seg.ecn, seg.len);
    }

    /// Sets the ACE field that a segment without new marks is expected to carry.
    pub(crate) fn expect_known_ace(&self, snd: &mut Snd) {
        let known = self.recovery.delivered_ce().wrapping_add(CEP_INITIAL);
        snd.expect_ace((known & 7) as u8);
    }
}
