//! BBR version 1, as in Linux: window and rate come from a model of the path, not from losses.
//!
//! ```text
//!   BtlBw  = the largest delivery rate of the last 10 round trips      rate   = pacing_gain × BtlBw
//!   RTprop = the least round trip of the last 10 s                     window = cwnd_gain × BtlBw × RTprop
//!
//!   STARTUP ──rate grows no more──► DRAIN ──queue is gone──► PROBE_BW   gains 5/4, 3/4, 1, 1, 1, 1, 1, 1
//!     gains 2.89                     gain 1/2.89               │ ▲
//!      ▲                                RTprop is 10 s old     ▼ │      200 ms with four segments in flight
//!      └─────────── the pipe was never full ────────────── PROBE_RTT
//! ```
//!
//! The names are those of draft-cardwell-iccrg-bbr-congestion-control. [`rate`] holds rates and
//! BtlBw's filter, [`long_term`] finds policers, and [`aggregation`] measures how many ACKs arrive
//! in bunches. Samples come from `recovery::rate` through `by_model`, which gives window, rate and
//! the application-limited marks to the connection. Loss recovery does not shrink the window here;
//! it only reports its states.

use super::by_model::PathSample;
use super::{
    AckSample, CaState, Event, Moment, SSTHRESH_INFINITE, Window, WindowControl, initial_window,
};
use crate::MILLISECOND_NS;
use crate::config::Config;
use crate::limits::CWND_SEGMENTS_MAX;

use aggregation::Aggregation;
use long_term::{AckFacts, LongTerm};
use phase::Mode;
use rate::{
    GAIN_ONE, GAIN_SHIFT, MaxFilter, RATE_SHIFT, Rate, paced_bytes_per_second, rate_of, segments_in,
};

mod aggregation;
mod long_term;
mod phase;
mod rate;

/// Time after which RTprop is measured anew.
const RT_PROP_MS: u32 = 10_000;
/// Shortest time for which PROBE_RTT keeps the pipe nearly empty.
const PROBE_RTT_MS: u32 = 200;
/// Least window in segments. It keeps ACKs coming from a receiver that acknowledges every second
/// segment.
const CWND_MIN: u32 = 4;
/// STARTUP goes on as long as BtlBw grows by a quarter. The pipe is full after `FULL_ROUNDS` rounds
/// without that growth.
const FULL_GROWTH: u64 = (GAIN_ONE * 5 / 4) as u64;
const FULL_ROUNDS: u8 = 3;
/// Longest bunch of ACKs that the window makes room for, in microseconds at BtlBw.
const EXCESS_US_MAX: u32 = 100_000;
/// Round trip assumed before any was measured, for the first rate.
const NOMINAL_RTT_US: u32 = 1_000;
/// Pacing rate in bytes per second (1.2 Mbit/s) below which segments leave one by one.
const SINGLES_BELOW: u64 = 150_000;
/// Largest burst that the window makes room for, in segments and in bytes.
const QUANTUM_MAX: u32 = 127;
const QUANTUM_BYTES_MAX: u64 = 65_215;

/// Flags of [`Bbr`].
mod flag {
    /// The first round of recovery: as many segments are sent as are delivered.
    pub const PACKET_CONSERVATION: u8 = 1;
    /// The current ACK began a round.
    pub const ROUND_START: u8 = 1 << 1;
    /// Sending began again after a pause, and none of the new data was acknowledged yet.
    pub const IDLE_RESTART: u8 = 1 << 2;
    /// STARTUP has filled the pipe.
    pub const FILLED_PIPE: u8 = 1 << 3;
    /// A measured round trip was known when the rate was set.
    pub const RTT_SEEN: u8 = 1 << 4;
    /// The state at the last ACK: Recovery for this flag, Loss for the next.
    pub const IN_RECOVERY: u8 = 1 << 5;
    pub const IN_LOSS: u8 = 1 << 6;
}

