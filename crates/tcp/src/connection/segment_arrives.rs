//! "SEGMENT ARRIVES", RFC 9293 3.10.7: the numbered steps in their order, one file each.
//!
//! ```text
//!   predicted ─► prediction            the next segment of an undisturbed, established connection
//!   SYN_SENT  ─► syn_sent              3.10.7.3
//!   otherwise ─► acceptable            first:  sequence number, PAWS
//!                reset                 second: RST
//!                                      third:  security: none
//!                syn                   fourth: SYN
//!                ack                   fifth:  ACK
//!                text                  sixth and seventh: URG, segment text
//!                fin                   eighth: FIN
//! ```
//!
//! A step changes variables and flags, and says whether the next step follows. No step sends: steps
//! set the flags of due segments, and `output` sends them.

use wire::tcp::Flags;

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::receive::delayed_ack::AckKind;
use crate::recv_buffer::RecvBuffer;
use crate::segment::Segment;
use crate::state::State;

mod acceptable;
mod ack;
mod fin;
mod prediction;
mod reset;
mod syn;
mod syn_sent;
mod text;

/// Result of a step.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The next step follows.
    Continue(Effects),
    /// The segment needs no further step.
    Done(Effects),
}

impl Connection {
    /// Takes the segment through the steps.
    pub(crate) fn segment_arrives(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> Effects {
        match self.state() {
            State::Closed => {
                cx.counters.drop_closed += 1;
                Effects::NONE
            }
            State::SynSent => {
                self.conn_flags.clear(ConnFlags::MORE);
                self.syn_sent(cx, seg, rx)
            }
            _ => self.all_steps(cx, seg, rx),
        }
    }

    fn all_steps(&mut self, cx: &mut Cx<'_>, seg: &Segment, rx: &mut impl RecvBuffer) -> Effects {
        if self
            .rx
            .is_retransmitted_fast_syn(seg, self.conn_flags, &self.opening)
        {
            self.tx.on_retransmitted_fast_syn(cx, &mut self.conn_flags);
            return Effects::NONE;
        }
        let crossed;
        let seg = if self.rx.completes_crossed_open(seg, self.state(), &self.snd) {
            // Without its SYN, the peer's SYN-ACK is a plain ACK (RFC 9293 3.5, figure 8). The SYN
            // arrived before, which a D-SACK reports (RFC 2883).
            self.rx
                .note_duplicate(cx, seg.seq, seg.seq + 1, &mut self.conn_flags);
            let mut plain = without_syn(seg);
            // The window of a SYN is not scaled.
            plain.window = seg.window >> self.snd.shift();
            // The ACK leaves at once, as in Linux, to tell the peer that our SYN-ACK is not needed
            // any more.
            self.rx.request_ack(AckKind::Answer, &mut self.conn_flags);
            crossed = plain;
            &crossed
        } else {
            seg
        };
        let mut effects = Effects::NONE;
        let first: [fn(&mut Self, &mut Cx<'_>, &Segment) -> Step; 4] = [
            Self::step_acceptable,
            Self::step_reset,
            Self::step_syn,
            Self::step_ack,
        ];
        for step in first {
            match step(self, cx, seg) {
                Step::Continue(more) => effects |= more,
                Step::Done(more) => return effects | more,
            }
        }
        effects | self.text_and_fin(cx, seg, rx)
    }

    /// Runs steps six to eight.
    pub(crate) fn text_and_fin(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> Effects {
        if !self.state().receives_data() {
            return self.text_after_end(cx, seg);
        }
        self.rx
            .measure_receive_rtt(cx, seg, self.conn_flags, &self.tx);
        let effects = self
            .rx
            .step_urgent(cx, seg, &mut self.conn_flags, &self.rcv)
            | self.step_text(cx, seg, rx);
        self.rx
            .forget_passed_urgent(&mut self.conn_flags, &self.rcv);
        effects
    }
}

/// The segment without its SYN.
pub(crate) fn without_syn(seg: &Segment) -> Segment {
    let mut rest = seg.clone();
    rest.flags = seg.flags.without(Flags::SYN);
    rest.seq = seg.seq + 1;
    rest
}
