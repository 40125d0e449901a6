//! Classic ECN (RFC 3168), and DCTCP's receiver (RFC 8257).
//!
//! ```text
//!   sender                              router            receiver
//!   data, ECT(0) ─────────────────────► CE ────────────►  ECE on every ACK …
//!   one reduction per round trip ◄──────────────────────  … until
//!   CWR on the next new data ──────────────────────────►  CWR arrives
//! ```
//!
//! DCTCP changes the receiver (RFC 8257 3.2): ECE reports the mark of exactly the segments that the
//! ACK covers. When the mark changes, the earlier segments are therefore acknowledged first.

use wire::tcp::Flags;
use wire::{Ecn, SeqNumber};

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::counters::Counters;
use crate::ecn::ClassicEcn;
use crate::ecn::{EcnState, bit};
use crate::ecn_mode::EcnLine;
use crate::pack::Packing;
use crate::receive::Receiver;
use crate::receive::delayed_ack::AckKind;
use crate::segment::{Segment, SegmentOut};
use crate::variables::{Rcv, Snd};

/// Our ACKs carry ECE.
pub(crate) const ECHO: u8 = 1;
/// The next new data carries CWR.
pub(crate) const CWR_DUE: u8 = 1 << 1;
/// DCTCP: the latest data segment was marked.
pub(crate) const MARKED: u8 = 1 << 2;
/// DCTCP: `seen_nxt` is set.
const SEEN_NXT: u8 = 1 << 3;

/// Largest number of owed ACKs, one for each change of the mark within a turn. Further changes are
/// lost.
pub(crate) const OWED_MAX: usize = 3;

/// Number of ACKs that leave at once after a mark, as in Linux: the sender's window may be a single
/// segment.
pub(crate) const QUICK_ACKS: u8 = 2;

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
        p.seq(seen_nxt, SeqNumber(0));
        for ack in owed {
            p.u32(ack, 0);
        }
    }

    /// DCTCP: RCV.NXT after the latest data segment; `None` if none came.
    pub(crate) fn seen_nxt(&self) -> Option<SeqNumber> {
        self.has(SEEN_NXT).then_some(self.seen_nxt)
    }

    /// DCTCP: notes a data segment that ends at `nxt`.
    pub(crate) fn see(&mut self, nxt: SeqNumber) {
        self.seen_nxt = nxt;
        self.put(SEEN_NXT, true);
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
    /// Marks new data as ECN-capable. ACKs and retransmissions are not (RFC 3168 6.1.4, 6.1.5).
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

    /// Queues CWR for the next new data, because the window was reduced (RFC 3168 6.1.2). Accurate
    /// ECN has no CWR.
    pub(crate) fn queue_cwr(&mut self, line: EcnLine) {
        let on = line.is_classic();
        self.classic.put(CWR_DUE, on);
    }

    /// Removes a queued CWR, because the reduction was undone.
    pub(crate) fn withdraw_cwr(&mut self) {
        self.classic.put(CWR_DUE, false);
    }

    /// True if the latest data segment that arrived was marked (DCTCP).
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

    /// True if an ACK for text from before a change of the mark waits to leave.
    #[inline]
    pub(crate) fn owes_ack(&self, line: EcnLine) -> bool {
        line.is_classic() && self.classic.owed_len > 0
    }
}

impl EcnState {
    /// Takes CWR: the peer has reduced its window, so ECE ends (RFC 3168 6.1.3), even without text,
    /// as some peers send it (Linux). The peer's window may be a single segment, so its text is
    /// acknowledged at once.
    #[cold]
    pub(crate) fn accept_cwr(
        &mut self,
        seg: &Segment,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
        rx: &mut Receiver,
    ) {
        if snd.ecn().is_classic() {
            self.classic.put(ECHO, false);
            if seg.seq_len() > 0 {
                rx.request_ack(AckKind::Congestion, conn_flags);
            }
        }
    }

    pub(crate) fn note_codepoint_classic(
        &mut self,
        cx: &mut Cx<'_>,
        codepoint: Ecn,
        conn_flags: &mut ConnFlags,
        rcv: &Rcv,
        rx: &mut Receiver,
    ) {
        match codepoint {
            // Most likely a retransmission, so the peer lacks our ACKs.
            Ecn::NotEct => {
                if self.has(bit::SEEN) {
                    rx.enter_quick_ack(cx, QUICK_ACKS);
                }
                return;
            }
            Ecn::Ce => {
                cx.counters.ce_marks_in += 1;
                self.note_mark_change(cx, true, conn_flags, rcv, rx);
                if !self.classic.has(ECHO) {
                    rx.enter_quick_ack(cx, QUICK_ACKS);
                    self.classic.put(ECHO, true);
                }
            }
            Ecn::Ect0 | Ecn::Ect1 => self.note_mark_change(cx, false, conn_flags, rcv, rx),
        }
        self.put(bit::SEEN, true);
    }

    /// DCTCP (RFC 8257 3.2): the mark changes, so an ACK with the previous mark is owed for the
    /// earlier text.
    fn note_mark_change(
        &mut self,
        cx: &mut Cx<'_>,
        marked: bool,
        conn_flags: &mut ConnFlags,
        rcv: &Rcv,
        rx: &mut Receiver,
    ) {
        if !self.has(bit::ECT_ALWAYS) {
            return;
        }
        if self.classic.has(MARKED) != marked {
            if conn_flags.has(ConnFlags::ACK_PENDING)
                && let Some(seen_nxt) = self.classic.seen_nxt()
                && seen_nxt.gt(rcv.acked())
            {
                self.owe_ack(cx.counters, seen_nxt);
            }
            rx.request_ack(AckKind::Congestion, conn_flags);
        }
        self.classic.see(rcv.nxt());
        self.classic.put(MARKED, marked);
        self.classic.put(ECHO, marked);
    }

    /// Turns the ACK in `out` into the first owed one.
    pub(crate) fn pay_owed_ack(&mut self, out: &mut SegmentOut, rcv: &Rcv) {
        let classic = &mut self.classic;
        let (ack, echo) = (classic.owed[0], classic.owed_echo & 1 != 0);
        classic.owed.rotate_left(1);
        classic.owed_echo >>= 1;
        classic.owed_len = classic.owed_len.saturating_sub(1);
        // The window's right edge stays where the latest ACK puts it.
        let behind = out.ack.since(SeqNumber(ack)) >> rcv.shift();
        let window = u32::from(out.window).saturating_add(behind);
        out.window = u16::try_from(window).unwrap_or(u16::MAX);
        out.ack = SeqNumber(ack);
        if self.has(bit::ECT_ALWAYS) {
            out.ecn = Ecn::Ect0;
        }
        out.flags = if echo {
            Flags::ACK | Flags::ECE
        } else {
            Flags::ACK
        };
    }
}