/// The model of the path, and the state machine that probes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bbr {
    btl_bw: MaxFilter,
    long_term: LongTerm,
    aggregation: Aggregation,
    mode: Mode,
    /// RTprop; `u32::MAX` = none measured.
    rt_prop_us: u32,
    /// Time at which `rt_prop_us` was measured, in milliseconds that wrap.
    rt_prop_ms: u32,
    /// Value of `delivered` that ends the round: the ACK of a segment that was sent when that many
    /// were delivered.
    next_round_delivered: u32,
    /// The window before recovery, or PROBE_RTT, cut it.
    prior_cwnd: u32,
    /// BtlBw when it last grew in STARTUP, and the number of rounds since.
    full_bw: Rate,
    full_rounds: u8,
    /// Bits of [`flag`].
    flags: u8,
}

/// BBR's part of `TCP_CC_INFO`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BbrInfo {
    /// BtlBw, or a policer's rate, in bytes per second.
    pub bandwidth: u64,
    /// RTprop in microseconds; `u32::MAX` = none measured.
    pub min_rtt_us: u32,
    /// Gain of the pacing rate, in 1/256.
    pub pacing_gain: u32,
    /// Gain of the window, in 1/256.
    pub cwnd_gain: u32,
}

impl Bbr {
    /// The state in STARTUP. [`begin`](Self::begin) follows when the path is known.
    pub fn new(at: &Moment<'_>, window: &mut Window) -> Self {
        window.ssthresh = SSTHRESH_INFINITE;
        Bbr {
            btl_bw: MaxFilter::EMPTY,
            long_term: LongTerm::WAITING,
            aggregation: Aggregation::new(micros(at.now_ns)),
            mode: Mode::Startup,
            rt_prop_us: u32::MAX,
            rt_prop_ms: millis(at.now_ns),
            next_round_delivered: at.delivered,
            prior_cwnd: 0,
            full_bw: 0,
            full_rounds: 0,
            flags: 0,
        }
    }

    /// Begins with the path's round trips known so far: the least, and the smoothed one (0: none).
    /// Returns the first pacing rate.
    pub fn begin(&mut self, mss: u32, cwnd: u32, min_rtt_us: u32, srtt_us: u32) -> u64 {
        self.rt_prop_us = min_rtt_us;
        self.put(flag::RTT_SEEN, srtt_us != 0);
        let rtt_us = if srtt_us == 0 {
            NOMINAL_RTT_US
        } else {
            srtt_us
        };
        paced_bytes_per_second(rate_of(cwnd, rtt_us), phase::HIGH_GAIN, mss)
    }

    /// Takes an ACK with news: updates the model and the state that follows from it. True if data
    /// in flight now says nothing about the path's capacity.
    pub fn update(&mut self, at: &Moment<'_>, window: &mut Window, ack: &PathSample) -> bool {
        self.update_btl_bw(at, ack);
        self.update_aggregation(at, window, ack);
        self.advance_phase(at, ack);
        self.check_filled_pipe(ack);
        self.check_drained(at, window, ack);
        self.update_rt_prop(at, window, ack)
    }

    /// The rate estimate: a policer's, or BtlBw.
    #[inline]
    fn bandwidth(&self) -> Rate {
        self.long_term.rate().unwrap_or(self.btl_bw.max())
    }

    /// Gain of the pacing rate; never above 1 while a policer's rate is in use.
    fn pacing_gain(&self) -> u32 {
        if self.long_term.rate().is_some() && self.mode.is_probe_bw() {
            GAIN_ONE
        } else {
            self.mode.pacing_gain()
        }
    }

