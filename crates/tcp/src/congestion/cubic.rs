//! CUBIC (RFC 9438), in Linux's arithmetic: the window is a cubic function of the time since the
//! last reduction, and at least as large as Reno's would be.
//!
//! ```text
//!   W(t) = C (t - K)^3 + W_max        C = 0.4 segments/s^3,  t in 1/1024 s
//!   K    = cbrt((W_max - cwnd) / C)   the time at which W_max is reached again
//! ```
//!
//! The function gives a target one round trip ahead. `cnt` is the number of acknowledged segments
//! for which the window grows by one segment on the way there. `hystart` or `hystart_plus` decides
//! when slow start ends.

use super::hystart::HyStart;
use super::hystart_plus::HyStartPlus;
use super::{AckSample, Algorithm, CaState, Event, Moment, Window, WindowControl};
use crate::MILLISECOND_NS;
use crate::config::{CubicSettings, SlowStart};
use crate::pack::{Packing, Usual};

/// Unit of time within the cubic function: 1/2^10 s.
const TIME_SHIFT: u32 = 10;
/// `CubicSettings::scale` (C), `beta` and `K` are fixed-point numbers with ten fractional bits.
const SCALE_SHIFT: u32 = 10;
const SCALE: u32 = 1 << SCALE_SHIFT;
/// While the window stands still, its target is computed anew after this time at the latest (as in
/// Linux), or after a round trip if that is shorter. The round trip matters where losses are more
/// frequent than this clock: Linux gains nothing between them, and RFC 9438 4.3 asks for Reno's
/// growth.
const UPDATE_MS_MAX: u32 = 1000 / 32;
/// Time after a reduction for which measured round trips are ignored, in milliseconds, because
/// queues are still draining.
const SETTLE_MS: u32 = 1000;

/// The rule that ends slow start.
#[derive(Clone, Debug, PartialEq)]
enum Exit {
    /// A loss, or the threshold.
    Standard,
    HyStart(HyStart),
    HyStartPlus(HyStartPlus),
}

impl Exit {
    fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let mut kind = match self {
            Exit::HyStart(_) => 0,
            Exit::HyStartPlus(_) => 1,
            Exit::Standard => 2,
        };
        p.u8(&mut kind, 0);
        match (kind, &mut *self) {
            (0, Exit::HyStart(exit)) => exit.pack(p, usual),
            (1, Exit::HyStartPlus(exit)) => exit.pack(p, usual),
            (0, _) => {
                let mut exit = HyStart::BLANK;
                exit.pack(p, usual);
                *self = Exit::HyStart(exit);
            }
            (1, _) => {
                let mut exit = HyStartPlus::BLANK;
                exit.pack(p, usual);
                *self = Exit::HyStartPlus(exit);
            }
            _ => *self = Exit::Standard,
        }
    }
}

/// CUBIC's state; windows in segments.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Cubic {
    /// Acknowledged segments for which the window grows by one segment.
    cnt: u32,
    /// W_max: the window at the last reduction, or less by fast convergence; 0 = none yet.
    w_max: u32,
    /// Window and time at which `cnt` was last computed.
    last_cwnd: u32,
    last_ms: u32,
    /// Plateau of the current epoch in segments, and the time from the epoch's start to it in
    /// 1/1024 s.
    origin: u32,
    k: u32,
    /// Start of the epoch, which is the first growth after a reduction; milliseconds that wrap.
    epoch_ms: Option<u32>,
    /// Acknowledged segments not yet counted in `w_est`.
    ack_cnt: u32,
    /// W_est: the window that Reno would have (RFC 9438 4.3).
    w_est: u32,
    /// Least round trip in microseconds; 0 = none.
    delay_min_us: u32,
    exit: Exit,
}

impl Cubic {
    /// The state of a new connection. Without HyStart the first threshold may come from the
    /// settings.
    pub fn new(at: &Moment<'_>, window: &mut Window) -> Self {
        let settings = &at.config.cubic;
        let exit = match settings.slow_start {
            SlowStart::Standard => Exit::Standard,
            SlowStart::HyStart => Exit::HyStart(HyStart::new(at)),
            SlowStart::HyStartPlusPlus => Exit::HyStartPlus(HyStartPlus::new(at)),
        };
        if matches!(exit, Exit::Standard) && settings.initial_ssthresh > 0 {
            window.ssthresh = settings.initial_ssthresh;
        }
        Cubic {
            cnt: 0,
            w_max: 0,
            last_cwnd: 0,
            last_ms: 0,
            origin: 0,
            k: 0,
            epoch_ms: None,
            ack_cnt: 0,
            w_est: 0,
            delay_min_us: 0,
            exit,
        }
    }

    /// True once the window grows again after a reduction, so that the function's time runs.
    #[inline]
    pub fn has_epoch(&self) -> bool {
        self.epoch_ms.is_some()
    }

