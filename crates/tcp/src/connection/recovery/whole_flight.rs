//! The ACK of a whole flight that is one run of segments sent once: the usual ACK of a short
//! exchange. The code does the work of all mechanisms of `flight` for this case, in their order,
//! without those that have no effect.
//!
//! The state is Open and no probe is out. Nothing is SACKed, lost or retransmitted, so there is no
//! hole, no reordering, no duplicate and nothing to undo. Nothing stays in flight, so the timer is
//! cleared. The fifth step and header prediction call it.

use crate::congestion::AckSample;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::records::Record;
use crate::recovery::Pending;
use crate::recovery::rate::{Busy, RateSample};
use crate::segment::Segment;
use crate::timers::NEVER_NS;

impl Connection {
    /// Takes the ACK that [`whole_flight`](Self::whole_flight) recognized, with the result of
    /// `take_ack_in_full`.
    #[inline]
    pub(crate) fn take_whole_flight(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        record: &Record,
    ) -> Effects {
        let acked = seg.ack.since(self.snd.una());
        let effects = self.advance_una(cx, seg);
        // A new window does not restart an idle sender while data is in flight.
        self.learn_window(seg);
        let delivered = self.flight.recovery().packets_out();
        self.flight.recovery_mut().take_whole_flight(cx.records);
        self.flight
            .recovery_mut()
            .rack_advance(&self.timers, cx.now_ns, record);
        let mut rate = RateSample::default();
        self.flight.delivery_mut().on_delivered(record, &mut rate);
        if self.snd.unsent(self.state(), self.conn_flags) == 0 {
            self.flight.delivery_mut().rest(cx.now_ns);
        } else {
            self.flight.delivery_mut().stop(cx.now_ns, Busy::Sending);
        }
        // A lone small segment was acknowledged in order, so its ACK was probably delayed.
        let maybe_delayed = delivered == 1
            && acked < u32::from(self.snd.mss())
            && record.delivered.wrapping_add(1) == self.flight.recovery().delivered();
        let rtt_ns = cx.now_ns.saturating_sub(record.sent_ns.max(1));
        self.timers
            .take_round_trip(cx, rtt_ns, rtt_ns, maybe_delayed, &self.snd);
        self.flight
            .recovery_mut()
            .rack_update_window(rate.prior_delivered);
        self.flight
            .arm_pending(Pending::Timeout, NEVER_NS, &mut self.timers);
        self.flight
            .finish_rate_sample(cx, &mut rate, delivered, false, &self.timers);
        let sample = AckSample {
            acked: delivered,
            rtt_ns: Some(rtt_ns),
        };
        let moment = self.flight.moment(cx, &self.snd);
        self.flight.congestion_mut().on_progress(&moment, &sample);
        self.flight.refresh_pacing(cx, &self.snd, &self.timers);
        effects
    }
}
