//! Sixth and seventh step: urgent pointer and segment text: in order, out of order, refused.

use wire::tcp::Flags;

use crate::buffers::Memory;
use crate::connection::Connection;
use crate::connection::timers::AckKind;
use crate::context::Cx;
use crate::effects::Effects;
use crate::marks::Marks;
use crate::reassembly::{Inserted, Range};
use crate::recv_buffer::RecvBuffer;
use crate::segment::Segment;
use crate::state::{ConnectionError, State};

/// The part of a segment's text that is new.
#[derive(Clone, Copy, Debug)]
struct Text {
    /// Position of the text, in bytes past RCV.NXT.
    offset: u32,
    /// Bytes at the segment's front that arrived before.
    skip: u32,
    /// Bytes to take.
    len: u32,
}

impl Connection {
    /// Sixth step. Urgent data stays in line (RFC 6093); the application may ask where it ends
    /// (MUST-32). A pointer of 0 means the segment's first byte, as in Linux.
    pub(super) fn step_urgent(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        if !seg.has(Flags::URG) {
            return Effects::NONE;
        }
        let end = seg.seq + u32::from(seg.urgent.max(1));
        let known = self.marks.has(Marks::URGENT) && end.le(self.rx.urgent_end());
        if known || end.le(self.rcv.nxt) {
            return Effects::NONE;
        }
        cx.counters.urgent_in += 1;
        self.marks.set(Marks::URGENT);
        self.rx.set_urgent_end(end);
        Effects::URGENT
    }

