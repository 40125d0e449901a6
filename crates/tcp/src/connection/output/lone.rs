//! The lone segment: nothing is in flight, and all waiting data (and the FIN behind it) fits one
//! segment that both windows take. Every message of a short exchange leaves this way. The plan is
//! one comparison of marks and a few of lengths. The state changes are written once, because burst,
//! Nagle, deferral, pacing, ECN and joined records do not apply.
//!
//! In any other case the general path of [`next`](super::next), [`build`](super::build) and
//! [`sent`](super::sent) is taken. The result is the same.

use wire::Ecn;
use wire::tcp::Flags;

use super::Plan;
use crate::connection::Connection;
use crate::context::Cx;
use crate::marks::Marks;
use crate::records::tag;
use crate::segment::{SegmentOut, TransmitClass};

/// All that waits: `len` bytes of payload, and the FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lone {
    len: u32,
    fin: bool,
}

impl Lone {
    #[inline]
    pub(crate) fn class(self) -> TransmitClass {
        match self.len {
            0 => TransmitClass::Control,
            _ => TransmitClass::Data,
        }
    }

    /// The plan that it comes to.
    pub(super) fn plan(self) -> Plan {
        Plan::Fresh {
            len: self.len,
            fin: self.fin,
            probes_path: false,
        }
    }
}

impl Connection {
    /// All that waits, if it leaves now as a lone segment.
    #[inline]
    pub(crate) fn lone(&self) -> Option<Lone> {
        let snd = &self.snd;
        let len = snd.buffered;
        let fin = self.marks.has(Marks::FIN_QUEUED);
        let is_lone = snd.una == snd.nxt
            && !self.marks.any(Marks::STOPS_LONE)
            && (len > 0 || fin)
            && len <= u32::from(snd.mss)
            && len + u32::from(fin) <= snd.wnd
            && snd.ecn.is_off()
            && self.state().sends_data()
            && !self.pacing.is_on()
            && self.rx.dup_acks_due() == 0
            && self.delivery.burst_left() == 0
            && self.congestion.cwnd() > 0;
        is_lone.then_some(Lone { len, fin })
    }

    /// The lone segment leaves, and nothing is left.
    #[inline]
    pub(super) fn send_lone(&mut self, cx: &mut Cx<'_>, out: &mut SegmentOut, lone: Lone) {
        debug_assert_eq!(self.plan(cx), lone.plan());
        let Lone { len, fin } = lone;
        let mut flags = Flags::ACK;
        if len > 0 && self.marks.has(Marks::PUSH_AT_END) {
            flags |= Flags::PSH;
        }
        if fin {
            flags |= Flags::FIN;
        }
        out.seq = self.snd.nxt;
        out.ack = self.rcv.nxt;
        out.flags = flags;
        out.ecn = Ecn::NotEct;
        out.window = self.advertise_window(cx);
        out.options.reset_to(self.data_stamp(cx.now_ns));
        out.payload_offset = 0;
        out.payload_len = len;
        out.urgent = 0;
        self.note_lone(cx, lone, flags.contains(Flags::PSH));
        self.note_ack_sent(cx);
        self.stop_lone(cx);
    }

    /// Like `stop` for an empty send buffer: no limit is to be noted, and no window is to be
    /// probed.
    #[inline]
    pub(super) fn stop_lone(&mut self, cx: &mut Cx<'_>) {
        self.due = TransmitClass::None;
        self.delivery.end_burst();
        self.note_busy(cx);
        self.arm_departure(cx);
    }

    #[inline]
    fn note_lone(&mut self, cx: &mut Cx<'_>, lone: Lone, pushed: bool) {
        let Lone { len, fin } = lone;
        cx.counters.segments_out += 1;
        self.delivery.note_lone_out(cx.now_ns);
        self.tx.segs_out = self.tx.segs_out.wrapping_add(1);
        self.tx.progress_ns = cx.now_ns;
        self.tell_of_start(cx);
        let end = self.snd.nxt + len + u32::from(fin);
        let tags = tag::of_end(fin, pushed);
        self.recovery
            .note_first_sent(cx.records, &self.snd, &mut self.delivery, end, tags);
        self.snd.nxt = end;
        self.note_stream_out(cx, len, fin);
        if len > 0 && len < u32::from(self.snd.mss) {
            self.tx.small_end = end;
        }
        self.validate_window(cx, false);
        self.set_first_timer(cx);
    }

    /// A flight has begun: the probe's timer, or the timeout.
    #[inline]
    fn set_first_timer(&mut self, cx: &Cx<'_>) {
        if self.is_probe_sensible(cx) {
            let timeout_ns = self.delivery.last_out_ns() + self.tx.rtt.rto_ns();
            self.arm_probe(cx, timeout_ns.checked_sub(cx.now_ns));
        } else {
            self.rearm_retransmit(cx);
        }
    }
}
