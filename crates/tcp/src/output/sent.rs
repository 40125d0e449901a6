//! What changes when a segment has left: sequence numbers, timers, measurements, counters.

use wire::tcp::Flags;

use super::Plan;
use crate::connection::{Connection, Cx};
use crate::marks::Marks;
use crate::recovery::LossRecovery;
use crate::segment::SegmentOut;
use crate::state::State;

impl Connection {
    #[inline]
    pub(super) fn note_sent(&mut self, cx: &mut Cx<'_>, plan: Plan, out: &SegmentOut) {
        cx.counters.segments_out += 1;
        self.tx.segs_out = self.tx.segs_out.wrapping_add(1);
        match plan {
            Plan::Nothing => {}
            Plan::Fresh { len, fin } => self.note_fresh(cx, len, fin),
            Plan::Repeat { seq, len, fin } => self.note_repeat(cx, seq + len + u32::from(fin), len),
            Plan::Syn => self.note_syn(cx, out.payload_len),
            // The ACK that it goes before is still due.
            Plan::OwedAck => return,
            Plan::Probe => self.marks.clear(Marks::PROBE_DUE),
            Plan::Ack => self.rx.dup_acks_due = self.rx.dup_acks_due.saturating_sub(1),
            Plan::Reset => {
                cx.counters.resets_out += 1;
                self.marks.clear(Marks::RESET_DUE);
            }
            Plan::ReplyReset => {
                cx.counters.resets_out += 1;
                self.marks.clear(Marks::REPLY_RESET);
            }
        }
        if out.flags.contains(Flags::ACK) && self.state != State::Closed {
            self.note_ack_sent(cx);
            // Further duplicate ACKs are owed: this one does not settle them.
            if self.rx.dup_acks_due > 0 {
                self.marks.set(Marks::ACK_NOW);
            }
        }
    }

    #[inline]
    fn note_fresh(&mut self, cx: &mut Cx<'_>, len: u32, fin: bool) {
        if self.snd.flight() == 0 {
            self.tx.progress_ns = cx.now_ns;
        }
        self.snd.nxt += len + u32::from(fin);
        if fin {
            self.marks.set(Marks::FIN_SENT);
        }
        if len > 0 {
            self.tx.data_segs_out = self.tx.data_segs_out.wrapping_add(1);
            self.tx.last_sent_ns = cx.now_ns;
            self.note_answer(cx);
            if len < u32::from(self.snd.mss) {
                self.tx.small_end = self.snd.nxt;
            }
        }
        if !self.marks.has(Marks::TIMING) {
            self.marks.set(Marks::TIMING);
            self.tx.rtt.timed_at_ns = cx.now_ns;
            self.tx.rtt.timed_end = self.snd.nxt;
        }
        self.marks.clear(Marks::PUSH_DUE);
        self.start_retransmit_timer(cx);
        let flight = self.segments_in_flight();
        let limited = flight >= self.congestion.window.cwnd;
        self.congestion
            .usage
            .on_flight(self.snd.una, self.snd.nxt, flight, limited);
    }

    #[cold]
    fn note_repeat(&mut self, cx: &mut Cx<'_>, end: wire::SeqNumber, len: u32) {
        cx.counters.segments_retransmitted += 1;
        self.tx.total_retrans = self.tx.total_retrans.wrapping_add(1);
        if len > 0 {
            self.tx.data_segs_out = self.tx.data_segs_out.wrapping_add(1);
            self.tx.last_sent_ns = cx.now_ns;
        }
        // Karn: an ACK from now on may be of either transmission.
        self.marks.clear(Marks::TIMING);
        self.tx.recovery.on_repeated(end);
        self.start_retransmit_timer(cx);
    }

    #[cold]
    fn note_syn(&mut self, cx: &mut Cx<'_>, len: u32) {
        self.marks.clear(Marks::SYN_DUE);
        if self.is_first_syn() {
            self.cold.is_syn_sent = true;
            if self.state == State::SynSent {
                self.snd.nxt += 1 + len;
                self.cold.syn_bytes = len as u16;
            }
            if len > 0 {
                self.tx.data_segs_out = self.tx.data_segs_out.wrapping_add(1);
                self.tx.last_sent_ns = cx.now_ns;
            }
            self.tx.progress_ns = cx.now_ns;
            self.marks.set(Marks::TIMING);
            self.tx.rtt.timed_at_ns = cx.now_ns;
            self.tx.rtt.timed_end = self.snd.nxt;
        } else {
            cx.counters.segments_retransmitted += 1;
            self.tx.total_retrans = self.tx.total_retrans.wrapping_add(1);
            self.marks.clear(Marks::TIMING);
        }
        self.start_retransmit_timer(cx);
    }
}
