//! The plan: the segment that leaves next.

use wire::SeqNumber;

use crate::segment::TransmitClass;

/// The next segment to send.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing.
    Nothing,
    /// The RST that ends the connection.
    Reset,
    /// A RST that answers one segment.
    ReplyReset,
    /// A SYN, or the SYN-ACK of a simultaneous open.
    Syn,
    /// Payload sent before, `len` bytes from `seq` on, and the FIN behind them.
    Repeat { seq: SeqNumber, len: u32, fin: bool },
    /// The next `len` new bytes, and the FIN behind them. `probes_path`: the segment is longer than
    /// the size known to pass (RFC 4821).
    Fresh {
        len: u32,
        fin: bool,
        probes_path: bool,
    },
    /// An empty segment at SND.UNA - 1, which the peer must answer.
    Probe,
    /// A pure ACK for the data that arrived before a mark changed (DCTCP).
    OwedAck,
    /// A pure ACK.
    Ack,
}

impl Plan {
    /// The list that the segment's connection stands on.
    pub(crate) fn class(self) -> TransmitClass {
        match self {
            Plan::Nothing => TransmitClass::None,
            Plan::Reset | Plan::ReplyReset => TransmitClass::Control,
            Plan::Syn => TransmitClass::Opening,
            Plan::Repeat { len: 0, .. } | Plan::Fresh { len: 0, .. } => TransmitClass::Control,
            Plan::Repeat { .. } | Plan::Fresh { .. } => TransmitClass::Data,
            Plan::Probe | Plan::OwedAck | Plan::Ack => TransmitClass::Ack,
        }
    }
}
