//! A connection's congestion control: the window, the algorithm that moves it, and how far it was
//! used.

use wire::SeqNumber;

use super::bbr::burst_segments_min;
use super::by_model::PathSample;
use super::usage::Usage;
use super::{
    AckSample, Algorithm, BbrInfo, CaState, CongestionAlgorithm, DctcpInfo, Event, Moment,
    SSTHRESH_INFINITE, Window, WindowControl, initial_window,
};
use crate::config::Config;
use crate::limits::CWND_SEGMENTS_MAX;
use crate::pack::{Packing, Usual};
use crate::recovery::PrrInput;

/// The congestion control state that a connection owns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Congestion {
    /// The window, in segments.
    window: Window,
    /// The algorithm that moves the window.
    algorithm: Algorithm,
    /// The use of the window.
    usage: Usage,
}

impl Congestion {
    /// The state before the first segment.
    #[inline(always)]
    pub fn new(at: &Moment<'_>, choice: CongestionAlgorithm, cwnd: u32) -> Self {
        let mut window = Window::new(cwnd);
        Congestion {
            algorithm: Algorithm::new(choice, at, &mut window),
            window,
            usage: Usage::new(at.nxt, at.now_ns),
        }
    }

    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let Congestion {
            window,
            algorithm,
            usage,
        } = self;
        window.pack(p);
        algorithm.pack(p, usual);
        usage.pack(p, usual);
    }

    /// Changes to another algorithm; the window stays.
    pub fn choose(&mut self, at: &Moment<'_>, choice: CongestionAlgorithm) {
        self.window.prior_ssthresh = 0;
        self.algorithm = Algorithm::new(choice, at, &mut self.window);
    }

    /// As the function [`initial_window`].
    pub fn initial_window(config: &Config, handshake_lost: bool) -> u32 {
        initial_window(config, handshake_lost)
    }

    /// The window.
    #[inline(always)]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Segments that may be in flight.
    #[inline(always)]
    pub fn cwnd(&self) -> u32 {
        self.window.cwnd
    }

    /// Threshold in segments: slow start below it, congestion avoidance from it on.
    #[inline(always)]
    pub fn ssthresh(&self) -> u32 {
        self.window.ssthresh
    }

    /// The algorithm's name.
    pub fn choice(&self, config: &Config) -> CongestionAlgorithm {
        self.algorithm.choice(config)
    }

    /// True if the algorithm models the path.
    #[inline(always)]
    pub fn is_model(&self) -> bool {
        self.algorithm.is_model()
    }

    /// True if the algorithm learns from every ACK and may set the pacing rate.
    #[inline(always)]
    pub fn learns(&self) -> bool {
        self.algorithm.learns()
    }

    /// True if the algorithm needs to know when a flight begins.
    #[inline]
    pub fn heeds_start(&self) -> bool {
        match &self.algorithm {
            Algorithm::Cubic(cubic) => cubic.has_epoch(),
            Algorithm::NewReno(_) | Algorithm::Dctcp(_) => false,
            Algorithm::Bbr(_) | Algorithm::Outside(_) => true,
        }
    }

    /// Takes an ACK with news while loss recovery leaves the window to the algorithm: the window
    /// grows.
    #[inline]
    pub fn on_progress(&mut self, at: &Moment<'_>, ack: &AckSample) {
        self.algorithm.on_acked(at, &mut self.window, ack);
        self.grow(at, ack);
    }

    /// Grows the window if it was in use (RFC 5681 3.1, RFC 7661). The caller has seen segments
    /// acknowledged, and the window is not being reduced.
    #[inline]
    pub fn grow(&mut self, at: &Moment<'_>, ack: &AckSample) {
        if self.usage.is_limiting(&self.window) {
            self.algorithm.grow(at, &mut self.window, ack);
        }
        self.usage.stamp_ns = at.now_ns;
    }

    /// Takes every ACK with news, before loss recovery acts on it.
    #[inline]
    pub fn on_acked(&mut self, at: &Moment<'_>, ack: &AckSample) {
        self.algorithm.on_acked(at, &mut self.window, ack);
    }

    /// Tells the algorithm that loss recovery enters `state`.
    pub fn on_state(&mut self, at: &Moment<'_>, state: CaState) {
        self.algorithm.on_state(at, &mut self.window, state);
    }

    /// Tells the algorithm of an event.
    pub fn on_event(&mut self, at: &Moment<'_>, event: Event) {
        self.algorithm.on_event(at, &mut self.window, event);
    }

    /// Notes that sending stopped with `flight` segments in flight; `limited`: the congestion
    /// window stopped it.
    #[inline(always)]
    pub fn note_flight(&mut self, una: SeqNumber, nxt: SeqNumber, flight: u32, limited: bool) {
        self.usage.on_flight(una, nxt, flight, limited);
    }

    /// Notes whether the window is in full use now. True if it was not for `rto_ns`, so it should
    /// decay.
    #[inline(always)]
    pub fn is_unused_for(&mut self, flight: u32, now_ns: u64, rto_ns: u64) -> bool {
        self.usage
            .is_unused_for(&self.window, flight, now_ns, rto_ns)
    }

    /// Takes back half of the window that was unused for a timeout ([`Usage::decay`]).
    pub fn decay(&mut self, initial: u32, remembered: u32, now_ns: u64) {
        self.usage
            .decay(&mut self.window, initial, remembered, now_ns);
    }

    /// Counts the window as used at `now_ns`.
    pub fn note_use(&mut self, now_ns: u64) {
        self.usage.stamp_ns = now_ns;
    }

    /// Begins a reduction: the algorithm sets the threshold, and the window follows it ACK by ACK.
    pub fn begin_reduction(&mut self, at: &Moment<'_>) {
        self.window.cwnd_cnt = 0;
        self.window.prior_cwnd = self.window.cwnd;
        self.window.ssthresh = self.algorithm.ssthresh(at, &self.window);
    }

    /// Proportional rate reduction (RFC 6937): the window follows the amount delivered.
    pub fn reduce(&mut self, input: &PrrInput) {
        let PrrInput {
            delivered,
            prr_delivered,
            prr_out,
            in_flight,
            may_catch_up,
        } = *input;
        let (in_flight, sent) = (i64::from(in_flight), i64::from(prr_out));
        let room = i64::from(self.window.ssthresh) - in_flight;
        let mut send = if room < 0 {
            let share = u64::from(self.window.ssthresh) * u64::from(prr_delivered);
            share.div_ceil(u64::from(self.window.prior_cwnd.max(1))) as i64 - sent
        } else {
            // Packet conservation. With progress and no further loss, slow start up to the
            // threshold.
            let owed = i64::from(prr_delivered) - sent;
            let bound = owed.max(i64::from(delivered)) + i64::from(may_catch_up);
            bound.min(room)
        };
        // The fast retransmit itself always leaves.
        send = send.max(i64::from(prr_out == 0));
        self.window.cwnd = (in_flight + send).clamp(0, i64::from(CWND_SEGMENTS_MAX)) as u32;
    }

    /// True during a reduction that has saved the window before it.
    pub fn is_reducible(&self) -> bool {
        self.window.prior_cwnd != 0
    }

    /// Completes the reduction: sets the window to the threshold.
    pub fn end_reduction(&mut self, now_ns: u64) {
        if self.window.ssthresh < SSTHRESH_INFINITE {
            self.window.cwnd = self.window.ssthresh.max(1);
            self.usage.stamp_ns = now_ns;
        }
    }

    /// Begins the Loss state after progress: the algorithm sets the threshold; `prior_ssthresh` is
    /// what an undo restores.
    pub fn begin_loss(&mut self, at: &Moment<'_>, prior_ssthresh: u32) {
        self.window.prior_ssthresh = prior_ssthresh;
        self.window.prior_cwnd = self.window.cwnd;
        self.window.ssthresh = self.algorithm.ssthresh(at, &self.window);
        self.on_event(at, Event::Loss);
    }

    /// Sets the window after a timeout: the `in_flight` segments and one more.
    pub fn restart(&mut self, in_flight: u32, now_ns: u64) {
        self.window.cwnd = in_flight + 1;
        self.window.cwnd_cnt = 0;
        self.usage.stamp_ns = now_ns;
    }

    /// Saves the threshold that an undo of the current reduction restores.
    pub fn remember_threshold(&mut self, ssthresh: u32) {
        self.window.prior_ssthresh = ssthresh;
    }

    /// Forgets the saved threshold, so the reduction cannot be undone.
    pub fn forget_threshold(&mut self) {
        self.window.prior_ssthresh = 0;
    }

    /// Sets the threshold after losses that congestion did not cause. There is nothing to undo.
    pub fn hold_threshold(&mut self, ssthresh: u32) {
        self.window.ssthresh = ssthresh;
        self.window.prior_ssthresh = 0;
    }

    /// Restores window and threshold to their values before the reduction. True if the threshold
    /// rose.
    pub fn undo(&mut self, config: &Config, now_ns: u64) -> bool {
        let prior_ssthresh = self.window.prior_ssthresh;
        let mut has_risen = false;
        if prior_ssthresh != 0 {
            self.window.cwnd = self.algorithm.undo_cwnd(config, &self.window);
            has_risen = prior_ssthresh > self.window.ssthresh;
            self.window.ssthresh = self.window.ssthresh.max(prior_ssthresh);
        }
        self.usage.stamp_ns = now_ns;
        has_risen
    }

    /// Takes one segment off the window while a probe of the path's MTU is in flight, because the
    /// probe counts as two segments.
    pub fn lend_segment(&mut self) {
        self.window.cwnd -= 1;
    }

    /// Gives that segment back after the probe was lost.
    pub fn return_segment(&mut self) {
        self.window.cwnd += 1;
    }

    /// Keeps the window's size in bytes, the lent segment included, when the segment size changes
    /// from `before` to `mss` bytes.
    pub fn resize_segments(&mut self, before: u16, mss: u16) {
        let bytes = u64::from(self.window.cwnd + 1) * u64::from(before);
        let segments = bytes / u64::from(mss.max(1));
        self.window.cwnd = segments.clamp(1, u64::from(CWND_SEGMENTS_MAX)) as u32;
    }

    /// Shrinks the window after an idle time: halves it for each timeout passed, down to the
    /// initial window (RFC 5681 4.1, in Linux's softer form).
    pub fn on_idle(&mut self, at: &Moment<'_>, idle_ns: u64, rto_ns: u64) {
        self.algorithm
            .on_event(at, &mut self.window, Event::CwndRestart);
        let initial = Self::initial_window(at.config, false);
        let floor = initial.min(self.window.cwnd);
        self.window.ssthresh = self.current_ssthresh();
        let mut left = idle_ns;
        while left > rto_ns && self.window.cwnd > floor {
            self.window.cwnd /= 2;
            left -= rto_ns.max(1);
        }
        self.window.cwnd = self.window.cwnd.max(floor);
        self.usage.restart(at.now_ns);
    }

    /// The threshold that remembers a window which is given up without loss. Not meant for a window
    /// that is being reduced.
    pub fn current_ssthresh(&self) -> u32 {
        let cwnd = self.window.cwnd;
        self.window.ssthresh.max(cwnd / 2 + cwnd / 4)
    }
}

