//! Pure ACKs of a run that report only how far the text has arrived. They are returned one after
//! another, without the fields that all of them share.

use wire::SeqNumber;
use wire::tcp::{Flags, Timestamp};

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::plan::Plan;
use crate::segment::SegmentOut;

/// A pure ACK with no option but a timestamp, no flag but ACK, and no ECN codepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainAck {
    /// SEG.SEQ.
    pub seq: SeqNumber,
    /// SEG.ACK.
    pub ack: SeqNumber,
    /// The window field, scaled, as on the wire.
    pub window: u16,
    /// The timestamp, the only option.
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
    /// Like [`poll_due_ack`](Self::poll_due_ack), for plain ACKs. `None` also if the due ACK is not
    /// plain.
    #[inline]
    pub fn poll_plain_ack(&mut self, cx: &mut Cx<'_>) -> Option<PlainAck> {
        let is_plain = self.snd.ecn().is_off()
            && self.rx.dup_acks_due() == 0
            && !self.conn_flags.any(ConnFlags::STOPS_PLAIN_ACK);
        if !is_plain || self.plan_generally(cx) != Plan::Ack {
            return None;
        }
        self.planned.forget();
        let ack = PlainAck {
            seq: self.rcv.acceptable_seq(&self.snd),
            ack: self.rcv.nxt(),
            window: self
                .rx
                .advertise_window(cx, &mut self.conn_flags, &mut self.rcv),
            timestamp: self.tx.data_stamp(cx.now_ns, self.conn_flags, &self.rcv),
        };
        self.note_plain_ack(cx);
        Some(ack)
    }

    #[inline]
    fn note_plain_ack(&mut self, cx: &mut Cx<'_>) {
        cx.counters.segments_out += 1;
        self.flight.delivery_mut().note_out(cx.now_ns, false);
        self.flight.pacing_mut().on_control_sent(cx.now_ns);
        self.tx.count_segments(1);
        self.note_ack_sent(cx);
    }
}
