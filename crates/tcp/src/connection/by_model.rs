//! A connection whose algorithm models the path: window, pacing rate and marks follow the model.

use crate::congestion::Algorithm;
use crate::congestion::bbr::{BbrInfo, burst_segments_min};
use crate::congestion::by_model::PathSample;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::ack::Ack;
use crate::rtt::micros;

impl Connection {
    /// The algorithm was chosen just now: one that models the path learns what is known of it, and paces.
    pub(crate) fn begin_model(&mut self, cx: &Cx<'_>) {
        let (min_us, srtt_us) = (self.tx.rtt.min_us(), self.tx.rtt.srtt_us);
        let (mss, cwnd) = (u32::from(self.snd.mss), self.congestion.window.cwnd);
        if let Some(bbr) = self.congestion.algorithm.model() {
            let rate = bbr.begin(mss, cwnd, min_us, srtt_us);
            self.pacing.turn_on(self.delivery.last_out_ns);
            self.pacing.set_rate(rate);
        } else {
            self.refresh_pacing(cx);
        }
    }

    /// The ACK is understood: the model learns from it. False when there is none.
    #[inline]
    pub(crate) fn follow_model(&mut self, cx: &Cx<'_>, ack: &Ack) -> bool {
        let is_model = self.congestion.algorithm.is_model();
        if is_model {
            self.learn_from(cx, ack);
        }
        is_model
    }

    fn learn_from(&mut self, cx: &Cx<'_>, ack: &Ack) {
        let recovery = &self.recovery;
        let sample = PathSample {
            rate: ack.rate,
            delivered: recovery.delivered.wrapping_sub(ack.prior_delivered),
            lost: recovery.lost.wrapping_sub(ack.prior_lost),
            prior_in_flight: ack.prior_in_flight,
            in_flight: recovery.in_flight(),
            rtt_us: ack.latest_rtt_ns.map(micros),
            maybe_delayed: ack.maybe_delayed,
            state: recovery.ca_state,
            departure_ns: self.pacing.next_ns(),
        };
        let moment = self.moment(cx);
        let congestion = &mut self.congestion;
        let Some(bbr) = congestion.algorithm.model() else {
            return;
        };
        if bbr.update(&moment, &mut congestion.window, &sample) {
            let until = moment.delivered.wrapping_add(sample.in_flight);
            self.delivery.app_limited = until.max(1);
        }
        self.pace_by_model(cx);
        // The window makes room for bursts, which the new rate makes.
        let moment = self.moment(cx);
        let congestion = &mut self.congestion;
        if let Some(bbr) = congestion.algorithm.model() {
            bbr.set_cwnd(&moment, &mut congestion.window, &sample);
        }
    }

    /// The model's pacing rate, as it is now. False when there is none.
    #[inline]
    pub(crate) fn pace_by_model(&mut self, cx: &Cx<'_>) -> bool {
        if !self.congestion.algorithm.is_model() {
            return false;
        }
        let moment = self.moment(cx);
        let (cwnd, srtt_us) = (self.congestion.window.cwnd, self.tx.rtt.srtt_us);
        let rate = self
            .congestion
            .algorithm
            .model()
            .and_then(|bbr| bbr.pacing_rate(&moment, cwnd, srtt_us));
        if let Some(rate) = rate {
            self.pacing.set_rate(rate);
        }
        rate.is_some()
    }

    /// Segments that leave back to back at least, whatever the rate.
    #[inline]
    pub(crate) fn burst_segments_min(&self, cx: &Cx<'_>) -> u32 {
        if self.congestion.algorithm.is_model() {
            burst_segments_min(self.pacing.rate)
        } else {
            u32::from(cx.config.burst_segments_min)
        }
    }

    /// What BBR knows of the path; `None` when it is not in use.
    #[must_use]
    pub fn bbr_info(&self) -> Option<BbrInfo> {
        match &self.congestion.algorithm {
            Algorithm::Bbr(bbr) => Some(bbr.info(u32::from(self.snd.mss))),
            _ => None,
        }
    }
}
