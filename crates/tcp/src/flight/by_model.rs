//! A flight whose algorithm learns from every ACK: a model of the path, which window, pacing rate
//! and marks follow, or an algorithm from outside, which may set the rate.

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
            return;
        }
        if self.congestion.paces(cx.config) {
            self.pacing.turn_on(self.delivery.last_out_ns());
        }
        self.refresh_pacing(cx, snd, timers);
    }

    /// The ACK is understood: an algorithm that learns does so. True when the window follows a
    /// model then.
    #[inline]
    pub(crate) fn follow_model(
        &mut self,
        cx: &Cx<'_>,
        ack: &Ack,
        snd: &Snd,
        timers: &Timers,
    ) -> bool {
        if !self.congestion.learns() {
            return false;
        }
        self.learn_from(cx, ack, snd, timers);
        self.congestion.is_model()
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
            rtt_us_min: timers.rtt().min_us(),
            maybe_delayed: ack.maybe_delayed,
            state: recovery.ca_state(),
            departure_ns: self.pacing.next_ns(),
        };
        let moment = self.moment(cx, snd);
        if self.congestion.learn(&moment, &sample) {
            let until = moment.delivered.wrapping_add(sample.in_flight);
            self.delivery.limit_by_application(until);
        }
        self.pace_by_algorithm(cx, snd, timers);
        // The window makes room for bursts, which the new rate makes.
        let moment = self.moment(cx, snd);
        self.congestion.size_by_model(&moment, &sample);
    }

    /// A flight begins: the model's pacing rate is what it is now. An algorithm from outside is not
    /// asked here. The burst that leaves was planned at the rate before, and would wait at another
    /// one for each of its segments.
    #[inline]
    pub(crate) fn pace_start_by_model(&mut self, cx: &Cx<'_>, snd: &Snd, timers: &Timers) {
        if self.congestion.is_model() {
            self.pace_by_algorithm(cx, snd, timers);
        }
    }

    /// The algorithm's own pacing rate, as it is now. False when there is none.
    #[inline]
    pub(crate) fn pace_by_algorithm(&mut self, cx: &Cx<'_>, snd: &Snd, timers: &Timers) -> bool {
        if !self.congestion.learns() {
            return false;
        }
        let moment = self.moment(cx, snd);
        let rate = self
            .congestion
            .rate_by_algorithm(&moment, timers.rtt().srtt_us());
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
