//! The kind of ECN that a connection uses, in one byte of the hot line.

use wire::tcp::Flags;

use crate::pack::Packing;

/// The kind of ECN that a connection uses (the values of Linux's `tcpi_ecn_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum EcnMode {
    /// No ECN.
    #[default]
    Off = 0,
    /// Classic ECN, RFC 3168.
    Classic = 1,
    /// Accurate ECN, RFC 9768.
    Accurate = 2,
    /// Accurate ECN was requested, and the peer has not answered yet.
    Pending = 3,
}

/// The ECN state that every segment needs, in one byte: the kind, and the ACE field expected of a
/// segment without news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EcnLine(u8);

/// The expected ACE field; the value with its fourth bit set means "none".
const ACE_BITS: u8 = 0x0f;
const ACE_NONE: u8 = 0x08;
const MODE_SHIFT: u32 = 6;

impl EcnLine {
    /// No ECN.
    pub const OFF: EcnLine = EcnLine(0);

    /// The line for this kind. With accurate ECN no ACE field is expected before the handshake's
    /// was seen.
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

    /// True without ECN: segments need no work.
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

    /// Flags of a pure ACK that reports nothing new about congestion.
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
