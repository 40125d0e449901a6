//! Sixth and seventh step: urgent pointer and segment text, which is in order, out of order, or
//! refused.
use wire::SeqNumber;
use wire::tcp::Flags;

use crate::buffers::Memory;
use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::reassembly::Range;
use crate::receive::delayed_ack::AckKind;
use crate::recv_buffer::RecvBuffer;
use crate::segment::Segment;
use crate::state::{ConnectionError, State};
use crate::variables::Text;

impl Connection {
    /// Runs the seventh step, and the eighth for a FIN behind the text.
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
        if self.rx.refuses_text(self.state(), self.conn_flags)
            && (seg.seq + seg.len).gt(self.rcv.nxt())
        {
            return self.refuse_text(cx, seg);
        }
        let plain = seg.seq == self.rcv.nxt() && !self.conn_flags.has(ConnFlags::OUT_OF_ORDER);
        if !plain && !self.conn_flags.has(ConnFlags::ACK_NOW) {
            // A duplicate that no ACK has reported yet stays unreported, as in Linux.
            self.conn_flags.clear(ConnFlags::DSACK);
        }
        if seg.end().le(self.rcv.nxt()) {
            cx.counters.bytes_duplicate += u64::from(seg.len);
            self.ecn.suspect_option(seg, &self.snd, &self.rx);
            self.rx
                .report_duplicate(cx, seg.seq, seg.end(), &mut self.conn_flags);
            self.rx.answer_unwanted(cx, &mut self.conn_flags);
            return Effects::NONE;
        }
        if self.rx.is_shut_to(seg, &self.rcv) {
            cx.counters.drop_outside_window += 1;
            cx.counters.bytes_outside_window += u64::from(seg.len);
            self.rx.answer_unwanted(cx, &mut self.conn_flags);
            return Effects::NONE;
        }
        let text = self.rcv.fresh_text(seg);
        cx.counters.bytes_duplicate += u64::from(text.skip);
        if text.skip > 0 && text.len > 0 {
            self.rx
                .report_duplicate(cx, seg.seq, self.rcv.nxt(), &mut self.conn_flags);
        }
        let (stored, effects) = match text {
            Text { len: 0, .. } => (0, Effects::NONE),
            Text { offset: 0, .. } => self.take_in_order(cx, text, seg, rx),
            _ => self.hold_out_of_order(cx, text, seg, rx),
        };
        effects | self.step_fin(cx, seg, fin && stored == text.len, rx)
    }

    /// Answers text after the peer's FIN: the peer repeats itself because it lacks our ACK.
    pub(super) fn text_after_end(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        if seg.seq_len() == 0 || !seg.seq.lt(self.rcv.nxt()) {
            return Effects::NONE;
        }
        if (seg.seq + seg.len).gt(self.rcv.nxt()) && self.state() != State::TimeWait {
            // The text continues behind the peer's own FIN, so the peer contradicts itself (Linux
            // resets).
            self.tx.reply_reset(seg, &mut self.conn_flags);
            return self.reset_by_peer();
        }
        self.rx.report_duplicate(
            cx,
            seg.seq,
            seg.end().min(self.rcv.nxt()),
            &mut self.conn_flags,
        );
        self.timers
            .restart_time_wait(cx, seg, self.state(), &self.rcv);
        self.rx.answer_unwanted(cx, &mut self.conn_flags);
        Effects::NONE
    }

    /// Publishes the next bytes in order, and the stored ranges that they connect to.
    fn take_in_order(
        &mut self,
        cx: &mut Cx<'_>,
        text: Text,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> (u32, Effects) {
        if !self
            .rx
            .make_room(cx, seg.seq, rx, &mut self.conn_flags, &self.rcv)
            && self.rx.unread() > 0
        {
            cx.counters.bytes_drop_no_memory += u64::from(text.len);
            cx.counters.drop_in_order_no_memory += 1;
            self.rx.answer_without_memory(&mut self.conn_flags);
            return (0, Effects::NONE);
        }
        let mut stored = rx.write_at(0, text.skip, text.len).min(text.len);
        if stored < text.len && self.shed_out_of_order(cx, rx) {
            stored = rx.write_at(0, text.skip, text.len).min(text.len);
        }
        cx.counters.bytes_drop_no_memory += u64::from(text.len - stored);
        if stored == 0 {
            cx.counters.drop_in_order_no_memory += 1;
            self.rx.answer_without_memory(&mut self.conn_flags);
            return (0, Effects::NONE);
        }
        self.rx.charge(self.conn_flags, stored, true);
        let mut end = self.rcv.nxt() + stored;
        let is_last = seg.has(Flags::FIN) && stored == text.len;
        if self.conn_flags.has(ConnFlags::OUT_OF_ORDER) {
            end = self
                .rx
                .close_gap(cx, end, is_last, &mut self.conn_flags, &self.rcv);
        }
        self.rx.advance_receive(end, rx, &mut self.rcv);
        self.note_received(cx, seg.len, seg.flags);
        self.ecn.note_codepoint(
            cx,
            seg.ecn,
            &mut self.conn_flags,
            &self.snd,
            &self.rcv,
            &mut self.rx,
        );
        // If the text is the peer's last, its FIN decides when to acknowledge.
        if !is_last {
            self.rx
                .schedule_ack(cx, &mut self.conn_flags, &self.rcv, &mut self.timers);
        }
        (stored, Effects::READABLE)
    }

    /// Stores bytes beyond a gap. Each such segment is answered by a duplicate ACK (RFC 5681 4.2).
    fn hold_out_of_order(
        &mut self,
        cx: &mut Cx<'_>,
        text: Text,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> (u32, Effects) {
        self.ecn.note_codepoint(
            cx,
            seg.ecn,
            &mut self.conn_flags,
            &self.snd,
            &self.rcv,
            &mut self.rx,
        );
        let left = self.rcv.nxt() + text.offset;
        let right = left + text.len;
        if !self.has_place_beyond_gap(cx, left, right, rx) {
            return (0, Effects::NONE);
        }
        self.rx.request_ack(AckKind::Owed, &mut self.conn_flags);
        let stored = rx.write_at(text.offset, text.skip, text.len).min(text.len);
        cx.counters.bytes_drop_no_memory += u64::from(text.len - stored);
        let before = self.rx.held().bytes(cx.ranges);
        let fin = u32::from(seg.has(Flags::FIN) && stored == text.len);
        self.rx
            .note_duplicates(cx, left, left + stored + fin, &mut self.conn_flags);
        let held = stored > 0
            && self
                .rx
                .hold_range(cx, left, left + stored, rx, &mut self.conn_flags, &self.rcv);
        // Bytes that were stored before do not make the buffer grow.
        let fresh = self.rx.held().bytes(cx.ranges).saturating_sub(before);
        if held {
            self.rx.count_out_of_order();
            self.rx
                .learn_segment_size(seg.len, seg.flags, self.conn_flags, &self.path);
            cx.counters.bytes_out_of_order += u64::from(stored);
            if self.conn_flags.has(ConnFlags::SACK) {
                self.rx.held_mut().hear(
                    cx.ranges,
                    Range {
                        left,
                        right: left + stored + fin,
                    },
                );
                if fresh > 0 {
                    self.rx.grow_window(cx, stored, self.conn_flags);
                }
            }
            if fresh > 0 {
                self.rx.charge(self.conn_flags, fresh, false);
                self.rx
                    .make_place_beyond_gap(cx, self.conn_flags, &self.rcv, &self.opening);
            }
        }
        self.rx
            .owe_duplicate_ack(cx, &mut self.conn_flags, &self.rcv, &mut self.timers);
        (if held { stored } else { 0 }, Effects::NONE)
    }

    /// True if `left..right` may be stored beyond a gap. Otherwise the drop is counted and answered
    /// by a duplicate ACK.
    fn has_place_beyond_gap(
        &mut self,
        cx: &mut Cx<'_>,
        left: SeqNumber,
        right: SeqNumber,
        rx: &mut impl RecvBuffer,
    ) -> bool {
        let len = u64::from(right.since(left));
        let held_fin = self.rx.held_fin(self.conn_flags);
        let mut is_answered = true;
        if held_fin.is_some_and(|fin| right.gt(fin)) {
            cx.counters.bytes_drop_beyond_fin += len;
        } else if cx.memory >= Memory::Exhausted {
            cx.counters.bytes_drop_no_memory += len;
        } else if !self
            .rx
            .make_room(cx, left, rx, &mut self.conn_flags, &self.rcv)
        {
            // The buffer is full because the application does not read. As in Linux no ACK answers
            // the segment, unless the window is shut.
            cx.counters.bytes_drop_no_memory += len;
            is_answered = self.rcv.wnd() == 0;
        } else {
            return true;
        }
        if is_answered {
            self.rx
                .owe_duplicate_ack(cx, &mut self.conn_flags, &self.rcv, &mut self.timers);
        }
        false
    }

    /// Refuses new text because the application is gone. The RST tells the peer that nothing reads
    /// it (RFC 9293 SHLD-3).
    #[cold]
    fn refuse_text(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Effects {
        cx.counters.bytes_drop_orphan += u64::from(seg.len);
        self.tx.reply_reset(seg, &mut self.conn_flags);
        match self.conn_flags.has(ConnFlags::ORPHAN) {
            true => self.finish_closed(),
            false => self.fail(ConnectionError::Reset),
        }
    }

    /// Drops all text beyond gaps, because bytes in order of this or another connection find no
    /// memory. The peer sends it again. False if there was none.
    pub fn shed_out_of_order(&mut self, cx: &mut Cx<'_>, rx: &mut impl RecvBuffer) -> bool {
        let bytes = self.rx.held().bytes(cx.ranges);
        if bytes == 0 {
            return false;
        }
        self.planned.forget();
        cx.counters.bytes_out_of_order_shed += u64::from(bytes);
        self.rx
            .discharge(self.rx.unread().saturating_add(bytes), self.rx.unread());
        self.rx.held_mut().release(cx.ranges);
        self.rx
            .forget_from(cx, self.rcv.nxt(), rx, &mut self.conn_flags, &self.rcv);
        true
    }
}
