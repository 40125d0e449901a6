//! Pure ACKs that report only how far the text has arrived. They have a straight path of their own,
//! like the lone segment. The ACKs of a run are given one after another, each without the fields
//! that all of them share.

use wire::tcp::{Flags, Timestamp};
use wire::{Ecn, SeqNumber};

use super::Plan;
use crate::connection::Connection;
use crate::context::Cx;
use crate::marks::Marks;
use crate::segment::SegmentOut;

/// A pure ACK with no option but a timestamp, no flag but ACK, and no ECN codepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainAck {
    /// SEG.SEQ
    pub seq: SeqNumber,
    /// SEG.ACK
    pub ack: SeqNumber,
    /// Window, scaled: ready for the wire.
    pub window: u16,
    /// The only option.
    pub timestamp: Option<Timestamp>,
}

impl From<PlainAck> for SegmentOut {
    fn from(ack: PlainAck) -> Self {
        let mut out = SegmentOut::empty();
        out.seq = ack.seq;
        out.ack = ack.ack;
        out.flags = Flags::ACK;
        out.window = ack.window;
        out.options.timestamp = ack.timestamp;
        out
    }
}

impl Connection {
    /// Like [`poll_due_ack`](Self::poll_due_ack), for plain ACKs. `None` may also mean that the due
    /// ACK is not plain.
    #[inline]
    pub fn poll_plain_ack(&mut self, cx: &mut Cx<'_>) -> Option<PlainAck> {
        let is_plain = self.snd.ecn.is_off()
            && self.rx.dup_acks_due() == 0
            && !self.marks.any(Marks::STOPS_PLAIN_ACK);
        if !is_plain || self.plan(cx) != Plan::Ack {
            return None;
        }
        let ack = PlainAck {
            seq: self.acceptable_seq(),
            ack: self.rcv.nxt,
            window: self.advertise_window(cx),
            timestamp: self.data_stamp(cx.now_ns),
        };
        self.note_plain_ack(cx);
        Some(ack)
    }

    /// All that is due is a pure ACK, and it is plain.
    #[inline]
    pub(super) fn owes_plain_ack(&self) -> bool {
        let others = Marks::SEND_NOW
            .with(Marks::ACK_TELLS_MORE)
            .with(Marks::RECORDS)
            .with(Marks::PATH_NARROWED)
            .with(Marks::PATH_PROBING)
            .with(Marks::NO_PREDICTION);
        self.marks.of(others) == Marks::ACK_NOW
            && self.snd.ecn.is_off()
            && self.rx.dup_acks_due() == 0
            && self.state().is_synchronized()
            && self.unsent() == 0
            && !self.fin_unsent()
    }

    /// The ACK leaves, and nothing else is due.
    #[inline]
    pub(super) fn send_plain_ack(&mut self, cx: &mut Cx<'_>, out: &mut SegmentOut) {
        debug_assert_eq!(self.plan(cx), Plan::Ack);
        out.seq = self.acceptable_seq();
        out.ack = self.rcv.nxt;
        out.flags = Flags::ACK;
        out.ecn = Ecn::NotEct;
        out.window = self.advertise_window(cx);
        out.options.reset_to(self.data_stamp(cx.now_ns));
        out.payload_offset = 0;
        out.payload_len = 0;
        out.urgent = 0;
        self.note_plain_ack(cx);
        self.stop_lone(cx);
    }

    #[inline]
    fn note_plain_ack(&mut self, cx: &mut Cx<'_>) {
        cx.counters.segments_out += 1;
        self.delivery.note_out(cx.now_ns, false);
        self.pacing.on_control_sent(cx.now_ns);
        self.tx.segs_out = self.tx.segs_out.wrapping_add(1);
        self.note_ack_sent(cx);
    }
}