/// Algorithms that model the path, or that come from outside.
impl Congestion {
    /// Starts the model with the path's known values. Returns the first rate, or `None` without a
    /// model.
    pub fn begin_model(&mut self, mss: u32, min_rtt_us: u32, srtt_us: u32) -> Option<u64> {
        let cwnd = self.window.cwnd;
        let bbr = self.algorithm.model()?;
        Some(bbr.begin(mss, cwnd, min_rtt_us, srtt_us))
    }

    /// True if an algorithm from outside asks for pacing (a model asks by itself).
    pub fn paces(&mut self, config: &Config) -> bool {
        let outside = self.algorithm.outside();
        outside.is_some_and(|outside| outside.paces(config))
    }

    /// Lets the algorithm learn from an ACK. True if the next delivery rates are to count as
    /// limited by the application.
    pub fn learn(&mut self, at: &Moment<'_>, sample: &PathSample) -> bool {
        match &mut self.algorithm {
            Algorithm::Bbr(bbr) => return bbr.update(at, &mut self.window, sample),
            Algorithm::Outside(outside) => outside.learn(at, &mut self.window, sample),
            Algorithm::NewReno(_) | Algorithm::Cubic(_) | Algorithm::Dctcp(_) => {}
        }
        false
    }

    /// Sets the window by the model.
    pub fn size_by_model(&mut self, at: &Moment<'_>, sample: &PathSample) {
        if let Some(bbr) = self.algorithm.model() {
            bbr.set_cwnd(at, &mut self.window, sample);
        }
    }

