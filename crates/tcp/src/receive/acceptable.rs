//! Sequence numbers that the receiver accepts (RFC 9293 table 6, as Linux reads it), and repeated
//! segments of the handshake.

use wire::tcp::Flags;

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::opening::Opening;
use crate::receive::Receiver;
use crate::receive::delayed_ack::AckKind;
use crate::segment::Segment;
use crate::send::Sender;
use crate::state::State;
use crate::variables::{Rcv, Snd};

impl Receiver {
    /// True for a repetition of the SYN that made this connection by Fast Open: our SYN-ACK was
    /// lost.
    pub(crate) fn is_retransmitted_fast_syn(
        &self,
        seg: &Segment,
        conn_flags: ConnFlags,
        opening: &Opening,
    ) -> bool {
        conn_flags.has(ConnFlags::FAST_OPENED)
            && opening.is_fast_child()
            && seg.has(Flags::SYN)
            && !seg.flags.intersects(Flags::RST | Flags::ACK | Flags::FIN)
            && seg.seq == self.irs()
    }

    /// Linux's reading of RFC 9293 table 6: a segment that ends before our last ACK is old, and one
    /// that starts beyond the window is unacceptable. Other segments pass for the sake of their ACK
    /// (RFC 9293 MUST-66), and their text is cut to the window later.
    pub(crate) fn is_acceptable(&self, seg: &Segment, state: State, rcv: &Rcv) -> bool {
        let edge = rcv.nxt() + rcv.promised_window();
        if seg.end().lt(rcv.acked()) || seg.seq.gt(edge) {
            return false;
        }
        // While text waits to be read, or after the peer's FIN, a segment with text beyond the edge
        // is dropped, including its ACK (recent Linux). A FIN takes no room.
        let is_waiting = self.unread() > 0 || !state.receives_data();
        if (seg.seq + seg.len).gt(edge) && is_waiting {
            return false;
        }
        // Text that starts at the edge of an open window is dropped, since it only came too soon.
        seg.seq == rcv.nxt() || seg.seq != edge || seg.len == 0
    }

    /// Sends a challenge ACK (RFC 5961), if the limits of connection and stack allow it.
    pub(crate) fn challenge(
        &mut self,
        cx: &mut Cx<'_>,
        conn_flags: &mut ConnFlags,
        tx: &mut Sender,
    ) -> bool {
        let granted =
            tx.may_answer_invalid(cx.now_ns, cx.config) && cx.challenge.allow(cx.now_ns, cx.config);
        if granted {
            cx.counters.challenge_acks_out += 1;
            self.request_ack(AckKind::Answer, conn_flags);
        } else {
            cx.counters.challenge_acks_limited += 1;
        }
        granted
    }

    /// True if both sides are in SYN_RECEIVED and this is the peer's SYN-ACK: its SYN is known, its
    /// ACK is new.
    pub(crate) fn completes_crossed_open(&self, seg: &Segment, state: State, snd: &Snd) -> bool {
        state == State::SynReceived
            && seg.has(Flags::SYN | Flags::ACK)
            && !seg.has(Flags::RST)
            && seg.seq == self.irs()
            && seg.ack == snd.nxt()
    }
}
