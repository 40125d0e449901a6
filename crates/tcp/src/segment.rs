//! Segments as values: the input from the network layer, and the connection's output.

use wire::tcp::{Flags, Header, Options};
use wire::{Ecn, SeqNumber};

/// A segment that arrived: its checksum is verified, and it is for this connection. Its payload is
/// stored elsewhere.
#[derive(Clone, Debug)]
pub struct Segment {
    /// SEG.SEQ.
    pub seq: SeqNumber,
    /// SEG.ACK; meaningless without the ACK flag.
    pub ack: SeqNumber,
    /// Control bits.
    pub flags: Flags,
    /// SEG.WND as on the wire, unscaled.
    pub window: u16,
    /// SEG.UP, the urgent pointer.
    pub urgent: u16,
    /// Payload bytes.
    pub len: u32,
    /// Options that the parser knows.
    pub options: Options,
    /// The ECN codepoint of the IP header.
    pub ecn: Ecn,
}

impl Segment {
    /// SEG.LEN of RFC 9293: payload bytes, plus one each for SYN and FIN.
    #[must_use]
    pub fn seq_len(&self) -> u32 {
        self.len
            + u32::from(self.flags.contains(Flags::SYN))
            + u32::from(self.flags.contains(Flags::FIN))
    }

    /// The sequence number behind the segment.
    #[must_use]
    pub fn end(&self) -> SeqNumber {
        self.seq + self.seq_len()
    }

    /// True if all bits of `flags` are set.
    #[must_use]
    pub fn has(&self, flags: Flags) -> bool {
        self.flags.contains(flags)
    }
}

/// The ECN codepoint is Not-ECT; the caller sets that of the IP header.
impl From<(&Header, u32)> for Segment {
    fn from((header, len): (&Header, u32)) -> Self {
        Segment {
            seq: header.seq,
            ack: header.ack,
            flags: header.flags,
            window: header.window,
            urgent: header.urgent,
            len,
            options: header.options,
            ecn: Ecn::NotEct,
        }
    }
}

/// A segment to send. The caller adds ports, addresses, payload and checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentOut {
    /// SEG.SEQ.
    pub seq: SeqNumber,
    /// SEG.ACK; zero without the ACK flag.
    pub ack: SeqNumber,
    /// Control bits.
    pub flags: Flags,
    /// Window field, scaled, as on the wire.
    pub window: u16,
    /// Options to emit.
    pub options: Options,
    /// Offset of the payload in the send buffer, whose first byte is at SND.UNA.
    pub payload_offset: u32,
    /// Payload bytes, at most the MSS.
    pub payload_len: u32,
    /// The ECN codepoint for the IP header.
    pub ecn: Ecn,
    /// Urgent pointer; zero without the URG flag.
    pub urgent: u16,
}

impl SegmentOut {
    /// An empty segment, to be filled in by `poll_transmit`.
    #[must_use]
    pub fn empty() -> Self {
        SegmentOut {
            seq: SeqNumber(0),
            ack: SeqNumber(0),
            flags: Flags(0),
            window: 0,
            options: Options::default(),
            payload_offset: 0,
            payload_len: 0,
            ecn: Ecn::NotEct,
            urgent: 0,
        }
    }
}

impl Default for SegmentOut {
    fn default() -> Self {
        Self::empty()
    }
}

/// The stack's transmit list to which a connection belongs, least urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TransmitClass {
    /// Nothing to send.
    None,
    /// A pure ACK of data that the application is about to see. It may wait for the application's
    /// answer and ride on it, for an unnoticeably short time (RFC 9293 3.8.6.3).
    Piggyback,
    /// The SYN of a new connection, which leaves after the data of existing connections.
    Opening,
    /// New or retransmitted payload.
    Data,
    /// A pure ACK or a probe.
    Ack,
    /// RST, or a FIN without data.
    Control,
}
