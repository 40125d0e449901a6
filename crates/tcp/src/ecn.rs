//! Explicit congestion notification: routers mark segments instead of dropping them. One interface
//! covers both kinds.
//!
//! ```text
//!   handshake   which kind is asked for, granted, given up            RFC 3168 6.1.1, RFC 9768 3.1
//!   classic     one echo a round trip, by ECE and CWR                 RFC 3168; RFC 8257 for DCTCP's receiver
//!   received    what of the peer's segments arrived how               RFC 9768 3.2: r.cep and the byte counters
//!   feedback    what the peer says of ours: newly marked segments     RFC 9768 3.2: s.cep, the option, wrapped counters
//!   option      when an AccECN option leaves, and how long it is      RFC 9768 3.2.3
//! ```
//!
//! [`EcnLine`] lies in the hot line and names the kind in one byte. [`EcnState`] holds the rest,
//! touched only if ECN is in use. Output asks [`Connection::dress`] for each segment; the steps
//! show each arrival to [`Connection::note_arrival`] and each accepted text to
//! [`Connection::note_codepoint`]; loss recovery asks [`Connection::sees_ece`] or
//! [`Connection::take_feedback`] of each ACK.

use wire::tcp::Flags;

use crate::pack::Packing;

pub(crate) mod classic;
pub(crate) mod feedback;
pub(crate) mod handshake;
pub(crate) mod option;
pub(crate) mod received;

pub(crate) use classic::ClassicEcn;
pub use handshake::{EcnGrant, SynEcn};
pub(crate) use handshake::{EcnKind, HalfOpenEcn, dress_cookie, grant, granted_by_cookie};
pub(crate) use received::AccurateEcn;
pub use received::AccurateEcnInfo;

/// The kind of ECN that a connection uses (the values of Linux's `tcpi_ecn_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum EcnMode {
    /// No ECN.
    #[default]
    Off = 0,
    /// RFC 3168.
    Classic = 1,
    /// RFC 9768.
    Accurate = 2,
    /// Accurate ECN was asked for, and not answered yet.
    Pending = 3,
}

/// The ECN state that every segment needs, in one byte: the kind, and the ACE field of a segment
/// without news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EcnLine(u8);

/// The expected ACE field; its fourth bit stands for "none".
const ACE_BITS: u8 = 0x0f;
const ACE_NONE: u8 = 0x08;
const MODE_SHIFT: u32 = 6;

impl EcnLine {
    /// No ECN.
    pub const OFF: EcnLine = EcnLine(0);

    /// The kind. Accurate ECN expects no ACE field before the handshake's was seen.
    pub(crate) fn of(mode: EcnMode) -> EcnLine {
        let ace = match mode {
            EcnMode::Accurate => ACE_NONE,
            _ => 0,
        };
        EcnLine((mode as u8) << MODE_SHIFT | ace)
    }

    #[inline]
    pub fn mode(self) -> EcnMode {
        match self.0 >> MODE_SHIFT {
            0 => EcnMode::Off,
            1 => EcnMode::Classic,
            2 => EcnMode::Accurate,
            _ => EcnMode::Pending,
        }
    }

    /// No ECN: nothing is to be done for any segment.
    #[inline]
    pub fn is_off(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub fn is_classic(self) -> bool {
        self.mode() == EcnMode::Classic
    }

    #[inline]
    pub fn is_accurate(self) -> bool {
        self.mode() == EcnMode::Accurate
    }

    /// The flags of a plain ACK that has no news of congestion.
    #[inline]
    pub fn plain_ack(self) -> Flags {
        Flags(Flags::ACK.0 | u16::from(self.0 & ACE_BITS) << 6)
    }

    pub fn pack(&mut self, p: &mut impl Packing) {
        p.u8(&mut self.0, 0);
    }

    pub(crate) fn expect(&mut self, ace: u8) {
        self.0 = self.0 & !ACE_BITS | ace & 7;
    }
}

/// Bits of [`EcnState::flags`].
pub(crate) mod bit {
    /// A codepoint other than Not-ECT arrived: the peer really uses ECN.
    pub const SEEN: u8 = 1;
    /// Every segment is sent as ECN-capable, since the algorithm relies on it (DCTCP).
    pub const ECT_ALWAYS: u8 = 1 << 1;
    /// Accurate: the next ACK without text repeats the codepoint of the SYN or SYN-ACK that it
    /// answers.
    pub const REFLECT: u8 = 1 << 2;
    /// Accurate: the next text is acknowledged at once.
    pub const ACK_NEXT: u8 = 1 << 3;
    /// Accurate: the segment that completes the handshake is still to come.
    pub const THIRD_ACK: u8 = 1 << 4;
    /// Accurate: the segment that leaves carries a D-SACK.
    pub const DSACK_OUT: u8 = 1 << 5;
}

/// A connection's part in ECN, beside its [`EcnLine`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EcnState {
    pub flags: u8,
    pub classic: ClassicEcn,
    pub accurate: AccurateEcn,
}

impl EcnState {
    /// A connection with accurate ECN is not packed: its counters are many.
    pub fn pack(&mut self, p: &mut impl Packing) {
        if !p.is_there(self, EcnState::default()) {
            return;
        }
        let EcnState {
            flags,
            classic,
            accurate,
        } = self;
        p.u8(flags, 0);
        classic.pack(p);
        let has_counters = p.is_there(accurate, AccurateEcn::default());
        p.must(!has_counters);
    }

    #[inline]
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(crate) fn put(&mut self, flag: u8, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, flag: u8) -> bool {
        let had = self.has(flag);
        self.put(flag, false);
        had
    }
}

impl EcnState {
    /// The peer has sent a segment as ECN-capable.
    pub(crate) fn has_seen_ect(&self) -> bool {
        self.has(bit::SEEN)
    }
}
