//! Construction of segments: sequence and acknowledgment numbers, flags, window, options.

use wire::tcp::{Flags, Timestamp};
use wire::{Ecn, SeqNumber};

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::segment::SegmentOut;
use crate::state::State;

impl Connection {
    /// Builds payload, new or retransmitted, and the FIN behind it. PSH is set on the last buffered
    /// byte (RFC 9293 MUST-61), unless more data is announced.
    #[inline]
    pub(super) fn build_data(
        &mut self,
        cx: &Cx<'_>,
        out: &mut SegmentOut,
        seq: SeqNumber,
        len: u32,
        fin: bool,
    ) {
        let offset = seq.since(self.snd.una());
        let mut flags = Flags::ACK;
        let is_pushed = match seq == self.snd.nxt() {
            true => self.tx.is_fresh_pushed(len, self.conn_flags, &self.snd),
            false => self
                .flight
                .recovery()
                .is_repetition_pushed(cx.records, seq + len),
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
        self.ecn.dress(
            cx,
            out,
            len > 0 && seq == self.snd.nxt(),
            &self.snd,
            &self.timers,
        );
    }

    /// Builds an ACK without payload, before its ECN fields are set.
    #[inline]
    pub(super) fn build_empty(&mut self, cx: &Cx<'_>, out: &mut SegmentOut, seq: SeqNumber) {
        out.seq = seq;
        out.ack = self.rcv.nxt();
        out.flags = Flags::ACK;
        out.ecn = Ecn::NotEct;
        out.window = self
            .rx
            .advertise_window(cx, &mut self.conn_flags, &mut self.rcv);
        out.options
            .reset_to(self.tx.data_stamp(cx.now_ns, self.conn_flags, &self.rcv));
        if self
            .conn_flags
            .any(ConnFlags::OUT_OF_ORDER | ConnFlags::DSACK)
            && self.conn_flags.has(ConnFlags::SACK)
        {
            if self.conn_flags.has(ConnFlags::DSACK) {
                self.ecn.note_dsack_out();
            }
            out.options.sack = self.rx.take_sack_blocks(cx, &mut self.conn_flags);
        }
        out.payload_offset = 0;
        out.payload_len = 0;
        out.urgent = 0;
        if self.conn_flags.has(ConnFlags::RECORDS) {
            self.tx.point_to_urgent(out, &self.snd);
        }
    }

    /// Builds a pure ACK or a probe.
    #[inline]
    pub(super) fn build_ack(&mut self, cx: &Cx<'_>, out: &mut SegmentOut, seq: SeqNumber) {
        self.build_empty(cx, out, seq);
        self.ecn.dress(cx, out, false, &self.snd, &self.timers);
    }

    /// Builds our SYN, or the SYN-ACK once the peer's SYN has crossed ours.
    pub(super) fn build_syn(&mut self, cx: &Cx<'_>, out: &mut SegmentOut) {
        // SYN_RECEIVED, or a Fast Open that was closed early.
        let crossed = self.state() != State::SynSent;
        *out = SegmentOut::empty();
        out.seq = self.tx.iss();
        out.flags = Flags::SYN;
        out.window = self.rx.syn_window();
        let mut echo = 0;
        if crossed {
            out.flags = Flags::SYN | Flags::ACK;
            out.ack = self.rcv.nxt();
            echo = self.rcv.ts_recent();
        }
        if self.opening.is_first_syn() {
            out.options.fast_open = self.opening.fast_open();
            out.payload_len = if crossed {
                0
            } else {
                self.opening.syn_payload(&self.snd)
            };
        }
        out.options.mss = Some(self.rx.mss());
        out.options.sack_permitted = self.conn_flags.has(ConnFlags::SACK);
        if self.conn_flags.has(ConnFlags::WINDOW_SCALING) {
            out.options.window_scale = Some(self.rcv.shift());
        }
        if self.conn_flags.has(ConnFlags::TIMESTAMPS) {
            let value = self.tx.ts_value(cx.now_ns);
            out.options.timestamp = Some(Timestamp { value, echo });
        }
        self.ecn.dress_syn(
            cx,
            out,
            self.conn_flags,
            &self.snd,
            &self.opening,
            &self.timers,
        );
    }

    /// Builds the RST that ends the connection, at a sequence number that the peer accepts.
    pub(super) fn build_reset(&mut self, cx: &Cx<'_>, out: &mut SegmentOut) {
        self.build_empty(cx, out, self.rcv.acceptable_seq(&self.snd));
        out.flags = Flags::RST | Flags::ACK;
        if out.urgent != 0 {
            out.flags |= Flags::URG;
        }
        if self.snd.ecn().is_accurate() {
            self.ecn.dress(cx, out, false, &self.snd, &self.timers);
        }
    }
}
