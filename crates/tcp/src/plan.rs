//! The plan: the segment that leaves next.
//!
//! The end of each call makes the plan and stores it; transmission executes it. A stored plan is
//! valid only at the time for which it was made, since pacing and deferral depend on the time.
//! Every change of the connection makes a new plan or forgets the stored one.

use wire::SeqNumber;

use crate::segment::TransmitClass;

/// The next segment to send. `len` counts payload bytes; with `fin` a FIN follows them.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing to send.
    Nothing,
    /// The RST that ends the connection.
    Reset,
    /// A RST that answers one segment.
    ReplyReset,
    /// A SYN, or the SYN-ACK of a simultaneous open.
    Syn,
    /// Payload that was sent before. Loss recovery says where it begins.
    Retransmission { len: u16, fin: bool },
    /// All waiting data, while nothing is in flight.
    Lone { len: u16, fin: bool },
    /// The next new bytes.
    Fresh { len: u16, fin: bool },
    /// The next new bytes in a segment that is longer than the size known to pass (RFC 4821).
    PathProbe { len: u16 },
    /// An empty segment at SND.UNA - 1, which the peer must answer.
    Probe,
    /// A pure ACK for data that arrived before the mark changed (DCTCP).
    OwedAck,
    /// A pure ACK.
    Ack,
}

impl Plan {
    /// The transmit list of the segment's connection.
    #[inline]
    pub(crate) fn class(self) -> TransmitClass {
        match self {
            Plan::Nothing => TransmitClass::None,
            Plan::Reset | Plan::ReplyReset => TransmitClass::Control,
            Plan::Syn => TransmitClass::Opening,
            Plan::Retransmission { len: 0, .. }
            | Plan::Lone { len: 0, .. }
            | Plan::Fresh { len: 0, .. } => TransmitClass::Control,
            Plan::Retransmission { .. }
            | Plan::Lone { .. }
            | Plan::Fresh { .. }
            | Plan::PathProbe { .. } => TransmitClass::Data,
            Plan::Probe | Plan::OwedAck | Plan::Ack => TransmitClass::Ack,
        }
    }
}

/// Payload to be retransmitted: `len` bytes from `seq` on, and the FIN behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retransmission {
    pub seq: SeqNumber,
    pub len: u16,
    pub fin: bool,
}

impl Retransmission {
    /// `len` is at most one segment's payload.
    pub fn new(seq: SeqNumber, len: u32, fin: bool) -> Self {
        Retransmission {
            seq,
            len: len as u16,
            fin,
        }
    }

    /// The plan, without the sequence number of the payload.
    pub fn plan(self) -> Plan {
        Plan::Retransmission {
            len: self.len,
            fin: self.fin,
        }
    }
}

/// A plan between the call that made it and its transmission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    /// Lower 32 bits of the time for which the plan was made, ns.
    at: u32,
    plan: Option<Plan>,
}

const _: () = assert!(size_of::<Planned>() == 8);

/// Any two values are equal: a stored plan always follows from the connection's other variables.
impl PartialEq for Planned {
    fn eq(&self, _: &Planned) -> bool {
        true
    }
}

impl Planned {
    /// No plan is stored.
    pub const NONE: Planned = Planned { at: 0, plan: None };

    /// Stores `plan`, which was made for this time.
    #[inline(always)]
    pub fn store(&mut self, plan: Plan, now_ns: u64) {
        *self = Planned {
            at: now_ns as u32,
            plan: Some(plan),
        };
    }

    /// Takes the plan out, if one is stored for this time.
    #[inline(always)]
    pub fn take(&mut self, now_ns: u64) -> Option<Plan> {
        let stored = core::mem::replace(self, Planned::NONE);
        if stored.at == now_ns as u32 {
            stored.plan
        } else {
            None
        }
    }

    /// Forgets the plan, because the connection changed.
    #[inline(always)]
    pub fn forget(&mut self) {
        *self = Planned::NONE;
    }
}