    /// The algorithm's own pacing rate, if it has one.
    pub fn rate_by_algorithm(&mut self, at: &Moment<'_>, srtt_us: u32) -> Option<u64> {
        match &mut self.algorithm {
            Algorithm::Bbr(bbr) => bbr.pacing_rate(at, self.window.cwnd, srtt_us),
            Algorithm::Outside(outside) => outside.pacing_rate(at, &self.window, srtt_us),
            Algorithm::NewReno(_) | Algorithm::Cubic(_) | Algorithm::Dctcp(_) => None,
        }
    }

    /// Segments that leave back to back at least, at `rate` bytes per second.
    #[inline]
    pub fn burst_segments_min(&self, config: &Config, rate: u64) -> u32 {
        match self.is_model() {
            true => burst_segments_min(rate),
            false => u32::from(config.burst_segments_min),
        }
    }

    /// BBR's view of the path; `None` when BBR is not in use.
    pub fn bbr_info(&self, mss: u32) -> Option<BbrInfo> {
        match &self.algorithm {
            Algorithm::Bbr(bbr) => Some(bbr.info(mss)),
            _ => None,
        }
    }

    /// DCTCP's view of the path; `None` when DCTCP is not in use.
    pub fn dctcp_info(&self, mss: u32, delivered: u32, delivered_ce: u32) -> Option<DctcpInfo> {
        match &self.algorithm {
            Algorithm::Dctcp(dctcp) => Some(dctcp.info(mss, delivered, delivered_ce)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
