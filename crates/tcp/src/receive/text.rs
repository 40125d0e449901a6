//! Text that arrives: RCV.NXT, gaps, duplicate ACKs, urgent data.

use wire::tcp::Flags;

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::effects::Effects;
use crate::reassembly::{Inserted, Range};
use crate::receive::Receiver;
use crate::receive::delayed_ack::AckKind;
use crate::recv_buffer::RecvBuffer;
use crate::segment::Segment;
use crate::state::State;
use crate::timers::Timers;
use crate::variables::Rcv;

impl Receiver {
    /// Takes the urgent pointer (sixth step). Urgent data stays in line (RFC 6093); the application
    /// may ask where it ends (RFC 9293 MUST-32). A pointer of 0 means the segment's first byte, as
    /// in Linux.
    pub(crate) fn step_urgent(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        conn_flags: &mut ConnFlags,
        rcv: &Rcv,
    ) -> Effects {
        if !seg.has(Flags::URG) {
            return Effects::NONE;
        }
        let end = seg.seq + u32::from(seg.urgent.max(1));
        let known = conn_flags.has(ConnFlags::URGENT) && end.le(self.urgent_end());
        if known || end.le(rcv.nxt()) {
            return Effects::NONE;
        }
        cx.counters.urgent_in += 1;
        conn_flags.set(ConnFlags::URGENT);
        self.set_urgent_end(end);
        Effects::URGENT
    }

    /// Forgets an urgent pointer that RCV.NXT has reached.
    pub(crate) fn forget_passed_urgent(&self, conn_flags: &mut ConnFlags, rcv: &Rcv) {
        if conn_flags.has(ConnFlags::URGENT) && self.urgent_end().le(rcv.nxt()) {
            conn_flags.clear(ConnFlags::URGENT);
        }
    }

    /// Answers data in order that found no memory. The window shuts (Linux), if a read will open it
    /// again.
    pub(crate) fn answer_without_memory(&mut self, conn_flags: &mut ConnFlags) {
        self.request_ack(AckKind::Refusal, conn_flags);
        conn_flags.put(ConnFlags::NO_MEMORY, self.unread() > 0);
    }

    /// Answers a segment that brought nothing new or wanted. ACKs leave at once for a while, so
    /// that the peer learns our state.
    pub(crate) fn answer_unwanted(&mut self, cx: &Cx<'_>, conn_flags: &mut ConnFlags) {
        self.enter_quick_ack(cx, cx.config.quick_acks_max);
        self.request_ack(AckKind::Refusal, conn_flags);
    }

    /// True if the segment brings text while the promised window is shut. If data is unread,
    /// `is_acceptable` has refused its ACK too. If not, the application has just read, and the ACK
    /// that opens the window has not left. A FIN takes no room.
    pub(crate) fn is_shut_to(&self, seg: &Segment, rcv: &Rcv) -> bool {
        seg.len > 0 && rcv.promised_window() == 0
    }

    /// Moves RCV.NXT to `end`; the bytes up to it are stored.
    #[inline]
    pub(crate) fn advance_receive(
        &mut self,
        end: wire::SeqNumber,
        rx: &mut impl RecvBuffer,
        rcv: &mut Rcv,
    ) {
        let n = end.since(rcv.nxt());
        self.advance_rcv_nxt(n, rcv);
        rx.publish(n);
    }

    /// Moves RCV.NXT by `n` bytes, which are stored and are then published.
    #[inline]
    pub(crate) fn advance_rcv_nxt(&mut self, n: u32, rcv: &mut Rcv) {
        rcv.advance(n);
        self.take_text(n);
    }

    /// Closes the gap at `end`, and takes the stored ranges that it reaches; their repeated parts
    /// are reported. The run stops at the peer's FIN: this segment's if it `is_last`, or a stored
    /// one. A filled gap is acknowledged at once (RFC 5681 4.2), and owed duplicate ACKs are
    /// dropped. The ACK of a segment with the FIN waits like that of any FIN (Linux).
    pub(crate) fn close_gap(
        &mut self,
        cx: &mut Cx<'_>,
        end: wire::SeqNumber,
        is_last: bool,
        conn_flags: &mut ConnFlags,
        rcv: &Rcv,
    ) -> wire::SeqNumber {
        self.note_duplicates(cx, rcv.nxt(), end, conn_flags);
        let fin = if is_last {
            Some(end)
        } else {
            self.held_fin(*conn_flags).filter(|&fin| end.le(fin))
        };
        let end = self.held_mut().advance(cx.ranges, end, fin);
        self.settle_dup_acks();
        self.refresh_out_of_order(cx, conn_flags);
        let is_filled = !conn_flags.has(ConnFlags::OUT_OF_ORDER) || fin == Some(end);
        if is_filled && !is_last {
            self.request_ack(AckKind::Due, conn_flags);
        }
        end
    }

    /// Notes that `left..right` is stored beyond a gap. False if the pool has no room for another
    /// range.
    pub(crate) fn hold_range(
        &mut self,
        cx: &mut Cx<'_>,
        left: wire::SeqNumber,
        right: wire::SeqNumber,
        rx: &mut impl RecvBuffer,
        conn_flags: &mut ConnFlags,
        rcv: &Rcv,
    ) -> bool {
        let before = self.held().bytes(cx.ranges);
        let outcome = self.held_mut().insert(cx.ranges, Range { left, right });
        match outcome {
            Inserted::Yes => {}
            Inserted::Instead(edge) => {
                let now = self.held().bytes(cx.ranges);
                let lost = (before + right.since(left)).saturating_sub(now);
                cx.counters.bytes_drop_ranges_full += u64::from(lost);
                rx.forget(edge.since(rcv.nxt()));
            }
            Inserted::No => {
                cx.counters.bytes_drop_ranges_full += u64::from(right.since(left));
                let furthest = self.held().last(cx.ranges);
                let edge = furthest.map_or(rcv.nxt(), |range| range.right);
                rx.forget(edge.since(rcv.nxt()));
            }
        }
        self.refresh_out_of_order(cx, conn_flags);
        outcome != Inserted::No
    }

    /// Owes a duplicate ACK. All that are due in a turn leave, because the peer counts them. With
    /// SACK, from the fourth on, one may be held back for others (Linux's SACK compression).
    pub(crate) fn owe_duplicate_ack(
        &mut self,
        cx: &Cx<'_>,
        conn_flags: &mut ConnFlags,
        rcv: &Rcv,
        timers: &mut Timers,
    ) {
        self.request_ack(AckKind::Owed, conn_flags);
        let quick = self.in_quick_ack_mode();
        if quick
            || conn_flags.has(ConnFlags::ACK_NOW)
            || !self.compresses_ack(cx, *conn_flags, rcv, timers)
        {
            self.request_ack(AckKind::Duplicate, conn_flags);
        }
    }

    pub(crate) fn refresh_out_of_order(&mut self, cx: &mut Cx<'_>, conn_flags: &mut ConnFlags) {
        let held = conn_flags.has(ConnFlags::FIN_HELD) || self.held().has_ranges(cx.ranges);
        conn_flags.put(ConnFlags::OUT_OF_ORDER, held);
        if !held {
            self.held_mut().release(cx.ranges);
        }
    }

    /// True if nothing reads text any more: the application is gone, or has shut both directions
    /// (RFC 1122 4.2.2.13).
    pub(crate) fn refuses_text(&self, state: State, conn_flags: ConnFlags) -> bool {
        let is_shut = matches!(state, State::FinWait1 | State::FinWait2) && self.read_shut;
        is_shut || conn_flags.has(ConnFlags::ORPHAN)
    }
}
