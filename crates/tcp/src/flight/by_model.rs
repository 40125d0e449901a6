//! The flight of an algorithm that learns from every ACK. A model of the path sets window, pacing
//! rate and marks; an algorithm from outside may set the rate.

use crate::congestion::by_model::PathSample;
use crate::context::Cx;
use crate::flight::Flight;
use crate::recovery::ack::Ack;
use crate::rtt::micros;
use crate::timers::Timers;
use crate::variables::Snd;

impl Flight {
    /// Starts a newly chosen algorithm. A model learns the path's known values, and its connection
    /// is paced.
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

    /// Lets an algorithm that learns take the ACK, once loss recovery has acted on it. True if a
    /// model has set the window.
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
        // The window's room for bursts depends on the new rate.
        let moment = self.moment(cx, snd);
        self.congestion.size_by_model(&moment, &sample);
    }

    /// Sets the model's present pacing rate when a flight begins. An algorithm from outside is not
    /// asked here: the burst that leaves was planned at the old rate, and at another rate each of
    /// its segments would wait.
    #[inline]
    pub(crate) fn pace_start_by_model(&mut self, cx: &Cx<'_>, snd: &Snd, timers: &Timers) {
        if self.congestion.is_model() {
            self.pace_by_algorithm(cx, snd, timers);
        }
    }

    /// Sets the algorithm's own pacing rate. False if it has none.
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
