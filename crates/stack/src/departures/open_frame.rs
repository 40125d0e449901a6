//! The condition under which a segment joins the frame before it: a port that cuts the frame then
//! makes that very segment of it.

use tcp::SegmentOut;
use wire::tcp::Flags;

/// The frame that a connection built last, which the end of its text may join.
pub(super) struct OpenFrame {
    /// The frame's text as one segment.
    pub segment: SegmentOut,
    /// Bytes of each of its segments.
    pub size: u32,
}

impl OpenFrame {
    /// True if a port that cuts the frame with `end` behind its text makes the segment `end` of it.
    pub fn takes(&self, end: &SegmentOut) -> bool {
        let before = &self.segment;
        before.flags == Flags::ACK
            && end.flags.intersects(Flags::PSH | Flags::FIN)
            && end.flags.without(Flags::PSH | Flags::FIN) == Flags::ACK
            && (1..=self.size).contains(&end.payload_len)
            && end.seq == before.seq + before.payload_len
            && end.payload_offset == before.payload_offset + before.payload_len
            && (end.ack, end.window, end.ecn) == (before.ack, before.window, before.ecn)
            && (end.urgent, before.urgent) == (0, 0)
            && end.options == before.options
    }
}