    /// Packs `algorithm`, or makes it one of this kind.
    pub fn pack_in(algorithm: &mut Algorithm, p: &mut impl Packing, usual: &Usual) {
        if let Algorithm::Cubic(cubic) = algorithm {
            return cubic.pack(p, usual);
        }
        let mut cubic = Cubic {
            cnt: 0,
            w_max: 0,
            last_cwnd: 0,
            last_ms: 0,
            origin: 0,
            k: 0,
            epoch_ms: None,
            ack_cnt: 0,
            w_est: 0,
            delay_min_us: 0,
            exit: Exit::Standard,
        };
        cubic.pack(p, usual);
        *algorithm = Algorithm::Cubic(cubic);
    }

    fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let Cubic {
            cnt,
            w_max,
            last_cwnd,
            last_ms,
            origin,
            k,
            epoch_ms,
            ack_cnt,
            w_est,
            delay_min_us,
            exit,
        } = self;
        p.u32(cnt, 0);
        p.u32(w_max, 0);
        p.u32(last_cwnd, 0);
        let is_young = *last_cwnd == 0;
        p.u32(last_ms, if is_young { 0 } else { usual.ms() });
        p.u32(origin, 0);
        p.u32(k, 0);
        let mut has_epoch = epoch_ms.is_some();
        p.bool(&mut has_epoch);
        let mut begin_ms = epoch_ms.unwrap_or(usual.ms());
        p.u32(&mut begin_ms, usual.ms());
        *epoch_ms = has_epoch.then_some(begin_ms);
        p.u32(ack_cnt, 0);
        p.u32(w_est, 0);
        p.u32(delay_min_us, 0);
        exit.pack(p, usual);
    }

    /// Computes `cnt` for a window of `cwnd`, `acked` segments having been acknowledged.
    fn update(&mut self, at: &Moment<'_>, cwnd: u32, acked: u32) {
        let settings = &at.config.cubic;
        let now_ms = millis(at.now_ns);
        self.ack_cnt = self.ack_cnt.saturating_add(acked);
        let since_ms = now_ms.wrapping_sub(self.last_ms);
        if self.last_cwnd == cwnd && since_ms <= self.update_ms() {
            return;
        }
        // The function is computed once per millisecond at most; the comparison with Reno follows
        // every time.
        if self.epoch_ms.is_none() || since_ms != 0 {
            self.last_cwnd = cwnd;
            self.last_ms = now_ms;
            let epoch_ms = match self.epoch_ms {
                Some(epoch_ms) => epoch_ms,
                None => self.begin_epoch(settings, now_ms, cwnd, acked),
            };
            self.cnt = self.cubic_cnt(settings, now_ms.wrapping_sub(epoch_ms), cwnd);
        }
        if settings.tcp_friendliness {
            self.keep_up_with_reno(settings, cwnd);
        }
        // The window grows by at most one segment for two acknowledged ones, half as fast as in
        // slow start.
        self.cnt = self.cnt.max(2);
    }

    /// Time for which `cnt` stays valid while the window is the same.
    fn update_ms(&self) -> u32 {
        match self.delay_min_us {
            0 => UPDATE_MS_MAX,
            delay_us => UPDATE_MS_MAX.min(delay_us / 1000),
        }
    }

    /// Begins an epoch: growth after a reduction (RFC 9438 4.2).
    fn begin_epoch(&mut self, settings: &CubicSettings, now_ms: u32, cwnd: u32, acked: u32) -> u32 {
        self.epoch_ms = Some(now_ms);
        self.ack_cnt = acked;
        self.w_est = cwnd;
        self.origin = self.w_max.max(cwnd);
        self.k = match self.w_max.checked_sub(cwnd) {
            None | Some(0) => 0,
            Some(below) => {
                let per_segment = (1u64 << (SCALE_SHIFT + 3 * TIME_SHIFT)) / c_scaled(settings);
                cube_root(per_segment.saturating_mul(u64::from(below)))
            }
        };
        now_ms
    }

    /// Acknowledged segments for one segment of growth, so that the window reaches the cubic
    /// function's value one round trip from now.
    fn cubic_cnt(&self, settings: &CubicSettings, epoch_age_ms: u32, cwnd: u32) -> u32 {
        let t_ms = u64::from(epoch_age_ms) + u64::from(self.delay_min_us.div_ceil(1000));
        let t = (t_ms << TIME_SHIFT) / 1000;
        let k = u64::from(self.k);
        let offset = u128::from(t.abs_diff(k));
        let rise = (u128::from(c_scaled(settings)) * offset * offset * offset)
            >> (SCALE_SHIFT + 3 * TIME_SHIFT);
        let rise = u32::try_from(rise).unwrap_or(u32::MAX);
        let target = if t < k {
            self.origin.saturating_sub(rise)
        } else {
            self.origin.saturating_add(rise)
        };
        let cnt = match target.checked_sub(cwnd) {
            None | Some(0) => cwnd.saturating_mul(100),
            Some(growth) => cwnd / growth,
        };
        // Before the first loss the path's capacity is unknown, so the window grows by at least 5 %
        // per round trip.
        if self.w_max == 0 { cnt.min(20) } else { cnt }
    }

    /// Grows at least as Reno would (RFC 9438 4.3, the Reno-friendly region).
    fn keep_up_with_reno(&mut self, settings: &CubicSettings, cwnd: u32) {
        let beta = settings.beta.min(SCALE - 1);
        let segments_per_step = 8 * (SCALE + beta) / 3 / (SCALE - beta);
        let per_step = (u64::from(cwnd) * u64::from(segments_per_step) / 8).max(1);
        let per_step = u32::try_from(per_step).unwrap_or(u32::MAX);
        if self.ack_cnt > per_step {
            let steps = (self.ack_cnt - 1) / per_step;
            self.ack_cnt -= steps * per_step;
            self.w_est = self.w_est.saturating_add(steps);
        }
        if self.w_est > cwnd {
            self.cnt = self.cnt.min(cwnd / (self.w_est - cwnd));
        }
    }
}

