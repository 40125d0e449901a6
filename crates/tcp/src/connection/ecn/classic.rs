//! Classic ECN on the connection (RFC 3168, RFC 8257): which text to acknowledge at once, and with
//! which mark.

use wire::tcp::Flags;
use wire::{Ecn, SeqNumber};

use crate::connection::Connection;
use crate::connection::timers::AckKind;
use crate::context::Cx;
use crate::ecn::bit;
use crate::ecn::classic::{ECHO, MARKED, QUICK_ACKS};
use crate::marks::Marks;
use crate::segment::{Segment, SegmentOut};

impl Connection {
    /// The peer has reduced its window, so ECE ends (RFC 3168 6.1.3), even if the CWR came without
    /// text, as some peers send it (Linux). The peer's window may be a single segment, so its text
    /// is answered at once.
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

    /// DCTCP (RFC 8257 3.2): the mark changes, so earlier text is acknowledged with the former mark
    /// first.
    fn note_mark_change(&mut self, cx: &mut Cx<'_>, marked: bool) {
        if !self.congestion().wants_ecn() {
            return;
        }
        if self.ecn.classic.has(MARKED) != marked {
            if self.marks.has(Marks::ACK_PENDING)
                && let Some(seen_nxt) = self.ecn.classic.seen_nxt
                && seen_nxt.gt(self.rcv.acked)
            {
                self.ecn.owe_ack(cx.counters, seen_nxt);
            }
            self.request_ack(AckKind::Congestion);
        }
        self.ecn.classic.seen_nxt = Some(self.rcv.nxt);
        self.ecn.classic.put(MARKED, marked);
        self.ecn.classic.put(ECHO, marked);
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
