//! Round-trip estimate and retransmission timeout (RFC 6298, in Linux's form), and the least round
//! trip of the last minutes.
//!
//! In Linux's form a sample below the estimate moves the deviation with an eighth of the weight.
//! The variance term is the largest deviation of a round trip; it then decays by a quarter each
//! round, and is at least the minimum timeout. Owned by `Timers`. Values are microseconds, so that
//! they fit 32 bits.

use wire::SeqNumber;

use crate::MILLISECOND_NS;
use crate::config::Config;
use crate::pack::{Packing, Usual};

/// SRTT, RTTVAR and RTO, and the least round trip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RoundTrip {
    /// Smoothed round trip; 0: none measured.
    srtt_us: u32,
    /// Retransmission timeout, doublings included.
    rto_us: u32,
    /// Eight times the smoothed round trip.
    srtt_8us: u32,
    /// Four times the mean deviation.
    mdev_4us: u32,
    /// Largest deviation in this round, in the unit of `mdev_4us`.
    mdev_max_us: u32,
    /// The variance term of the timeout.
    var_us: u32,
    /// The round ends when this number is acknowledged.
    round_end: SeqNumber,
    least: Least,
}

/// Bounds of the retransmission timeout and its variance term.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RtoBounds {
    /// Lower bound of the variance term, ns.
    pub ns_min: u64,
    /// Upper bound of the timeout, ns.
    pub ns_max: u64,
}

/// The least value in a window of time, by the three best candidates (Linux's minmax filter).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Least {
    at_ms: [u32; 3],
    value_us: [u32; 3],
}

impl RoundTrip {
    /// The state without a sample, with `rto_ns` as the timeout.
    pub fn new(rto_ns: u64) -> Self {
        RoundTrip {
            srtt_us: 0,
            rto_us: micros(rto_ns),
            srtt_8us: 0,
            mdev_4us: 0,
            mdev_max_us: 0,
            var_us: 0,
            round_end: SeqNumber(0),
            least: Least {
                at_ms: [0; 3],
                value_us: [u32::MAX; 3],
            },
        }
    }

    /// Takes a sample (RFC 6298 2.2 and 2.3). The timeout is computed anew, which ends any backoff
    /// (Karn).
    pub fn sample(&mut self, rtt_ns: u64, una: SeqNumber, nxt: SeqNumber, bounds: &RtoBounds) {
        let rtt_us = micros(rtt_ns).min(i32::MAX as u32 / 16);
        if self.srtt_8us == 0 {
            self.first_sample(rtt_us, nxt, bounds);
        } else {
            self.next_sample(rtt_us);
            if una.gt(self.round_end) {
                if self.mdev_max_us < self.var_us {
                    self.var_us -= (self.var_us - self.mdev_max_us) / 4;
                }
                self.round_end = nxt;
                self.mdev_max_us = micros(bounds.ns_min);
            }
        }
        self.srtt_8us = self.srtt_8us.max(1);
        self.srtt_us = (self.srtt_8us / 8).max(1);
        self.recompute(bounds);
    }

    fn first_sample(&mut self, rtt_us: u32, nxt: SeqNumber, bounds: &RtoBounds) {
        self.srtt_8us = rtt_us * 8;
        self.mdev_4us = rtt_us * 2;
        self.var_us = self.mdev_4us.max(micros(bounds.ns_min));
        self.mdev_max_us = self.var_us;
        self.round_end = nxt;
    }

    fn next_sample(&mut self, rtt_us: u32) {
        // Samples have 27 bits, so these values have at most 30 and 29 bits, and their differences
        // fit an i32.
        let error = rtt_us.wrapping_sub(self.srtt_8us / 8) as i32;
        self.srtt_8us = self.srtt_8us.wrapping_add_signed(error).max(1);
        let mut change = error.unsigned_abs().wrapping_sub(self.mdev_4us / 4) as i32;
        if error < 0 && change > 0 {
            change /= 8;
        }
        self.mdev_4us = self.mdev_4us.wrapping_add_signed(change);
        self.mdev_max_us = self.mdev_max_us.max(self.mdev_4us);
        self.var_us = self.var_us.max(self.mdev_max_us);
    }

    /// Computes the timeout from the estimate. As in Linux the lower bound applies to the variance
    /// term, not to the sum.
    pub fn recompute(&mut self, bounds: &RtoBounds) {
        if self.srtt_8us == 0 {
            return;
        }
        let rto = u64::from(self.srtt_8us / 8) + u64::from(self.var_us);
        self.rto_us = rto.min(bounds.ns_max / 1000) as u32;
    }

    /// Doubles the timeout (RFC 6298 5.5).
    pub fn back_off(&mut self, bounds: &RtoBounds) {
        let rto = u64::from(self.rto_us) * 2;
        self.rto_us = rto.min(bounds.ns_max / 1000) as u32;
    }

    /// Computes the timeout after `doublings`, from the estimate, or from `initial_ns` without one.
    pub fn recompute_after(&mut self, initial_ns: u64, doublings: u8, bounds: &RtoBounds) {
        if self.srtt_8us == 0 {
            self.rto_us = micros(initial_ns);
        }
        self.recompute(bounds);
        for _ in 0..doublings {
            self.back_off(bounds);
        }
    }

    /// The timeout without its doublings; `initial_ns` if nothing was measured.
    pub fn undoubled_ns(&self, initial_ns: u64) -> u64 {
        match self.srtt_8us {
            0 => initial_ns,
            srtt_8us => (u64::from(srtt_8us / 8) + u64::from(self.var_us)) * 1000,
        }
    }