impl Cubic {
    /// Ends slow start if the round trips ask for it.
    #[inline(never)]
    fn look_for_exit(&mut self, at: &Moment<'_>, window: &mut Window, rtt_us: u32) {
        let found = match &mut self.exit {
            Exit::Standard => false,
            Exit::HyStart(exit) => exit.is_over(at, window.cwnd, rtt_us, self.delay_min_us),
            Exit::HyStartPlus(exit) => exit.is_over(at, rtt_us),
        };
        if found {
            // The window may be one segment, but a threshold is at least two (RFC 5681 3.1).
            window.ssthresh = window.cwnd.max(2);
        }
    }
}

impl WindowControl for Cubic {
    /// Multiplicative decrease (RFC 9438 4.6) with fast convergence (4.7).
    fn ssthresh(&mut self, at: &Moment<'_>, window: &Window) -> u32 {
        let settings = &at.config.cubic;
        let beta = settings.beta.min(SCALE - 1);
        self.epoch_ms = None;
        self.w_max = if window.cwnd < self.w_max && settings.fast_convergence {
            scaled(window.cwnd, SCALE + beta) / 2
        } else {
            window.cwnd
        };
        scaled(window.cwnd, beta).max(2)
    }

    fn grow(&mut self, at: &Moment<'_>, window: &mut Window, ack: &AckSample) {
        let mut acked = ack.acked;
        if window.in_slow_start() {
            if let Exit::HyStartPlus(exit) = &mut self.exit {
                acked = exit.limit(acked);
            }
            acked = window.slow_start(acked);
            if acked == 0 {
                return;
            }
        }
        self.update(at, window.cwnd, acked);
        window.grow_linearly(self.cnt, acked);
    }

    #[inline]
    fn on_acked(&mut self, at: &Moment<'_>, window: &mut Window, ack: &AckSample) {
        let Some(rtt_ns) = ack.rtt_ns else {
            return;
        };
        let settling = self
            .epoch_ms
            .is_some_and(|epoch_ms| millis(at.now_ns).wrapping_sub(epoch_ms) < SETTLE_MS);
        if settling {
            return;
        }
        let rtt_us = u32::try_from(rtt_ns / 1000).unwrap_or(u32::MAX).max(1);
        if self.delay_min_us == 0 || rtt_us < self.delay_min_us {
            self.delay_min_us = rtt_us;
        }
        if window.in_slow_start() {
            self.look_for_exit(at, window, rtt_us);
        }
    }

    fn on_state(&mut self, at: &Moment<'_>, window: &mut Window, state: CaState) {
        if state == CaState::Loss {
            let ssthresh = window.ssthresh;
            *self = Cubic::new(at, window);
            window.ssthresh = ssthresh;
        }
    }

    fn on_event(&mut self, at: &Moment<'_>, _window: &mut Window, event: Event) {
        // Idle time does not let the window grow (RFC 9438 5.8): the epoch is moved by it.
        if let (Event::TxStart { idle_ns, .. }, Some(epoch_ms)) = (event, self.epoch_ms) {
            let now_ms = millis(at.now_ns);
            let age_ms = now_ms.wrapping_sub(epoch_ms);
            let idle_ms = millis(idle_ns).min(age_ms);
            self.epoch_ms = Some(epoch_ms.wrapping_add(idle_ms));
        }
    }
}

/// `segments` times `factor`, where the factor has ten fractional bits.
fn scaled(segments: u32, factor: u32) -> u32 {
    let product = (u64::from(segments) * u64::from(factor)) >> SCALE_SHIFT;
    u32::try_from(product).unwrap_or(u32::MAX)
}

/// C with ten fractional bits: ten times the setting, whose time unit is a round trip of 100 ms.
fn c_scaled(settings: &CubicSettings) -> u64 {
    u64::from(settings.scale.clamp(1, SCALE)) * 10
}

/// Milliseconds that wrap: Linux's jiffies at HZ=1000.
fn millis(ns: u64) -> u32 {
    (ns / MILLISECOND_NS) as u32
}

/// The integer cube root: the largest `root` with `root^3 <= value`.
fn cube_root(value: u64) -> u32 {
    let mut root = 0u64;
    // The root has 22 bits, because 2^22 > cbrt(2^64). They are decided from the top.
    for bit in (0..22).rev() {
        let larger = root | (1 << bit);
        if u128::from(larger).pow(3) <= u128::from(value) {
            root = larger;
        }
    }
    root as u32
}

#[cfg(test)]
mod tests;
