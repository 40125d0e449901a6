//! Sixth and seventh step: urgent pointer and segment text. In order, out of order, cut at both edges.

use wire::tcp::Flags;

use crate::connection::{Connection, Cx};
use crate::effects::Effects;
use crate::marks::Marks;
use crate::reassembly::Range;
use crate::recv_buffer::RecvBuffer;
use crate::segment::Segment;

/// The part of a segment's text that the window takes.
#[derive(Clone, Copy, Debug)]
struct Text {
    /// Where it goes, in bytes past RCV.NXT.
    offset: u32,
    /// Bytes at the segment's front that arrived before.
    skip: u32,
    /// Bytes to take.
    len: u32,
    /// Bytes at its end that the window does not take; a FIN behind them does not count yet.
    beyond: u32,
}

impl Connection {
    /// Sixth step. Urgent data stays in line (RFC 6093); the application may ask where it ends (MUST-32).
    pub(super) fn step_urgent(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        if !seg.has(Flags::URG) {
            return Effects::NONE;
        }
        let end = seg.seq + u32::from(seg.urgent);
        let known = self.marks.has(Marks::URGENT) && end.le(self.rx.urgent_end);
        if known || end.le(self.rcv.nxt) {
            return Effects::NONE;
        }
        cx.counters.urgent_in += 1;
        self.marks.set(Marks::URGENT);
        self.rx.urgent_end = end;
        Effects::URGENT
    }

    /// An urgent pointer that RCV.NXT has reached says nothing more.
    pub(super) fn forget_passed_urgent(&mut self) {
        if self.marks.has(Marks::URGENT) && self.rx.urgent_end.le(self.rcv.nxt) {
            self.marks.clear(Marks::URGENT);
        }
    }

    /// Seventh step, and the eighth for the FIN behind the text.
    pub(super) fn step_text(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> Effects {
        let fin = seg.has(Flags::FIN);
        if seg.len == 0 && !fin {
            return Effects::NONE;
        }
        if seg.len > 0 {
            self.accept_cwr(seg);
        }
        if self.is_orphan() && (seg.seq + seg.len).gt(self.rcv.nxt) {
            return self.refuse_text(cx, seg);
        }
        let text = self.clip(seg);
        cx.counters.bytes_duplicate += u64::from(text.skip);
        cx.counters.bytes_outside_window += u64::from(text.beyond);
        let (stored, effects) = match text {
            Text { len: 0, .. } => (0, Effects::NONE),
            Text { offset: 0, .. } => self.take_in_order(cx, text, seg, rx),
            _ => self.hold_out_of_order(cx, text, seg, rx),
        };
        if seg.len > 0 {
            self.rx.data_segs_in = self.rx.data_segs_in.wrapping_add(1);
            if stored == 0 {
                // Nothing of it was new or wanted: the peer should know at once where we stand.
                self.marks.set(Marks::ACK_NOW);
            }
        }
        let whole = text.beyond == 0 && stored == text.len;
        effects | self.step_fin(cx, seg, fin && whole)
    }

    /// Cuts the text to the window (SHLD-31: what fits is kept).
    fn clip(&self, seg: &Segment) -> Text {
        let skip = if seg.seq.lt(self.rcv.nxt) {
            self.rcv.nxt.since(seg.seq).min(seg.len)
        } else {
            0
        };
        let offset = (seg.seq + skip).since(self.rcv.nxt);
        // A segment that ends before RCV.NXT leaves nothing, wherever its "offset" points.
        let fresh = seg.len - skip;
        let room = if fresh == 0 {
            0
        } else {
            self.rcv.wnd().saturating_sub(offset)
        };
        let len = fresh.min(room);
        Text {
            offset,
            skip,
            len,
            beyond: fresh - len,
        }
    }

    /// The next bytes in order: published, with whatever they connect to.
    fn take_in_order(
        &mut self,
        cx: &mut Cx<'_>,
        text: Text,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> (u32, Effects) {
        let stored = rx.write_at(0, text.skip, text.len).min(text.len);
        cx.counters.bytes_drop_no_memory += u64::from(text.len - stored);
        if stored == 0 {
            return (0, Effects::NONE);
        }
        let mut end = self.rcv.nxt + stored;
        if self.marks.has(Marks::OUT_OF_ORDER) {
            end = self.close_gap(end);
        }
        self.advance_receive(end, rx);
        self.note_codepoint(cx, seg.ecn);
        self.schedule_ack(cx, text.skip + text.len);
        (stored, Effects::READABLE)
    }

    /// RCV.NXT moves to `end`; the bytes up to it are stored.
    #[inline]
    pub(crate) fn advance_receive(&mut self, end: wire::SeqNumber, rx: &mut impl RecvBuffer) {
        let n = end.since(self.rcv.nxt);
        self.rcv.nxt = end;
        self.keep_edge();
        rx.publish(n);
        self.rx.space = self.rx.space.saturating_sub(n);
        self.rx.bytes_received += u64::from(n);
    }

    /// The run of bytes that ends at `end` may reach ranges held beyond it. A filled gap is acknowledged at
    /// once (RFC 5681 4.2), and the duplicates still owed are void.
    fn close_gap(&mut self, end: wire::SeqNumber) -> wire::SeqNumber {
        let end = self.rx.ranges.advance(end);
        self.rx.dup_acks_due = 0;
        self.marks.set(Marks::ACK_NOW);
        self.refresh_out_of_order();
        end
    }

    /// Bytes beyond a gap: stored at their place, answered by a duplicate ACK each (RFC 5681 4.2).
    fn hold_out_of_order(
        &mut self,
        cx: &mut Cx<'_>,
        text: Text,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> (u32, Effects) {
        self.note_codepoint(cx, seg.ecn);
        self.enter_quick_ack(cx);
        self.rx.last_data_ns = cx.now_ns;
        self.owe_duplicate_ack();
        let left = self.rcv.nxt + text.offset;
        let wanted = Range {
            left,
            right: left + text.len,
        };
        if !self.rx.ranges.fits(wanted) {
            cx.counters.bytes_drop_ranges_full += u64::from(text.len);
            return (0, Effects::NONE);
        }
        let stored = rx.write_at(text.offset, text.skip, text.len).min(text.len);
        cx.counters.bytes_drop_no_memory += u64::from(text.len - stored);
        if stored > 0 {
            cx.counters.bytes_out_of_order += u64::from(stored);
            self.rx.ranges.insert(Range {
                left,
                right: left + stored,
            });
            self.refresh_out_of_order();
        }
        (stored, Effects::NONE)
    }

    /// Told apart from other ACKs so that several due in one turn all leave: the peer counts them.
    pub(super) fn owe_duplicate_ack(&mut self) {
        self.rx.dup_acks_due = self.rx.dup_acks_due.saturating_add(1);
        self.marks.set(Marks::ACK_NOW);
    }

    pub(super) fn refresh_out_of_order(&mut self) {
        let held = !self.rx.ranges.is_empty() || self.marks.has(Marks::FIN_HELD);
        self.marks.put(Marks::OUT_OF_ORDER, held);
    }

    /// The application is gone: new text can reach nobody, and the peer should know (RFC 9293 SHLD-3).
    #[cold]
    fn refuse_text(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        cx.counters.bytes_drop_orphan += u64::from(seg.len);
        self.reply_reset(seg);
        self.finish_closed()
    }
}