    /// The pacing rate in bytes per second after an ACK or a pause. `None` before `begin`.
    pub fn pacing_rate(&mut self, at: &Moment<'_>, cwnd: u32, srtt_us: u32) -> Option<u64> {
        let mut current = at.pacing_rate;
        if current == 0 && self.rt_prop_us == u32::MAX && self.btl_bw.max() == 0 {
            return None;
        }
        if srtt_us != 0 && !self.has(flag::RTT_SEEN) {
            current = self.begin(at.mss, cwnd, self.rt_prop_us, srtt_us);
        }
        // After a pause there is no queue to drain, so no probe is needed at once.
        let restarts = self.has(flag::IDLE_RESTART) && self.mode.is_probe_bw();
        let gain = if restarts {
            GAIN_ONE
        } else {
            self.pacing_gain()
        };
        let rate = paced_bytes_per_second(self.bandwidth(), gain, at.mss);
        // A smaller rate is set only once the pipe is full: before that, samples are low because
        // ACKs are few.
        if self.has(flag::FILLED_PIPE) || rate > current {
            current = rate;
        }
        Some(current)
    }

    /// BtlBw, RTprop and gains as `TCP_CC_INFO` shows them.
    pub fn info(&self, mss: u32) -> BbrInfo {
        let bytes = u128::from(self.bandwidth()) * u128::from(mss) * 1_000_000;
        BbrInfo {
            bandwidth: u64::try_from(bytes >> RATE_SHIFT).unwrap_or(u64::MAX),
            min_rtt_us: self.rt_prop_us,
            pacing_gain: self.pacing_gain(),
            cwnd_gain: self.mode.cwnd_gain(),
        }
    }

    /// Counts rounds, looks for policers, and adds the ACK's rate to BtlBw's filter.
    fn update_btl_bw(&mut self, at: &Moment<'_>, ack: &PathSample) {
        self.put(flag::ROUND_START, false);
        if !ack.rate.is_valid() {
            return;
        }
        let since = ack
            .rate
            .prior_delivered
            .wrapping_sub(self.next_round_delivered);
        if since as i32 >= 0 {
            self.next_round_delivered = at.delivered;
            self.btl_bw.round = self.btl_bw.round.wrapping_add(1);
            self.put(flag::ROUND_START, true);
            self.put(flag::PACKET_CONSERVATION, false);
        }
        self.look_for_policer(at, ack.lost > 0, ack.rate.app_limited);
        let rate = rate_of(ack.rate.segments, ack.rate.interval_us);
        // A sample that the application limited says nothing about the path, unless it exceeds the
        // known rate.
        if !ack.rate.app_limited || rate >= self.btl_bw.max() {
            self.btl_bw.note(rate);
        }
    }

    fn look_for_policer(&mut self, at: &Moment<'_>, lost: bool, app_limited: bool) {
        let facts = AckFacts {
            round_start: self.has(flag::ROUND_START),
            lost,
            app_limited,
            cycling: self.mode.is_probe_bw(),
        };
        if self.long_term.sample(at, facts) {
            self.mode = Mode::probe_bw(at);
        }
    }

    fn update_aggregation(&mut self, at: &Moment<'_>, window: &Window, ack: &PathSample) {
        if ack.delivered == 0 || !ack.rate.is_valid() {
            return;
        }
        if self.has(flag::ROUND_START) {
            self.aggregation.on_round();
        }
        let (delivered_us, rate) = (micros(at.delivered_ns), self.bandwidth());
        self.aggregation
            .on_ack(delivered_us, ack.delivered, rate, window.cwnd);
    }

    /// PROBE_BW: advances to the next gain after RTprop, once the current gain has had its effect.
    fn advance_phase(&mut self, at: &Moment<'_>, ack: &PathSample) {
        let Mode::ProbeBw { since_us, .. } = self.mode else {
            return;
        };
        let now_us = micros(at.delivered_ns);
        let is_long = now_us.wrapping_sub(since_us) > self.rt_prop_us;
        let gain = self.pacing_gain();
        let over = match gain {
            GAIN_ONE => is_long,
            // A probe goes on until the pipe holds that much, or until a loss shows that it cannot.
            more if more > GAIN_ONE => {
                is_long
                    && (ack.lost > 0
                        || self.in_network(at, ack.prior_in_flight, ack) >= self.inflight(at, gain))
            }
            // Draining ends early when the queue is gone.
            _ => {
                is_long
                    || self.in_network(at, ack.prior_in_flight, ack) <= self.inflight(at, GAIN_ONE)
            }
        };
        if over {
            self.mode.advance(now_us);
        }
    }

