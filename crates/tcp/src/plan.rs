//! The plan: the segment that leaves next.
//!
//! The end of a call makes the plan and stores it; transmission executes it. A stored plan counts
//! at the time for which it was made, since pacing and deferral depend on the time. Every change of
//! the connection makes a new plan or forgets the stored one.

use wire::SeqNumber;

use crate::segment::TransmitClass;

/// The next segment to send. `len` is payload, and the FIN of `fin` stands behind it.
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
    /// Payload sent before. Loss recovery says where it begins.
    Repeat { len: u16, fin: bool },
    /// All that waits, with nothing in flight.
    Lone { len: u16, fin: bool },
    /// The next new bytes.
    Fresh { len: u16, fin: bool },
    /// The next new bytes in a segment that is longer than the size known to pass (RFC 4821).
    PathProbe { len: u16 },
    /// An empty segment at SND.UNA - 1, which the peer must answer.
    Probe,
    /// A pure ACK for the data that arrived before a mark changed (DCTCP).
    OwedAck,
    /// A pure ACK that reports only how far the text has arrived, and nothing else is due.
    PlainAck,
    /// A pure ACK.
    Ack,
}

impl Plan {
    /// The list that the segment's connection stands on.
    #[inline]
    pub(crate) fn class(self) -> TransmitClass {
        match self {
            Plan::Nothing => TransmitClass::None,
            Plan::Reset | Plan::ReplyReset => TransmitClass::Control,
            Plan::Syn => TransmitClass::Opening,
            Plan::Repeat { len: 0, .. }
            | Plan::Lone { len: 0, .. }
            | Plan::Fresh { len: 0, .. } => TransmitClass::Control,
            Plan::Repeat { .. }
            | Plan::Lone { .. }
            | Plan::Fresh { .. }
            | Plan::PathProbe { .. } => TransmitClass::Data,
            Plan::Probe | Plan::OwedAck | Plan::PlainAck | Plan::Ack => TransmitClass::Ack,
        }
    }
}

/// Payload to be sent again: `len` bytes from `seq` on, and the FIN behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeat {
    pub seq: SeqNumber,
    pub len: u16,
    pub fin: bool,
}

impl Repeat {
    /// `len` is at most one segment's payload.
    pub fn new(seq: SeqNumber, len: u32, fin: bool) -> Self {
        Repeat {
            seq,
            len: len as u16,
            fin,
        }
    }

    /// The plan without the place where the payload begins.
    pub fn plan(self) -> Plan {
        Plan::Repeat {
            len: self.len,
            fin: self.fin,
        }
    }
}

/// A plan between the call that made it and its transmission.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    /// The time for which the plan was made: the lower bits of its nanoseconds.
    at: u32,
    plan: Option<Plan>,
}

const _: () = assert!(size_of::<Planned>() == 8);

/// A stored plan is no variable of the connection: it follows from the others at any time.
impl PartialEq for Planned {
    fn eq(&self, _: &Planned) -> bool {
        true
    }
}

impl Planned {
    /// No plan is stored.
    pub const STALE: Planned = Planned { at: 0, plan: None };

    /// Stores `plan`, which was made for this time.
    #[inline(always)]
    pub fn store(&mut self, plan: Plan, now_ns: u64) {
        *self = Planned {
            at: now_ns as u32,
            plan: Some(plan),
        };
    }

    /// The plan, if one is stored for this time. It is stored no more.
    #[inline(always)]
    pub fn take(&mut self, now_ns: u64) -> Option<Plan> {
        let stored = core::mem::replace(self, Planned::STALE);
        if stored.at == now_ns as u32 {
            stored.plan
        } else {
            None
        }
    }

    /// The connection changed: no plan is stored.
    #[inline(always)]
    pub fn forget(&mut self) {
        *self = Planned::STALE;
    }
}
