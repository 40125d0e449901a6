//! RFC 3168, and RFC 8257's receiver.
//!
//! ```text
//!   sender                              router            receiver
//!   data, ECT(0) ─────────────────────► CE ────────────►  ECE on every ACK …
//!   one reduction per round trip ◄──────────────────────  … until
//!   CWR on the next new data ──────────────────────────►  CWR arrives
//! ```
//!
//! DCTCP changes the receiver (RFC 8257 3.2): ECE reports the mark of exactly the segments that the
//! ACK covers. A change of the mark therefore acknowledges the earlier segments first.

use wire::tcp::Flags;
use wire::{Ecn, SeqNumber};

use crate::counters::Counters;
use crate::ecn::{EcnLine, EcnState, bit};
use crate::pack::Packing;
use crate::segment::SegmentOut;

/// Our ACKs carry ECE.
pub(crate) const ECHO: u8 = 1;
/// The next new data carries CWR.
pub(crate) const CWR_DUE: u8 = 1 << 1;
/// DCTCP: the latest data segment was marked.
pub(crate) const MARKED: u8 = 1 << 2;

/// Largest number of ACKs before a change of the mark that may wait; further changes of the same
/// turn are lost.
pub(crate) const OWED_MAX: usize = 3;

/// ACKs that leave at once after a mark, as in Linux: the sender may have a window of one segment.
pub(crate) const QUICK_ACKS: u8 = 2;

/// State of classic ECN.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClassicEcn {
    flags: u8,
    pub owed_len: u8,
    /// The owed ACKs that carry ECE: the first one's is the lowest bit.
    pub owed_echo: u8,
    /// DCTCP: RCV.NXT after the latest data segment.
    pub seen_nxt: Option<SeqNumber>,
    /// DCTCP: ACK numbers of the text that arrived before the mark changed.
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

impl EcnState {
    /// New data is ECN-capable; an ACK or a repetition is not (RFC 3168 6.1.4, 6.1.5).
    pub(crate) fn dress_classic(&mut self, out: &mut SegmentOut, fresh: bool) {
        if fresh {
            out.ecn = Ecn::Ect0;
            if self.classic.has(CWR_DUE) {
                self.classic.put(CWR_DUE, false);
                out.flags |= Flags::CWR;
            }
        } else if self.has(bit::ECT_ALWAYS) {
            out.ecn = Ecn::Ect0;
        }
        if self.classic.has(ECHO) {
            out.flags |= Flags::ECE;
        }
    }

    /// The window was reduced: the next new data says so (RFC 3168 6.1.2). Accurate ECN has no such
    /// word.
    pub(crate) fn queue_cwr(&mut self, line: EcnLine) {
        let on = line.is_classic();
        self.classic.put(CWR_DUE, on);
    }

    /// The reduction was undone.
    pub(crate) fn withdraw_cwr(&mut self) {
        self.classic.put(CWR_DUE, false);
    }

    /// DCTCP: the latest data segment that arrived was marked.
    pub(crate) fn has_latest_mark(&self) -> bool {
        self.classic.has(MARKED)
    }

    pub(crate) fn owe_ack(&mut self, counters: &mut Counters, ack: SeqNumber) {
        let classic = &mut self.classic;
        let echo = u8::from(classic.has(MARKED));
        let Some(owed) = classic.owed.get_mut(usize::from(classic.owed_len)) else {
            counters.mark_changes_merged += 1;
            return;
        };
        *owed = ack.0;
        classic.owed_echo |= echo << classic.owed_len;
        classic.owed_len += 1;
    }

    /// True if an ACK from before a change of the mark waits to leave.
    #[inline]
    pub(crate) fn owes_ack(&self, line: EcnLine) -> bool {
        line.is_classic() && self.classic.owed_len > 0
    }
}