    /// STARTUP: finds out whether the pipe has been full for three rounds.
    fn check_filled_pipe(&mut self, ack: &PathSample) {
        let looks = self.has(flag::ROUND_START) && !ack.rate.app_limited;
        if self.has(flag::FILLED_PIPE) || !looks {
            return;
        }
        let grown = (u64::from(self.full_bw) * FULL_GROWTH) >> GAIN_SHIFT;
        if u64::from(self.btl_bw.max()) >= grown {
            self.full_bw = self.btl_bw.max();
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.put(flag::FILLED_PIPE, self.full_rounds >= FULL_ROUNDS);
    }

    /// Moves from STARTUP to DRAIN, and from DRAIN to PROBE_BW.
    fn check_drained(&mut self, at: &Moment<'_>, window: &mut Window, ack: &PathSample) {
        if self.mode == Mode::Startup && self.has(flag::FILLED_PIPE) {
            self.mode = Mode::Drain;
            window.ssthresh = self.inflight(at, GAIN_ONE);
        }
        if self.mode == Mode::Drain
            && self.in_network(at, ack.in_flight, ack) <= self.inflight(at, GAIN_ONE)
        {
            self.mode = Mode::probe_bw(at);
        }
    }

    /// Updates RTprop, and enters PROBE_RTT when it is old. True in PROBE_RTT, where low rates are
    /// caused by the sender itself.
    fn update_rt_prop(&mut self, at: &Moment<'_>, window: &mut Window, ack: &PathSample) -> bool {
        let now_ms = millis(at.now_ns);
        let expired = now_ms.wrapping_sub(self.rt_prop_ms) > RT_PROP_MS;
        if let Some(rtt_us) = ack.rtt_us
            && (rtt_us < self.rt_prop_us || (expired && !ack.maybe_delayed))
        {
            self.rt_prop_us = rtt_us;
            self.rt_prop_ms = now_ms;
        }
        let is_probing = matches!(self.mode, Mode::ProbeRtt { .. });
        if expired && !is_probing && !self.has(flag::IDLE_RESTART) {
            // The mode changes before the window is saved, as in Linux: then a window that recovery
            // has cut does not replace a larger saved one.
            self.mode = Mode::PROBE_RTT;
            self.save_cwnd(window);
        }
        let limits = matches!(self.mode, Mode::ProbeRtt { .. });
        if limits {
            self.probe_rt_prop(at, window, ack);
        }
        if ack.rate.segments > 0 {
            self.put(flag::IDLE_RESTART, false);
        }
        limits
    }

    /// PROBE_RTT: waits 200 ms and one round from the moment at which the pipe is nearly empty.
    fn probe_rt_prop(&mut self, at: &Moment<'_>, window: &mut Window, ack: &PathSample) {
        let round_start = self.has(flag::ROUND_START);
        let Mode::ProbeRtt {
            round_done,
            since_ms,
        } = &mut self.mode
        else {
            return;
        };
        if *since_ms != 0 {
            *round_done |= round_start;
            if *round_done {
                self.end_probe_rtt(at, window);
            }
        } else if ack.in_flight <= CWND_MIN {
            *since_ms = millis(at.now_ns).max(1);
            *round_done = false;
            self.next_round_delivered = at.delivered;
        }
    }

    /// Restores the former window once PROBE_RTT's time is over.
    fn end_probe_rtt(&mut self, at: &Moment<'_>, window: &mut Window) {
        let Mode::ProbeRtt { since_ms, .. } = self.mode else {
            return;
        };
        let now_ms = millis(at.now_ns);
        if since_ms == 0 || now_ms.wrapping_sub(since_ms) <= PROBE_RTT_MS {
            return;
        }
        self.rt_prop_ms = now_ms;
        window.cwnd = window.cwnd.max(self.prior_cwnd);
        self.mode = if self.has(flag::FILLED_PIPE) {
            Mode::probe_bw(at)
        } else {
            Mode::Startup
        };
    }

    /// Sets the window after an ACK. It rises to the model's target by the amount delivered, and
    /// falls at once.
    pub fn set_cwnd(&mut self, at: &Moment<'_>, window: &mut Window, ack: &PathSample) {
        if ack.delivered > 0 {
            window.cwnd = self.cwnd_after(at, window.cwnd, ack);
        }
        window.cwnd = window.cwnd.clamp(1, CWND_SEGMENTS_MAX);
        if matches!(self.mode, Mode::ProbeRtt { .. }) {
            window.cwnd = window.cwnd.min(CWND_MIN);
        }
    }

    fn cwnd_after(&mut self, at: &Moment<'_>, cwnd: u32, ack: &PathSample) -> u32 {
        let cwnd = self.cwnd_in_recovery(at, cwnd, ack);
        if self.has(flag::PACKET_CONSERVATION) {
            return cwnd.max(ack.in_flight.saturating_add(ack.delivered));
        }
        let target = self.bdp(at, self.bandwidth(), self.mode.cwnd_gain());
        let target = self.with_quanta(at, target.saturating_add(self.excess()));
        let grown = cwnd.saturating_add(ack.delivered);
        let cwnd = if self.has(flag::FILLED_PIPE) {
            grown.min(target)
        } else if cwnd < target || at.delivered < initial_window(at.config, false) {
            grown
        } else {
            cwnd
        };
        cwnd.max(CWND_MIN)
    }

    /// The window during recovery, which begins with packet conservation and ends at the former
    /// window.
    fn cwnd_in_recovery(&mut self, at: &Moment<'_>, cwnd: u32, ack: &PathSample) -> u32 {
        let mut cwnd = cwnd.saturating_sub(ack.lost).max(1);
        let was_in = self.flags & (flag::IN_RECOVERY | flag::IN_LOSS);
        let is_in = match ack.state {
            CaState::Recovery => flag::IN_RECOVERY,
            CaState::Loss => flag::IN_LOSS,
            _ => 0,
        };
        if is_in == flag::IN_RECOVERY && was_in != flag::IN_RECOVERY {
            self.put(flag::PACKET_CONSERVATION, true);
            self.next_round_delivered = at.delivered;
            cwnd = ack.in_flight.saturating_add(ack.delivered);
        } else if is_in == 0 && was_in != 0 {
            self.put(flag::PACKET_CONSERVATION, false);
            cwnd = cwnd.max(self.prior_cwnd);
        }
        self.flags = (self.flags & !(flag::IN_RECOVERY | flag::IN_LOSS)) | is_in;
        cwnd
    }

    /// Saves the window, unless recovery or PROBE_RTT has cut it; then the larger value is saved.
    fn save_cwnd(&mut self, window: &Window) {
        let cut = self.flags & (flag::IN_RECOVERY | flag::IN_LOSS) != 0
            || matches!(self.mode, Mode::ProbeRtt { .. });
        self.prior_cwnd = if cut {
            self.prior_cwnd.max(window.cwnd)
        } else {
            window.cwnd
        };
    }

    /// `gain` × `rate` × RTprop in segments, rounded up.
    fn bdp(&self, at: &Moment<'_>, rate: Rate, gain: u32) -> u32 {
        if self.rt_prop_us == u32::MAX {
            return initial_window(at.config, false);
        }
        let bdp = u128::from(rate) * u128::from(self.rt_prop_us) * u128::from(gain);
        let segments = (bdp >> GAIN_SHIFT).div_ceil(1 << RATE_SHIFT);
        u32::try_from(segments).unwrap_or(CWND_SEGMENTS_MAX)
    }

    /// Segments in flight at `gain` × BtlBw.
    fn inflight(&self, at: &Moment<'_>, gain: u32) -> u32 {
        self.with_quanta(at, self.bdp(at, self.btl_bw.max(), gain))
    }

    /// Adds room to `segments`: for bursts at both ends, rounded up to an even number because of
    /// delayed ACKs, and two more while probing, which short paths need.
    fn with_quanta(&self, at: &Moment<'_>, segments: u32) -> u32 {
        let segments = segments.saturating_add(3 * send_quantum(at));
        let even = segments.saturating_add(1) & !1;
        let probes = matches!(self.mode, Mode::ProbeBw { phase: 0, .. });
        even.saturating_add(if probes { 2 } else { 0 })
    }

    /// Segments for ACKs that arrive in bunches.
    fn excess(&self) -> u32 {
        if !self.has(flag::FILLED_PIPE) {
            return 0;
        }
        let most = segments_in(self.bandwidth(), EXCESS_US_MAX);
        self.aggregation.excess().min(most)
    }

    /// The part of `in_flight` that is still in the network when the next burst leaves. While
    /// probing, the burst is included.
    fn in_network(&self, at: &Moment<'_>, in_flight: u32, ack: &PathSample) -> u32 {
        let wait_us = micros(ack.departure_ns.saturating_sub(at.now_ns));
        let burst = if self.pacing_gain() > GAIN_ONE {
            send_quantum(at)
        } else {
            0
        };
        (in_flight + burst).saturating_sub(segments_in(self.bandwidth(), wait_us))
    }

    #[inline]
    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    fn put(&mut self, flag: u8, on: bool) {
        if on {
            self.flags |= flag;
        } else {
            self.flags &= !flag;
        }
    }
}

impl WindowControl for Bbr {
    /// Saves the window; losses do not change the threshold.
    fn ssthresh(&mut self, _at: &Moment<'_>, window: &Window) -> u32 {
        self.save_cwnd(window);
        window.ssthresh
    }

