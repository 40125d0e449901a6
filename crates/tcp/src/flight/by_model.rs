//! A flight whose algorithm models the path: window, pacing rate and marks follow the model.

use crate::congestion::by_model::PathSample;
use crate::context::Cx;
use crate::flight::Flight;
use crate::recovery::ack::Ack;
use crate::rtt::micros;
use crate::timers::Timers;
use crate::variables::Snd;

impl Flight {
    /// Starts a newly chosen algorithm: one that models the path learns its known values, and the
    /// connection is paced.
    pub(crate) fn begin_model(&mut self, cx: &Cx<'_>, snd: &Snd, timers: &Timers) {
        let (min_us, srtt_us) = (timers.rtt().min_us(), timers.rtt().srtt_us());
        let mss = u32::from(snd.mss());
        if let Some(rate) = self.congestion.begin_model(mss, min_us, srtt_us) {
            self.pacing.turn_on(self.delivery.last_out_ns());
            self.pacing.set_rate(rate);
        } else {
            self.refresh_pacing(cx, snd, timers);
        }
    }

    /// The ACK is understood: the model learns from it. False when there is none.
    #[inline]
    pub(crate) fn follow_model(
        &mut self,
        cx: &Cx<'_>,
        ack: &Ack,
        snd: &Snd,
        timers: &Timers,
    ) -> bool {
        let is_model = self.congestion.is_model();
        if is_model {
            self.learn_from(cx, ack, snd, timers);
        }
        is_model
    }

    fn learn_from(&mut self, cx: &Cx<'_>, ack: &Ack, snd: &Snd, timers: &Timers) {
        let recovery = &self.recovery;
        let sample = PathSample {
            rate: ack.rate,
            delivered: recovery.delivered().wrapping_sub(ack.prior_delivered),
            lost: recovery.lost().wrapping_sub(ack.prior_lost),
            prior_in_flight: ack.prior_in_flight,
            in_flight: recovery.in_flight(),
            rtt_us: ack.latest_rtt_ns.map(micros),
            maybe_delayed: ack.maybe_delayed,
            state: recovery.ca_state(),
            departure_ns: self.pacing.next_ns(),
        };
        let moment = self.moment(cx, snd);
        if self.congestion.follow_model(&moment, &sample) {
            let until = moment.delivered.wrapping_add(sample.in_flight);
            self.delivery.limit_by_application(until);
        }
        self.pace_by_model(cx, snd, timers);
        // The window makes room for bursts, which the new rate makes.
        let moment = self.moment(cx, snd);
        self.congestion.size_by_model(&moment, &sample);
    }

    /// The model's pacing rate, as it is now. False when there is none.
    #[inline]
    pub(crate) fn pace_by_model(&mut self, cx: &Cx<'_>, snd: &Snd, timers: &Timers) -> bool {
        if !self.congestion.is_model() {
            return false;
        }
        let moment = self.moment(cx, snd);
        let rate = self
            .congestion
            .rate_by_model(&moment, timers.rtt().srtt_us());
        if let Some(rate) = rate {
            self.pacing.set_rate(rate);
        }
        rate.is_some()
    }

    /// Segments that leave back to back at least, whatever the rate.
    #[inline]
    pub(crate) fn burst_segments_min(&self, cx: &Cx<'_>) -> u32 {
        self.congestion
            .burst_segments_min(cx.config, self.pacing.rate())
    }
}
