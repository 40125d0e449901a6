//! RFC 3168, and RFC 8257's receiver.
//!
//! ```text
//!   sender                              router            receiver
//!   data, ECT(0) ─────────────────────► CE ────────────►  ECE on every ACK …
//!   one reduction per round trip ◄──────────────────────  … until
//!   CWR on the next new data ──────────────────────────►  CWR arrives
//! ```
//!
//! DCTCP changes the receiver (RFC 8257 3.2): ECE tells the mark of just the segments that the ACK covers, so a
//! change of the mark acknowledges what came before it first.

use wire::SeqNumber;

use crate::pack::Packing;

/// Our ACKs carry ECE.
pub(crate) const ECHO: u8 = 1;
/// The next new data carries CWR.
pub(crate) const CWR_DUE: u8 = 1 << 1;
/// DCTCP: the latest data segment was marked.
pub(crate) const MARKED: u8 = 1 << 2;

/// ACKs before a change of the mark that may wait to be sent; further changes of the same turn are lost.
pub(crate) const OWED_MAX: usize = 3;

/// ACKs that leave at once after a mark, as in Linux: the sender may have a window of one segment.
pub(crate) const QUICK_ACKS: u8 = 2;

/// What classic ECN keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClassicEcn {
    flags: u8,
    pub owed_len: u8,
    /// The owed ACKs that carry ECE: the first one's is the lowest bit.
    pub owed_echo: u8,
    /// DCTCP: RCV.NXT after the latest data segment.
    pub seen_nxt: Option<SeqNumber>,
    /// DCTCP: ACKs of what arrived before the mark changed.
    pub owed: [u32; OWED_MAX],
}

impl ClassicEcn {
    pub fn pack(&mut self, p: &mut impl Packing) {
        let ClassicEcn {
            flags,
            owed_len,
            owed_echo,
            seen_nxt,
            owed,
        } = self;
        p.u8(flags, 0);
        p.u8(owed_len, 0);
        p.u8(owed_echo, 0);
        let mut is_seen = seen_nxt.is_some();
        p.bool(&mut is_seen);
        let mut nxt = seen_nxt.unwrap_or(SeqNumber(0));
        p.seq(&mut nxt, SeqNumber(0));
        *seen_nxt = is_seen.then_some(nxt);
        for ack in owed {
            p.u32(ack, 0);
        }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn put(&mut self, flag: u8, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }
}
