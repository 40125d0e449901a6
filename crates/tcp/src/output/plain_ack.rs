//! The pure ACKs of a run, one after another: what each says, and nothing of what all of them share.

use wire::SeqNumber;
use wire::tcp::{Flags, Timestamp};

use super::Plan;
use crate::connection::{Connection, Cx};
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
    /// As [`poll_due_ack`](Self::poll_due_ack), for ACKs that are plain: `None` may also mean that the one that is due is not.
    #[inline]
    pub fn poll_plain_ack(&mut self, cx: &mut Cx<'_>) -> Option<PlainAck> {
        let is_plain = self.snd.ecn.is_off()
            && self.rx.dup_acks_due == 0
            && !self.marks.any(Marks::ACK_TELLS_MORE | Marks::RECORDS);
        if !is_plain || self.plan(cx) != Plan::Ack {
            return None;
        }
        let timestamp = self.marks.has(Marks::TIMESTAMPS).then(|| Timestamp {
            value: self.ts_value(cx.now_ns),
            echo: self.rcv.ts_recent,
        });
        let ack = PlainAck {
            seq: self.acceptable_seq(),
            ack: self.rcv.nxt,
            window: self.advertise_window(cx),
            timestamp,
        };
        cx.counters.segments_out += 1;
        self.delivery.note_out(cx.now_ns, false);
        self.tx.segs_out = self.tx.segs_out.wrapping_add(1);
        self.note_ack_sent(cx);
        Some(ack)
    }
}
