//! Header prediction: the segment that an undisturbed connection expects skips the steps that
//! cannot apply to it. The result is the same as with all steps; every conversation in the tests
//! runs both ways.

use wire::plain::Sequel;
use wire::tcp::Flags;

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::recv_buffer::RecvBuffer;
use crate::segment::Segment;
use crate::timestamp::is_before;

impl Connection {
    /// Takes a predicted segment. Steps one to four cannot apply; five and seven are done in short
    /// form.
    #[inline]
    pub(crate) fn predicted(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> Effects {
        cx.counters.predicted_in += 1;
        let mut effects = Effects::NONE;
        self.rcv.end_more(seg, &mut self.conn_flags, &self.snd);
        self.timers.settle_probes();
        self.rx.note_ack(cx.now_ns);
        if self.snd.ecn().is_accurate() {
            self.flight.note_arrival(
                cx,
                seg,
                self.state(),
                &mut self.snd,
                &self.rcv,
                &mut self.ecn,
            );
        }
        if let Some(stamp) = seg.options.timestamp
            && self.conn_flags.has(ConnFlags::TIMESTAMPS)
            && self.rcv.acked() == self.rcv.nxt()
        {
            self.rcv.set_ts_recent(stamp.value);
            self.rx.note_timestamp(cx.now_ns);
        }
        if seg.ack == self.snd.una() {
            self.timers.forget_soft_error();
            self.take_window(cx, seg, self.snd.wnd());
        } else {
            effects |= self.take_ack(cx, seg);
        }
        if self.state().receives_data() {
            self.rx
                .measure_receive_rtt(cx, seg, self.conn_flags, &self.tx);
        }
        if seg.len > 0 {
            effects |= self.text_predicted(cx, seg, rx);
        }
        effects
    }

    fn text_predicted(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> Effects {
        let stored = rx.write_at(0, 0, seg.len).min(seg.len);
        if stored < seg.len {
            cx.counters.bytes_drop_no_memory += u64::from(seg.len - stored);
            if stored == 0 {
                cx.counters.drop_in_order_no_memory += 1;
                self.rx.answer_without_memory(&mut self.conn_flags);
                return Effects::NONE;
            }
        }
        self.take_stored(cx, stored, seg);
        rx.publish(stored);
        Effects::READABLE
    }

    /// Takes `stored` bytes of text in order, which are about to be published.
    #[inline]
    fn take_stored(&mut self, cx: &mut Cx<'_>, stored: u32, seg: &Segment) {
        self.rx.charge(self.conn_flags, stored, true);
        self.rx.advance_rcv_nxt(stored, &mut self.rcv);
        self.note_received(cx, seg.len, seg.flags);
        self.ecn.note_codepoint(
            cx,
            seg.ecn,
            &mut self.conn_flags,
            &self.snd,
            &self.rcv,
            &mut self.rx,
        );
        self.rx
            .schedule_ack(cx, &mut self.conn_flags, &self.rcv, &mut self.timers);
    }

    /// True if sequels may follow, until anything else happens to the connection. One check covers
    /// any number of consecutive segments.
    #[inline]
    #[must_use]
    pub fn takes_sequels(&self) -> bool {
        !self.conn_flags.any(ConnFlags::STOPS_PREDICTION)
            && self.snd.ecn().is_off()
            && self.state().receives_data()
            && !self.rx.refuses_text(self.state(), self.conn_flags)
    }

    /// True if [`on_sequel`](Self::on_sequel) does everything that the segment asks for; for a
    /// connection that [`takes_sequels`](Self::takes_sequels). Such a segment is predicted. It may
    /// bring text and a timestamp, but nothing new about acknowledgment, window, round trip or
    /// congestion.
    #[inline(always)]
    #[must_use]
    pub fn takes_sequel(&self, sequel: &Sequel) -> bool {
        debug_assert!(self.takes_sequels(), "asked before");
        let is_stamp_plain = match sequel.timestamp {
            Some(stamp) if self.conn_flags.has(ConnFlags::TIMESTAMPS) => {
                stamp.echo == self.rx.tuning().last_echo()
                    && !is_before(stamp.value, self.rcv.ts_recent())
            }
            _ => true,
        };
        is_stamp_plain
            && sequel.seq == self.rcv.nxt()
            && sequel.ack == self.snd.una()
            && u32::from(sequel.window) << self.snd.shift() == self.snd.wnd()
            && sequel.payload_len > 0
            && sequel.payload_len <= self.rcv.wnd()
            && !self.rx.is_overfull()
    }

    /// Takes a segment of a run that [`takes_sequel`](Self::takes_sequel). Its text is stored at
    /// the tail; the caller publishes it.
    #[inline(always)]
    pub fn on_sequel(&mut self, cx: &mut Cx<'_>, sequel: &Sequel) -> Effects {
        debug_assert!(self.takes_sequel(sequel), "asked before");
        cx.counters.segments_in += 1;
        cx.counters.predicted_in += 1;
        self.rx.count_segment(true);
        // The run's first segment has already noted the arrival, and that the peer is alive.
        if let Some(stamp) = sequel.timestamp
            && self.conn_flags.has(ConnFlags::TIMESTAMPS)
            && self.rcv.acked() == self.rcv.nxt()
        {
            self.rcv.set_ts_recent(stamp.value);
            self.rx.note_timestamp(cx.now_ns);
        }
        // The window did not change.
        self.snd.note_sequel(sequel.seq, sequel.ack);
        self.rx.charge(self.conn_flags, sequel.payload_len, true);
        self.rx.advance_rcv_nxt(sequel.payload_len, &mut self.rcv);
        let flags = match sequel.push {
            true => Flags::ACK | Flags::PSH,
            false => Flags::ACK,
        };
        self.note_received(cx, sequel.payload_len, flags);
        self.rx
            .schedule_ack(cx, &mut self.conn_flags, &self.rcv, &mut self.timers);
        Effects::READABLE
    }
}
