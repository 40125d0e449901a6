//! The lone segment: nothing is in flight, and all waiting data (and the FIN behind it) fits one
//! segment that both windows take. Every message of a short exchange leaves this way. The plan
//! costs one comparison of flags and a few of lengths. The state changes are written out for this
//! case, because bursts, Nagle, deferral, pacing, ECN and joined records do not apply.
//!
//! In any other case the general path of [`next`](super::next), [`build`](super::build) and
//! [`sent`](super::sent) is taken. The result is the same.

use wire::Ecn;
use wire::tcp::Flags;

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::plan::Plan;
use crate::records::tag;
use crate::segment::{SegmentOut, TransmitClass};

impl Connection {
    /// The lone segment leaves, and nothing is left: the segment, then the state that follows from
    /// it.
    #[inline]
    pub(super) fn send_lone(&mut self, cx: &mut Cx<'_>, out: &mut SegmentOut, len: u32, fin: bool) {
        debug_assert_eq!(
            self.plan_generally(cx),
            Plan::Fresh {
                len: len as u16,
                fin
            }
        );
        let mut flags = Flags::ACK;
        if len > 0 && self.conn_flags.has(ConnFlags::PUSH_AT_END) {
            flags |= Flags::PSH;
        }
        if fin {
            flags |= Flags::FIN;
        }
        out.seq = self.snd.nxt();
        out.ack = self.rcv.nxt();
        out.flags = flags;
        out.ecn = Ecn::NotEct;
        out.window = self
            .rx
            .advertise_window(cx, &mut self.conn_flags, &mut self.rcv);
        out.options
            .reset_to(self.tx.data_stamp(cx.now_ns, self.conn_flags, &self.rcv));
        out.payload_offset = 0;
        out.payload_len = len;
        out.urgent = 0;
        cx.counters.segments_out += 1;
        self.flight.delivery_mut().note_lone_out(cx.now_ns);
        self.tx.count_segments(1);
        self.timers.note_progress(cx.now_ns);
        self.flight.tell_of_start(cx, &self.snd, &self.tx);
        let end = self.snd.nxt() + len + u32::from(fin);
        let tags = tag::of_end(fin, flags.contains(Flags::PSH));
        self.flight.note_first_sent(cx, end, tags, &self.snd);
        self.snd.advance(end);
        self.flight.note_stream_out(
            cx,
            len,
            fin,
            &mut self.conn_flags,
            &mut self.tx,
            &mut self.rx,
        );
        if len > 0 && len < u32::from(self.snd.mss()) {
            self.tx.note_small(end);
        }
        self.flight
            .validate_window(cx, false, &self.snd, &self.timers);
        self.flight.set_first_timer(
            cx,
            self.state(),
            self.conn_flags,
            &self.snd,
            &mut self.timers,
        );
        self.note_ack_sent(cx);
        self.stop_lone(cx);
    }

    /// Like `stop`, for an empty send buffer: there is no limit to note and no window to probe.
    #[inline]
    pub(super) fn stop_lone(&mut self, cx: &mut Cx<'_>) {
        self.due = TransmitClass::None;
        self.flight.delivery_mut().end_burst();
        self.flight
            .note_busy(cx, self.state(), self.conn_flags, &self.snd, &self.tx);
        self.arm_departure(cx);
    }
}