    /// An urgent pointer that RCV.NXT has reached says nothing more.
    pub(super) fn forget_passed_urgent(&mut self) {
        if self.marks.has(Marks::URGENT) && self.rx.urgent_end().le(self.rcv.nxt) {
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
        if self.refuses_text() && (seg.seq + seg.len).gt(self.rcv.nxt) {
            return self.refuse_text(cx, seg);
        }
        let plain = seg.seq == self.rcv.nxt && !self.marks.has(Marks::OUT_OF_ORDER);
        if !plain && !self.marks.has(Marks::ACK_NOW) {
            // A duplicate that no ACK has reported by now stays unreported, as in Linux.
            self.marks.clear(Marks::DSACK);
        }
        if seg.end().le(self.rcv.nxt) {
            cx.counters.bytes_duplicate += u64::from(seg.len);
            self.suspect_option(seg);
            self.report_duplicate(cx, seg.seq, seg.end());
            self.answer_unwanted(cx);
            return Effects::NONE;
        }
        if self.is_beyond_window(seg) {
            cx.counters.drop_outside_window += 1;
            cx.counters.bytes_outside_window += u64::from(seg.len);
            self.answer_unwanted(cx);
            return Effects::NONE;
        }
        let text = self.fresh_text(seg);
        cx.counters.bytes_duplicate += u64::from(text.skip);
        if text.skip > 0 && text.len > 0 {
            self.report_duplicate(cx, seg.seq, self.rcv.nxt);
        }
        let (stored, effects) = match text {
            Text { len: 0, .. } => (0, Effects::NONE),
            Text { offset: 0, .. } => self.take_in_order(cx, text, seg, rx),
            _ => self.hold_out_of_order(cx, text, seg, rx),
        };
        effects | self.step_fin(cx, seg, fin && stored == text.len, rx)
    }

    /// The peer had ended: it repeats itself and has not seen our ACK.
    pub(super) fn text_after_end(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        if seg.seq_len() == 0 || !seg.seq.lt(self.rcv.nxt) {
            return Effects::NONE;
        }
        if (seg.seq + seg.len).gt(self.rcv.nxt) && self.state() != State::TimeWait {
            // The text continues behind the peer's own FIN: the peer contradicts itself (Linux).
            self.reply_reset(seg);
            return self.reset_by_peer();
        }
        self.report_duplicate(cx, seg.seq, seg.end().min(self.rcv.nxt));
        self.restart_time_wait(cx, seg);
        self.answer_unwanted(cx);
        Effects::NONE
    }

    /// Data in order found no memory. The window shuts (Linux), if a read will open it again.
    pub(super) fn answer_without_memory(&mut self) {
        self.request_ack(AckKind::Refusal);
        self.marks.put(Marks::NO_MEMORY, self.rx.unread() > 0);
    }

    /// No part of the segment was new or wanted, so the peer is told our state at once, and for a
    /// while.
    fn answer_unwanted(&mut self, cx: &Cx<'_>) {
        self.enter_quick_ack(cx, cx.config.quick_acks_max);
        self.request_ack(AckKind::Refusal);
    }

    /// True if the segment must be refused whole: it starts beyond the window, or ends there while
    /// unread data waits. Without unread data it is taken, because the promise was small, not the
    /// room. A FIN takes no room.
    fn is_beyond_window(&self, seg: &Segment) -> bool {
        let window = self.promised_window();
        if seg.len == 0 {
            // A bare FIN.
            return seg.seq.gt(self.rcv.nxt + window);
        }
        let shut = window == 0;
        let starts_beyond = seg.seq.ge(self.rcv.nxt + window.max(1));
        let ends_beyond = (seg.seq + seg.len).gt(self.rcv.nxt + window);
        shut || starts_beyond || (ends_beyond && self.rx.unread() > 0)
    }

    fn fresh_text(&self, seg: &Segment) -> Text {
        let skip = if seg.seq.lt(self.rcv.nxt) {
            self.rcv.nxt.since(seg.seq).min(seg.len)
        } else {
            0
        };
        Text {
            offset: (seg.seq + skip).since(self.rcv.nxt),
            skip,
            len: seg.len - skip,
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
        if !self.make_room(cx, seg.seq, rx) && self.rx.unread() > 0 {
            cx.counters.bytes_drop_no_memory += u64::from(text.len);
            cx.counters.drop_in_order_no_memory += 1;
            self.answer_without_memory();
            return (0, Effects::NONE);
        }
        let mut stored = rx.write_at(0, text.skip, text.len).min(text.len);
        if stored < text.len && self.shed_out_of_order(cx, rx) {
            stored = rx.write_at(0, text.skip, text.len).min(text.len);
        }
        cx.counters.bytes_drop_no_memory += u64::from(text.len - stored);
        if stored == 0 {
            cx.counters.drop_in_order_no_memory += 1;
            self.answer_without_memory();
            return (0, Effects::NONE);
        }
        self.rx.charge(self.marks, stored, true);
        let mut end = self.rcv.nxt + stored;
        let is_last = seg.has(Flags::FIN) && stored == text.len;
        if self.marks.has(Marks::OUT_OF_ORDER) {
            end = self.close_gap(cx, end, is_last);
        }
        self.advance_receive(end, rx);
        self.note_received(cx, seg.len, seg.flags);
        self.note_codepoint(cx, seg.ecn);
        // With the peer's last text the FIN decides when to acknowledge.
        if !is_last {
            self.schedule_ack(cx);
        }
        (stored, Effects::READABLE)
    }

    /// RCV.NXT moves to `end`; the bytes up to it are stored.
    #[inline]
    pub(crate) fn advance_receive(&mut self, end: wire::SeqNumber, rx: &mut impl RecvBuffer) {
        let n = end.since(self.rcv.nxt);
        self.advance_rcv_nxt(n);
        rx.publish(n);
    }

    /// RCV.NXT moves by `n` bytes that are stored, and to be published.
    #[inline]
    pub(super) fn advance_rcv_nxt(&mut self, n: u32) {
        self.rcv.nxt += n;
        self.keep_edge();
        self.rx.take_text(n);
    }

    /// Closes the gap at `end`, which may reach ranges stored beyond it. Repeated parts of them are
    /// reported. The run stops at the peer's FIN: this segment's if it `is_last`, or a stored one.
    /// A filled gap is acknowledged at once (RFC 5681 4.2), and duplicate ACKs still owed are void.
    /// The ACK of a segment with the FIN waits like another FIN's (Linux).
    fn close_gap(
        &mut self,
        cx: &mut Cx<'_>,
        end: wire::SeqNumber,
        is_last: bool,
    ) -> wire::SeqNumber {
        self.note_duplicates(cx, self.rcv.nxt, end);
        let fin = if is_last {
            Some(end)
        } else {
            self.rx.held_fin(self.marks).filter(|&fin| end.le(fin))
        };
        let end = self.rx.held_mut().advance(cx.ranges, end, fin);
        self.rx.settle_dup_acks();
        self.refresh_out_of_order(cx);
        let is_filled = !self.marks.has(Marks::OUT_OF_ORDER) || fin == Some(end);
        if is_filled && !is_last {
            self.request_ack(AckKind::Due);
        }
        end
    }

    /// Stores bytes beyond a gap. Each such segment is answered by a duplicate ACK (RFC 5681 4.2).
    fn hold_out_of_order(
        &mut self,
        cx: &mut Cx<'_>,
        text: Text,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> (u32, Effects) {
        self.note_codepoint(cx, seg.ecn);
        let left = self.rcv.nxt + text.offset;
        let right = left + text.len;
        if self
            .rx
            .held_fin(self.marks)
            .is_some_and(|fin| right.gt(fin))
        {
            cx.counters.bytes_drop_beyond_fin += u64::from(text.len);
            self.owe_duplicate_ack(cx);
            return (0, Effects::NONE);
        }
        if cx.memory >= Memory::Exhausted {
            cx.counters.bytes_drop_no_memory += u64::from(text.len);
            self.owe_duplicate_ack(cx);
            return (0, Effects::NONE);
        }
        if !self.make_room(cx, left, rx) {
            // The buffer is full because the application does not read. As in Linux no ACK reports
            // it, unless the window is shut.
            cx.counters.bytes_drop_no_memory += u64::from(text.len);
            if self.rcv.wnd() == 0 {
                self.owe_duplicate_ack(cx);
            }
            return (0, Effects::NONE);
        }
        self.request_ack(AckKind::Owed);
        let stored = rx.write_at(text.offset, text.skip, text.len).min(text.len);
        cx.counters.bytes_drop_no_memory += u64::from(text.len - stored);
        let before = self.rx.held().bytes(cx.ranges);
        let fin = u32::from(seg.has(Flags::FIN) && stored == text.len);
        self.note_duplicates(cx, left, left + stored + fin);
        let held = stored > 0 && self.hold_range(cx, left, left + stored, rx);
        // Bytes that were stored before do not grow the buffer.
        let fresh = self.rx.held().bytes(cx.ranges).saturating_sub(before);
        if held {
            self.cold.out_of_order_in = self.cold.out_of_order_in.wrapping_add(1);
            self.learn_segment_size(seg.len, seg.flags);
            cx.counters.bytes_out_of_order += u64::from(stored);
            if self.marks.has(Marks::SACK) {
                self.rx.held_mut().hear(
                    cx.ranges,
                    Range {
                        left,
                        right: left + stored + fin,
                    },
                );
                if fresh > 0 {
                    self.grow_window(cx, stored);
                }
            }
            if fresh > 0 {
                self.rx.charge(self.marks, fresh, false);
                self.make_place_beyond_gap(cx);
            }
        }
        self.owe_duplicate_ack(cx);
        (if held { stored } else { 0 }, Effects::NONE)
    }

    /// Notes that `left..right` is stored beyond a gap; false when the pool has no room for one
    /// more range.
    fn hold_range(
        &mut self,
        cx: &mut Cx<'_>,
        left: wire::SeqNumber,
        right: wire::SeqNumber,
        rx: &mut impl RecvBuffer,
    ) -> bool {
        let before = self.rx.held().bytes(cx.ranges);
        let outcome = self.rx.held_mut().insert(cx.ranges, Range { left, right });
        match outcome {
            Inserted::Yes => {}
            Inserted::Instead(edge) => {
                let now = self.rx.held().bytes(cx.ranges);
                let lost = (before + right.since(left)).saturating_sub(now);
                cx.counters.bytes_drop_ranges_full += u64::from(lost);
                rx.forget(edge.since(self.rcv.nxt));
            }
            Inserted::No => {
                cx.counters.bytes_drop_ranges_full += u64::from(right.since(left));
                let furthest = self.rx.held().last(cx.ranges);
                let edge = furthest.map_or(self.rcv.nxt, |range| range.right);
                rx.forget(edge.since(self.rcv.nxt));
            }
        }
        self.refresh_out_of_order(cx);
        outcome != Inserted::No
    }

    /// Owes a duplicate ACK. Several may be due in one turn and all leave, because the peer counts
    /// them. With SACK, from the fourth on, one may wait a moment for others (Linux's SACK
    /// compression).
    pub(super) fn owe_duplicate_ack(&mut self, cx: &Cx<'_>) {
        self.request_ack(AckKind::Owed);
        let quick = self.rx.in_quick_ack_mode();
        if quick || self.marks.has(Marks::ACK_NOW) || !self.compresses_ack(cx) {
            self.request_ack(AckKind::Duplicate);
        }
    }

    pub(super) fn refresh_out_of_order(&mut self, cx: &mut Cx<'_>) {
        let held = self.marks.has(Marks::FIN_HELD) || self.rx.held().has_ranges(cx.ranges);
        self.marks.put(Marks::OUT_OF_ORDER, held);
        if !held {
            self.rx.held_mut().release(cx.ranges);
        }
    }

    /// The application is gone: nothing can read new text, and the peer should know (RFC 9293
    /// SHLD-3).
    #[cold]
    fn refuse_text(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        cx.counters.bytes_drop_orphan += u64::from(seg.len);
        self.reply_reset(seg);
        match self.is_orphan() {
            true => self.finish_closed(),
            false => self.fail(ConnectionError::Reset),
        }
    }

    /// Nobody reads any more: the application is gone, or has shut both directions (RFC 1122
    /// 4.2.2.13).
    pub(crate) fn refuses_text(&self) -> bool {
        let is_shut =
            matches!(self.state(), State::FinWait1 | State::FinWait2) && self.cold.read_shut;
        is_shut || self.is_orphan()
    }
}