    /// Never called: the window follows the model.
    fn grow(&mut self, _at: &Moment<'_>, _window: &mut Window, _ack: &AckSample) {}

    /// Reverts a spurious loss: it proved neither a full pipe nor a policer.
    fn undo_cwnd(&mut self, _config: &Config, window: &Window) -> u32 {
        self.full_bw = 0;
        self.full_rounds = 0;
        self.long_term = LongTerm::WAITING;
        window.cwnd
    }

    /// A timeout ends the round.
    fn on_state(&mut self, at: &Moment<'_>, _window: &mut Window, state: CaState) {
        if state == CaState::Loss {
            self.put(flag::IN_RECOVERY, false);
            self.put(flag::IN_LOSS | flag::ROUND_START, true);
            self.full_bw = 0;
            self.look_for_policer(at, true, false);
        }
    }

    fn on_event(&mut self, at: &Moment<'_>, window: &mut Window, event: Event) {
        if let Event::TxStart {
            app_limited: true, ..
        } = event
        {
            self.put(flag::IDLE_RESTART, true);
            self.aggregation.restart(micros(at.now_ns));
            self.end_probe_rtt(at, window);
        }
    }
}

/// Segments that leave back to back at the present rate: a millisecond's worth, which Linux hands
/// to its device at once.
fn send_quantum(at: &Moment<'_>) -> u32 {
    let bytes = (at.pacing_rate >> 10).min(QUANTUM_BYTES_MAX);
    let segments = (bytes / u64::from(at.mss.max(1))) as u32;
    segments
        .max(burst_segments_min(at.pacing_rate))
        .min(QUANTUM_MAX)
}

/// Segments that leave back to back at least: two, because of delayed ACKs, or one on a slow path.
pub(crate) fn burst_segments_min(pacing_rate: u64) -> u32 {
    if pacing_rate < SINGLES_BELOW { 1 } else { 2 }
}

/// Microseconds; they wrap after 71 minutes.
fn micros(ns: u64) -> u32 {
    (ns / 1000) as u32
}

/// Milliseconds; they wrap after 49 days.
fn millis(ns: u64) -> u32 {
    (ns / MILLISECOND_NS) as u32
}

#[cfg(test)]
mod tests;
