//! The answer to a segment that belongs to no connection (RFC 9293 section 3.10.7.1), and the RST
//! that refuses an ACK.
//!
//! The stack calls [`reply`] when no connection, listener or compact entry takes a segment; the
//! other modules use [`refuse`].

use wire::SeqNumber;
use wire::tcp::Flags;

use crate::segment::{Segment, SegmentOut};

#[cfg(test)]
mod tests;

/// The RST for a segment to a closed port; `None` for a RST.
#[must_use]
pub fn reply(seg: &Segment) -> Option<SegmentOut> {
    if seg.has(Flags::RST) {
        return None;
    }
    if seg.has(Flags::ACK) {
        return Some(refuse(seg.ack));
    }
    Some(SegmentOut {
        seq: SeqNumber(0),
        ack: seg.end(),
        flags: Flags::RST | Flags::ACK,
        ..SegmentOut::empty()
    })
}

/// The RST `<SEQ=SEG.ACK><CTL=RST>`, which answers an ACK of data that was never sent.
#[must_use]
pub fn refuse(seg_ack: SeqNumber) -> SegmentOut {
    SegmentOut {
        seq: seg_ack,
        flags: Flags::RST,
        ..SegmentOut::empty()
    }
}
