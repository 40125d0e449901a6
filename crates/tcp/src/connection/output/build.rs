//! Segments as they look on the wire: sequence and acknowledgment numbers, flags, window, options.

use wire::tcp::{Flags, Timestamp};
use wire::{Ecn, SeqNumber};

use crate::connection::Connection;
use crate::context::Cx;
use crate::marks::Marks;
use crate::segment::SegmentOut;
use crate::state::State;

impl Connection {
    /// Builds payload, new or retransmitted, and the FIN behind it. PSH is set on the last buffered
    /// byte (MUST-61), unless more data is announced.
    #[inline]
    pub(super) fn build_data(
        &mut self,
        cx: &Cx<'_>,
        out: &mut SegmentOut,
        seq: SeqNumber,
        len: u32,
        fin: bool,
    ) {
        let offset = seq.since(self.snd.una);
        let mut flags = Flags::ACK;
        let is_pushed = match seq == self.snd.nxt {
            true => self.is_fresh_pushed(len),
            false => self.recovery.is_repetition_pushed(cx.records, seq + len),
        };
        if len > 0 && is_pushed {
            flags |= Flags::PSH;
        }
        if fin {
            flags |= Flags::FIN;
        }
        self.build_empty(cx, out, seq);
        out.flags = flags;
        if out.urgent != 0 {
            out.flags |= Flags::URG;
        }
        out.payload_offset = offset;
        out.payload_len = len;
        self.dress(cx, out, len > 0 && seq == self.snd.nxt);
    }

    /// True if PSH belongs behind the next `len` bytes, whichever burst they end.
    #[inline]
    pub(super) fn is_fresh_pushed(&self, len: u32) -> bool {
        let snd = &self.snd;
        let ends_buffer = snd.flight() + len == snd.buffered;
        (ends_buffer && self.marks.any(Marks::PUSH_AT_END))
            || self.is_pushed_record(snd.nxt + len)
            || self.is_pushed_probe()
    }

    #[inline]
    fn is_pushed_record(&self, end: SeqNumber) -> bool {
        self.marks.has(Marks::RECORDS) && self.cold.record_ends.is_pushed_at(end)
    }

    /// Data that the persist timer sends into a nearly shut window is pushed (Linux).
    #[inline]
    fn is_pushed_probe(&self) -> bool {
        self.marks.has(Marks::PERSIST | Marks::PUSH_DUE)
    }

    /// Builds an ACK without payload, before its ECN fields are set.
    #[inline]
    pub(super) fn build_empty(&mut self, cx: &Cx<'_>, out: &mut SegmentOut, seq: SeqNumber) {
        out.seq = seq;
        out.ack = self.rcv.nxt;
        out.flags = Flags::ACK;
        out.ecn = Ecn::NotEct;
        out.window = self.advertise_window(cx);
        out.options.reset_to(self.data_stamp(cx.now_ns));
        if self.marks.any(Marks::OUT_OF_ORDER | Marks::DSACK) && self.marks.has(Marks::SACK) {
            if self.marks.has(Marks::DSACK) {
                self.ecn.note_dsack_out();
            }
            out.options.sack = self.take_sack_blocks(cx);
        }
        out.payload_offset = 0;
        out.payload_len = 0;
        out.urgent = 0;
        if self.marks.has(Marks::RECORDS) {
            self.point_to_urgent(out);
        }
    }

    /// Sets the urgent pointer of segments that begin before the last urgent byte. As in Linux it
    /// points behind that byte.
    #[cold]
    fn point_to_urgent(&self, out: &mut SegmentOut) {
        let Some(end) = self.cold.urgent_out else {
            return;
        };
        if !out.seq.lt(end) {
            return;
        }
        let ahead = end.since(out.seq);
        let reach = u32::from(u16::MAX);
        // Farther than the field says: there is something urgent somewhere.
        if ahead <= reach || (out.seq + reach).gt(self.snd.nxt) {
            out.urgent = ahead.min(reach) as u16;
            out.flags |= Flags::URG;
        }
    }

    /// An ACK alone, or a probe.
    #[inline]
    pub(super) fn build_ack(&mut self, cx: &Cx<'_>, out: &mut SegmentOut, seq: SeqNumber) {
        self.build_empty(cx, out, seq);
        self.dress(cx, out, false);
    }

    /// Our SYN, or the SYN-ACK once the peer's SYN has crossed it.
    pub(super) fn build_syn(&mut self, cx: &Cx<'_>, out: &mut SegmentOut) {
        // SYN_RECEIVED, or closed early after a Fast Open.
        let crossed = self.state() != State::SynSent;
        *out = SegmentOut::empty();
        out.seq = self.tx.iss;
        out.flags = Flags::SYN;
        out.window = self.rx.syn_window();
        let mut echo = 0;
        if crossed {
            out.flags = Flags::SYN | Flags::ACK;
            out.ack = self.rcv.nxt;
            echo = self.rcv.ts_recent;
        }
        if self.is_first_syn() {
            out.options.fast_open = self.cold.fast_open;
            out.payload_len = if crossed { 0 } else { self.syn_payload() };
        }
        out.options.mss = Some(self.rx.mss());
        out.options.sack_permitted = self.marks.has(Marks::SACK);
        if self.marks.has(Marks::WINDOW_SCALING) {
            out.options.window_scale = Some(self.rcv_shift);
        }
        if self.marks.has(Marks::TIMESTAMPS) {
            let value = self.ts_value(cx.now_ns);
            out.options.timestamp = Some(Timestamp { value, echo });
        }
        self.dress_syn(cx, out);
    }

    /// The RST that ends the connection: at the next sequence number that the peer accepts.
    pub(super) fn build_reset(&mut self, cx: &Cx<'_>, out: &mut SegmentOut) {
        self.build_empty(cx, out, self.acceptable_seq());
        out.flags = Flags::RST | Flags::ACK;
        if out.urgent != 0 {
            out.flags |= Flags::URG;
        }
        if self.snd.ecn.is_accurate() {
            self.dress(cx, out, false);
        }
    }

    /// The RST that answers a segment with an unacceptable ACK: `<SEQ=SEG.ACK><CTL=RST>`.
    pub(super) fn build_reply_reset(&self, out: &mut SegmentOut) {
        *out = SegmentOut::empty();
        out.seq = self.tx.reply_seq;
        out.flags = Flags::RST;
    }

    /// SND.NXT, or the edge of a window that shrank below it: a number that the peer accepts.
    pub(super) fn acceptable_seq(&self) -> SeqNumber {
        let edge = self.snd.wnd_end();
        // A difference below one unit of the scale is rounding, not shrinking; of our own scale, as
        // Linux has it.
        let unit = 1u32 << self.rcv_shift;
        if edge.ge(self.snd.nxt) || self.snd.nxt.since(edge) < unit {
            self.snd.nxt
        } else {
            edge
        }
    }

    /// The timestamp, the only option of segments whose ACK reports nothing new.
    #[inline]
    pub(super) fn data_stamp(&self, now_ns: u64) -> Option<Timestamp> {
        self.marks.has(Marks::TIMESTAMPS).then(|| Timestamp {
            value: self.ts_value(now_ns),
            echo: self.rcv.ts_recent,
        })
    }
}
