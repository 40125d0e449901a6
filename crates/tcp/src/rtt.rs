//! Round-trip estimate and retransmission timeout (RFC 6298).
//!
//! Owned by the send side. One segment per flight is timed by the clock; timestamps give the sample when
//! retransmission has made timing ambiguous. Values are kept in microseconds to stay small.

use wire::SeqNumber;

use crate::config::Config;

/// SRTT, RTTVAR and RTO, and the segment that is being timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    /// Smoothed round trip; 0 = none measured.
    pub srtt_us: u32,
    /// Mean deviation.
    pub rttvar_us: u32,
    /// Retransmission timeout, doublings included.
    pub rto_us: u32,
    /// Least sample; `u32::MAX` = none.
    pub min_us: u32,
    /// When the timed segment was sent.
    pub timed_at_ns: u64,
    /// The acknowledgment number that ends the timing.
    pub timed_end: SeqNumber,
}

impl RoundTrip {
    /// No sample yet: the timeout is `rto_ns`.
    pub fn new(rto_ns: u64) -> Self {
        RoundTrip {
            srtt_us: 0,
            rttvar_us: 0,
            rto_us: micros(rto_ns),
            min_us: u32::MAX,
            timed_at_ns: 0,
            timed_end: SeqNumber(0),
        }
    }

    /// RFC 6298 2.2 and 2.3; the timeout is computed anew, which ends any backoff (Karn).
    pub fn sample(&mut self, rtt_ns: u64, config: &Config) {
        let rtt_us = micros(rtt_ns).max(1);
        self.min_us = self.min_us.min(rtt_us);
        if self.srtt_us == 0 {
            self.srtt_us = rtt_us;
            self.rttvar_us = rtt_us / 2;
        } else {
            let deviation = self.srtt_us.abs_diff(rtt_us);
            self.rttvar_us = blend(self.rttvar_us, deviation, 4);
            self.srtt_us = blend(self.srtt_us, rtt_us, 8).max(1);
        }
        self.recompute(config);
    }

    /// The timeout from the estimate. Linux's floor: the variance term, not the sum, is at least
    /// `rto_ns_min`.
    pub fn recompute(&mut self, config: &Config) {
        if self.srtt_us == 0 {
            return;
        }
        let variance = u64::from(self.rttvar_us) * 4;
        let rto = u64::from(self.srtt_us) + variance.max(config.rto_ns_min / 1000);
        self.rto_us = rto.min(config.rto_ns_max / 1000) as u32;
    }

    /// RFC 6298 5.5: doubles the timeout.
    pub fn back_off(&mut self, config: &Config) {
        let rto = u64::from(self.rto_us) * 2;
        self.rto_us = rto.min(config.rto_ns_max / 1000) as u32;
    }

    /// The timeout.
    pub fn rto_ns(&self) -> u64 {
        u64::from(self.rto_us) * 1000
    }

    /// The smoothed round trip; 0 = none measured.
    pub fn srtt_ns(&self) -> u64 {
        u64::from(self.srtt_us) * 1000
    }
}

/// `old + (new - old) / weight`, rounded.
fn blend(old: u32, new: u32, weight: u32) -> u32 {
    let sum = u64::from(old) * u64::from(weight - 1) + u64::from(new) + u64::from(weight / 2);
    (sum / u64::from(weight)) as u32
}

/// Nanoseconds in microseconds, at most `u32::MAX` (71 min).
fn micros(ns: u64) -> u32 {
    (ns / 1000).min(u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests;
