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

use wire::tcp::Flags;
use wire::{Ecn, SeqNumber};

use super::bit;
use crate::connection::{Connection, Cx};
use crate::marks::Marks;
use crate::pack::Packing;
use crate::segment::{Segment, SegmentOut};
use crate::timers::AckKind;

/// Our ACKs carry ECE.
const ECHO: u8 = 1;
/// The next new data carries CWR.
const CWR_DUE: u8 = 1 << 1;
/// DCTCP: the latest data segment was marked.
const MARKED: u8 = 1 << 2;

/// ACKs before a change of the mark that may wait to be sent; further changes of the same turn are lost.
const OWED_MAX: usize = 3;

/// ACKs that leave at once after a mark, as in Linux: the sender may have a window of one segment.
pub(super) const QUICK_ACKS: u8 = 2;

/// What classic ECN keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClassicEcn {
    flags: u8,
    owed_len: u8,
    /// The owed ACKs that carry ECE: the first one's is the lowest bit.
    owed_echo: u8,
    /// DCTCP: RCV.NXT after the latest data segment.
    seen_nxt: Option<SeqNumber>,
    /// DCTCP: ACKs of what arrived before the mark changed.
    owed: [u32; OWED_MAX],
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

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn put(&mut self, flag: u8, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }
}

impl Connection {
    /// New data is ECN-capable; an ACK or a repetition is not (RFC 3168 6.1.4, 6.1.5).
    pub(super) fn dress_classic(&mut self, out: &mut SegmentOut, fresh: bool) {
        if fresh {
            out.ecn = Ecn::Ect0;
            if self.ecn.classic.has(CWR_DUE) {
                self.ecn.classic.put(CWR_DUE, false);
                out.flags |= Flags::CWR;
            }
        } else if self.ecn.has(bit::ECT_ALWAYS) {
            out.ecn = Ecn::Ect0;
        }
        if self.ecn.classic.has(ECHO) {
            out.flags |= Flags::ECE;
        }
    }

    /// The window was reduced: the next new data says so (RFC 3168 6.1.2). Accurate ECN has no such word.
    pub(crate) fn queue_cwr(&mut self) {
        let on = self.snd.ecn.is_classic();
        self.ecn.classic.put(CWR_DUE, on);
    }

    /// The reduction was undone.
    pub(crate) fn withdraw_cwr(&mut self) {
        self.ecn.classic.put(CWR_DUE, false);
    }

    /// The peer has reduced its window: no more ECE (RFC 3168 6.1.3), also if it says so without text, as some do (Linux). That window may be a single segment, so
    /// text is answered at once.
    #[cold]
    pub(crate) fn accept_cwr(&mut self, seg: &Segment) {
        if self.snd.ecn.is_classic() {
            self.ecn.classic.put(ECHO, false);
            if seg.seq_len() > 0 {
                self.request_ack(AckKind::Congestion);
            }
        }
    }

    pub(super) fn note_codepoint_classic(&mut self, cx: &mut Cx<'_>, codepoint: Ecn) {
        match codepoint {
            // A repetition, most likely: the peer misses our ACKs.
            Ecn::NotEct => {
                if self.ecn.has(bit::SEEN) {
                    self.enter_quick_ack(cx, QUICK_ACKS);
                }
                return;
            }
            Ecn::Ce => {
                cx.counters.ce_marks_in += 1;
                self.note_mark_change(cx, true);
                if !self.ecn.classic.has(ECHO) {
                    self.enter_quick_ack(cx, QUICK_ACKS);
                    self.ecn.classic.put(ECHO, true);
                }
            }
            Ecn::Ect0 | Ecn::Ect1 => self.note_mark_change(cx, false),
        }
        self.ecn.put(bit::SEEN, true);
    }

    /// DCTCP (RFC 8257 3.2): the mark changes. What came before is acknowledged with the former mark first.
    fn note_mark_change(&mut self, cx: &mut Cx<'_>, marked: bool) {
        if !self.congestion().wants_ecn() {
            return;
        }
        if self.ecn.classic.has(MARKED) != marked {
            if self.marks.has(Marks::ACK_PENDING)
                && let Some(seen_nxt) = self.ecn.classic.seen_nxt
                && seen_nxt.gt(self.rcv.acked)
            {
                self.owe_ack(cx, seen_nxt);
            }
            self.request_ack(AckKind::Congestion);
        }
        self.ecn.classic.seen_nxt = Some(self.rcv.nxt);
        self.ecn.classic.put(MARKED, marked);
        self.ecn.classic.put(ECHO, marked);
    }

    /// DCTCP: the latest data segment that arrived was marked.
    pub(crate) fn has_latest_mark(&self) -> bool {
        self.ecn.classic.has(MARKED)
    }

    fn owe_ack(&mut self, cx: &mut Cx<'_>, ack: SeqNumber) {
        let classic = &mut self.ecn.classic;
        let echo = u8::from(classic.has(MARKED));
        let Some(owed) = classic.owed.get_mut(usize::from(classic.owed_len)) else {
            cx.counters.mark_changes_merged += 1;
            return;
        };
        *owed = ack.0;
        classic.owed_echo |= echo << classic.owed_len;
        classic.owed_len += 1;
    }

    /// An ACK of what came before a change of the mark waits to leave.
    #[inline]
    pub(crate) fn owes_ack(&self) -> bool {
        self.snd.ecn.is_classic() && self.ecn.classic.owed_len > 0
    }

    /// Makes the ACK in `out` the one that is owed first.
    pub(crate) fn pay_owed_ack(&mut self, out: &mut SegmentOut) {
        let classic = &mut self.ecn.classic;
        let (ack, echo) = (classic.owed[0], classic.owed_echo & 1 != 0);
        classic.owed.rotate_left(1);
        classic.owed_echo >>= 1;
        classic.owed_len = classic.owed_len.saturating_sub(1);
        // The window's right edge stays where the latest ACK puts it.
        let behind = out.ack.since(SeqNumber(ack)) >> self.rcv_shift;
        let window = u32::from(out.window).saturating_add(behind);
        out.window = u16::try_from(window).unwrap_or(u16::MAX);
        out.ack = SeqNumber(ack);
        if self.ecn.has(bit::ECT_ALWAYS) {
            out.ecn = Ecn::Ect0;
        }
        out.flags = if echo {
            Flags::ACK | Flags::ECE
        } else {
            Flags::ACK
        };
    }
}