    /// Recomputes the variance term as if the first sample had been taken under these bounds.
    pub fn begin_again(&mut self, bounds: &RtoBounds) {
        self.var_us = self.mdev_4us.max(micros(bounds.ns_min));
        self.mdev_max_us = self.var_us;
        self.recompute(bounds);
    }

    /// Takes a round trip for the least one; `delayed`: a delayed ACK probably lengthened it.
    pub fn note_least(&mut self, rtt_ns: u64, delayed: bool, now_ns: u64, config: &Config) {
        let rtt_us = micros(rtt_ns);
        if delayed && rtt_us > self.min_us() {
            return;
        }
        let now_ms = (now_ns / MILLISECOND_NS) as u32;
        let window_ms = (config.min_rtt_window_ns / MILLISECOND_NS) as u32;
        // Linux's clock has a grain of 1 ms, so a round trip below it counts as 1 ms.
        let value_us = if rtt_us == 0 { 1000 } else { rtt_us };
        self.least.note(now_ms, value_us, window_ms);
    }

    /// Least round trip in the window; `u32::MAX`: none measured.
    #[inline]
    pub fn min_us(&self) -> u32 {
        self.least.value_us[0]
    }

    /// Smoothed round trip; 0: none measured.
    #[inline(always)]
    pub fn srtt_us(&self) -> u32 {
        self.srtt_us
    }

    /// The timeout, doublings included.
    #[inline(always)]
    pub fn rto_us(&self) -> u32 {
        self.rto_us
    }

    /// The timeout, doublings included, ns.
    pub fn rto_ns(&self) -> u64 {
        u64::from(self.rto_us) * 1000
    }

    /// Smoothed round trip, ns; 0: none measured.
    pub fn srtt_ns(&self) -> u64 {
        u64::from(self.srtt_us) * 1000
    }

    /// The mean deviation, as `tcp_info` shows it.
    pub fn rttvar_ns(&self) -> u64 {
        u64::from(self.mdev_4us / 4) * 1000
    }
}

impl Least {
    fn note(&mut self, now_ms: u32, value_us: u32, window_ms: u32) {
        let age = |at_ms: u32| now_ms.wrapping_sub(at_ms);
        if value_us <= self.value_us[0] || age(self.at_ms[2]) > window_ms {
            *self = Least {
                at_ms: [now_ms; 3],
                value_us: [value_us; 3],
            };
            return;
        }
        if value_us <= self.value_us[1] {
            self.set_from(1, now_ms, value_us);
        } else if value_us <= self.value_us[2] {
            self.set_from(2, now_ms, value_us);
        }
        self.age(now_ms, value_us, window_ms);
    }

    fn set_from(&mut self, first: usize, now_ms: u32, value_us: u32) {
        for i in first..3 {
            self.at_ms[i] = now_ms;
            self.value_us[i] = value_us;
        }
    }

    /// Drops the best candidate when it has left the window, and renews later candidates after a
    /// quarter and a half of the window.
    fn age(&mut self, now_ms: u32, value_us: u32, window_ms: u32) {
        let age_ms = now_ms.wrapping_sub(self.at_ms[0]);
        if age_ms > window_ms {
            self.shift(now_ms, value_us);
            if now_ms.wrapping_sub(self.at_ms[0]) > window_ms {
                self.shift(now_ms, value_us);
            }
        } else if self.at_ms[1] == self.at_ms[0] && age_ms > window_ms / 4 {
            self.set_from(1, now_ms, value_us);
        } else if self.at_ms[2] == self.at_ms[1] && age_ms > window_ms / 2 {
            self.set_from(2, now_ms, value_us);
        }
    }

    fn shift(&mut self, now_ms: u32, value_us: u32) {
        self.at_ms = [self.at_ms[1], self.at_ms[2], now_ms];
        self.value_us = [self.value_us[1], self.value_us[2], value_us];
    }
}

/// Nanoseconds in microseconds, at most `u32::MAX` (71 minutes).
pub(crate) fn micros(ns: u64) -> u32 {
    (ns / 1000).min(u64::from(u32::MAX)) as u32
}

/// Variance term of a path whose variance is below the lower bound.
const USUAL_VAR_US: u32 = 200_000;

impl RoundTrip {
    /// Packs the estimate. Most values usually follow from the samples.
    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let RoundTrip {
            srtt_us,
            rto_us,
            srtt_8us,
            mdev_4us,
            mdev_max_us,
            var_us,
            round_end,
            least,
        } = self;
        p.u32(srtt_8us, 0);
        p.u32(srtt_us, (*srtt_8us / 8).max(1));
        p.u32(mdev_4us, *srtt_8us / 4);
        p.u32(var_us, USUAL_VAR_US);
        p.u32(mdev_max_us, *var_us);
        p.u32(rto_us, (*srtt_8us / 8).wrapping_add(*var_us));
        p.seq(round_end, usual.una);
        let Least {
            at_ms: [at_1, at_2, at_3],
            value_us: [value_1, value_2, value_3],
        } = least;
        p.u32(value_1, *srtt_us);
        p.u32(value_2, *value_1);
        p.u32(value_3, *value_2);
        p.u32(at_1, usual.ms());
        p.u32(at_2, *at_1);
        p.u32(at_3, *at_2);
    }
}

#[cfg(test)]
mod tests;
