//! The ACK of a whole flight that is one run of segments sent once: the usual ACK of a short
//! exchange. The code is the sum of the mechanisms of [`recovery`](super) for this case, in their
//! order, without those that have no effect.
//!
//! The state is Open and no probe is out. Nothing is SACKed, lost or retransmitted, so there is no
//! hole, no reordering, no duplicate and nothing to undo. Nothing stays in flight, so the timer is
//! cleared. The fifth step and header prediction call it.

use crate::congestion::AckSample;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::marks::Marks;
use crate::records::{Record, tag};
use crate::recovery::Pending;
use crate::recovery::rate::{Busy, RateSample};
use crate::segment::Segment;
use crate::timers::NEVER_NS;

impl Connection {
    /// The run that is in flight, if this ACK takes it away whole and nothing about it is out of
    /// the ordinary.
    #[inline]
    pub(crate) fn whole_flight(&self, cx: &Cx<'_>, seg: &Segment) -> Option<Record> {
        let recovery = &self.recovery;
        let is_whole = seg.ack == self.snd.nxt
            && !self.marks.any(Marks::STOPS_WHOLE_FLIGHT)
            && recovery.is_one_plain_run()
            && self.snd.ecn.is_off()
            && seg.options.sack.is_empty()
            && self.path.probe == 0
            && !self.is_reno()
            && !self.congestion.is_model();
        if !is_whole {
            return None;
        }
        let record = recovery.head(cx.records)?;
        // The remainder of a partly acknowledged segment would be a hole filled late.
        let is_plain = record.tags & !(tag::FIN | tag::APP_LIMITED | tag::PUSHED) == 0
            && record.seq == self.snd.una;
        is_plain.then_some(*record)
    }

    /// Takes the ACK of [`whole_flight`](Self::whole_flight): as `take_ack_in_full` would.
    #[inline]
    pub(crate) fn take_whole_flight(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        record: &Record,
    ) -> Effects {
        let acked = seg.ack.since(self.snd.una);
        let effects = self.advance_una(cx, seg);
        // With data in flight a new window restarts nothing.
        self.learn_window(seg);
        let delivered = self.recovery.packets_out();
        self.recovery.take_whole_flight(cx.records);
        self.recovery.rack_advance(&self.tx, cx.now_ns, record);
        let mut rate = RateSample::default();
        self.delivery.on_delivered(record, &mut rate);
        if self.unsent() == 0 {
            self.delivery.rest(cx.now_ns);
        } else {
            self.delivery.stop(cx.now_ns, Busy::Sending);
        }
        // A lone small segment, acknowledged in order: its ACK was probably delayed.
        let maybe_delayed = delivered == 1
            && acked < u32::from(self.snd.mss)
            && record.delivered.wrapping_add(1) == self.recovery.delivered();
        let rtt_ns = cx.now_ns.saturating_sub(record.sent_ns.max(1));
        self.take_round_trip(cx, rtt_ns, rtt_ns, maybe_delayed);
        self.recovery.rack_update_window(rate.prior_delivered);
        self.arm_pending(Pending::Timeout, NEVER_NS);
        self.finish_rate_sample(cx, &mut rate, delivered, false);
        let sample = AckSample {
            acked: delivered,
            rtt_ns: Some(rtt_ns),
        };
        let moment = self.moment(cx);
        self.congestion.on_progress(&moment, &sample);
        self.refresh_pacing(cx);
        effects
    }
}
