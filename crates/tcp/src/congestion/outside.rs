//! An algorithm from outside the crate, in a connection: its index in the settings' list, and the
//! words that it keeps. This file and [`Window`](super::Window) bring its results within bounds.

use super::by_model::PathSample;
use super::newreno::NewReno;
use super::{
    AckSample, Algorithm, CaState, CongestionAlgorithm, Event, Moment, Window, WindowControl,
};
use crate::config::Config;
use crate::congestion_control::{
    CongestionControl, OutsideAlgorithm, PathReport, STATE_WORDS, State,
};
use crate::limits::{CWND_SEGMENTS_MAX, OUTSIDE_PACING_RATE_MIN, SSTHRESH_SEGMENTS_MIN};
use crate::pack::Packing;

/// Microseconds in a second.
const MICROSECONDS: u64 = 1_000_000;

/// The index of the algorithm, and the words that it keeps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outside {
    state: State,
    index: u8,
}

impl Outside {
    /// Begins with an algorithm; `None` if the settings do not know it.
    #[cold]
    pub fn new(
        algorithm: &'static OutsideAlgorithm,
        at: &Moment<'_>,
        window: &mut Window,
    ) -> Option<Self> {
        let index = at.config.outside.index_of(algorithm)?;
        let mut state = [0; STATE_WORDS];
        algorithm.control().begin(&mut state, at, window);
        Some(Outside { state, index })
    }

    /// Packs `algorithm`, or makes it one of this kind.
    pub fn pack_in(algorithm: &mut Algorithm, p: &mut impl Packing) {
        if let Algorithm::Outside(outside) = algorithm {
            return outside.pack(p);
        }
        let mut outside = Outside {
            state: [0; STATE_WORDS],
            index: 0,
        };
        outside.pack(p);
        *algorithm = Algorithm::Outside(outside);
    }

    fn pack(&mut self, p: &mut impl Packing) {
        let Outside { state, index } = self;
        p.u8(index, 0);
        for word in state {
            p.u32(word, 0);
        }
    }

    /// The algorithm as a choice.
    pub fn choice(&self, config: &Config) -> CongestionAlgorithm {
        match config.outside.at(self.index) {
            Some(algorithm) => CongestionAlgorithm::Outside(algorithm),
            None => CongestionAlgorithm::NewReno,
        }
    }

    /// True if connections with this algorithm keep to the pacing rate.
    pub fn paces(&self, config: &Config) -> bool {
        self.control(config).is_some_and(CongestionControl::paces)
    }

    /// Lets the algorithm learn from an ACK.
    pub fn learn(&mut self, at: &Moment<'_>, window: &mut Window, sample: &PathSample) {
        if let Some(control) = self.control(at.config) {
            let report = report(sample, at.mss);
            control.on_path(&mut self.state, at, window, &report);
        }
    }

    /// The algorithm's own pacing rate, if it has one. It is at least so high that no burst waits
    /// longer than a second.
    pub fn pacing_rate(&mut self, at: &Moment<'_>, window: &Window, srtt_us: u32) -> Option<u64> {
        let control = self.control(at.config)?;
        let rate = control.pacing_rate(&mut self.state, at, window, srtt_us)?;
        (rate > 0).then_some(rate.max(OUTSIDE_PACING_RATE_MIN))
    }

    fn control(&self, config: &Config) -> Option<&'static dyn CongestionControl> {
        config.outside.at(self.index).map(OutsideAlgorithm::control)
    }
}

/// Without its algorithm in the settings, a connection behaves as with NewReno.
impl WindowControl for Outside {
    fn ssthresh(&mut self, at: &Moment<'_>, window: &Window) -> u32 {
        let Some(control) = self.control(at.config) else {
            return NewReno.ssthresh(at, window);
        };
        let segments = control.ssthresh(&mut self.state, at, window);
        let most = window.cwnd.max(SSTHRESH_SEGMENTS_MIN);
        segments.clamp(SSTHRESH_SEGMENTS_MIN, most)
    }

    fn grow(&mut self, at: &Moment<'_>, window: &mut Window, ack: &AckSample) {
        match self.control(at.config) {
            Some(control) => control.grow(&mut self.state, at, window, ack),
            None => NewReno.grow(at, window, ack),
        }
    }

    fn undo_cwnd(&mut self, config: &Config, window: &Window) -> u32 {
        let Some(control) = self.control(config) else {
            return NewReno.undo_cwnd(config, window);
        };
        let segments = control.undo_cwnd(&mut self.state, window);
        segments.clamp(1, CWND_SEGMENTS_MAX)
    }

    fn on_acked(&mut self, at: &Moment<'_>, window: &mut Window, ack: &AckSample) {
        if let Some(control) = self.control(at.config) {
            control.on_acked(&mut self.state, at, window, ack);
        }
    }

    fn on_state(&mut self, at: &Moment<'_>, window: &mut Window, state: CaState) {
        if let Some(control) = self.control(at.config) {
            control.on_state(&mut self.state, at, window, state);
        }
    }

    fn on_event(&mut self, at: &Moment<'_>, window: &mut Window, event: Event) {
        if let Some(control) = self.control(at.config) {
            control.on_event(&mut self.state, at, window, event);
        }
    }
}

/// The path as the public trait shows it.
fn report(sample: &PathSample, mss: u32) -> PathReport {
    let rate = &sample.rate;
    let bytes = u64::from(rate.segments) * u64::from(mss);
    PathReport {
        delivery_rate: rate
            .is_valid()
            .then(|| bytes.saturating_mul(MICROSECONDS) / u64::from(rate.interval_us)),
        app_limited: rate.app_limited,
        delivered: sample.delivered,
        lost: sample.lost,
        prior_in_flight: sample.prior_in_flight,
        in_flight: sample.in_flight,
        rtt_us: sample.rtt_us,
        rtt_us_min: sample.rtt_us_min,
        maybe_delayed: sample.maybe_delayed,
        state: sample.state,
    }
}

#[cfg(test)]
mod tests;
