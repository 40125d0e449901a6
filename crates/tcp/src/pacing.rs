//! Pacing: segments leave at a rate, not in bursts of a whole window.
//!
//! ```text
//!   rate = ratio × cwnd × MSS / SRTT       ratio: 200 % in early slow start, 120 % after; or the algorithm's own
//!
//!   burst (`burst`) ──► next departure = now + bytes / rate ──► data waits, ACKs do not
//! ```
//!
//! The rate is computed with every ACK (HyStart and `tcp_info` use it). Segments keep to it only
//! when the settings, the algorithm or SO_MAX_PACING_RATE ask for that, as in Linux. Data that
//! waits sets the deadline `Timers::departure_ns`; control segments and pure ACKs never wait.

use crate::config::Config;
use crate::congestion::Window;
use crate::pack::Packing;
use crate::timers::NEVER_NS;
use crate::{MILLISECOND_NS, SECOND_NS};

/// Value of a rate without a limit.
pub(crate) const RATE_INFINITE: u64 = u64::MAX;
/// Microseconds in a second.
const MICROSECONDS: u64 = 1_000_000;
/// Longest delay of a caller that pacing makes up for. A longer one is not made up for, because a
/// burst must not outgrow the queues on its way.
const LATE_NS_MAX: u64 = 5 * MILLISECOND_NS;
/// The first segments of a connection leave without pacing, for the sake of short exchanges. Pacing
/// begins with the burst that brings their number to this one.
const FREE_SEGMENTS: u32 = 10;

/// A connection's pacing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pacing {
    /// Bytes per second; [`RATE_INFINITE`] = not known yet.
    rate: u64,
    /// SO_MAX_PACING_RATE in bytes per second; [`RATE_INFINITE`] = none.
    rate_max: u64,
    /// Time at which the next burst may leave.
    next_ns: u64,
    /// Start of the current burst, and the number of segments that it may still send.
    burst_ns: u64,
    burst_left: u16,
    /// Time by which the current burst came after `next_ns`, as far as its segments have not made
    /// up for it.
    late_ns: u32,
    /// True if segments keep to the rate.
    on: bool,
    /// True if data has waited for its departure without interruption. If that data leaves late,
    /// the caller's timer was late.
    waited: bool,
}

/// Position of a leaving segment in its burst.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Burst {
    /// True for the first segment of the burst.
    pub begins: bool,
    /// Number of segments that follow at once.
    pub left: u16,
}

impl Pacing {
    /// The state without a rate.
    pub fn new(config: &Config) -> Self {
        Pacing {
            rate: RATE_INFINITE,
            rate_max: RATE_INFINITE,
            next_ns: 0,
            burst_ns: 0,
            burst_left: 0,
            late_ns: 0,
            on: config.pacing,
            waited: false,
        }
    }

    pub fn pack(&mut self, p: &mut impl Packing) {
        let Pacing {
            rate,
            rate_max,
            next_ns,
            burst_ns,
            burst_left,
            late_ns,
            on,
            waited,
        } = self;
        p.u64(rate, RATE_INFINITE);
        p.u64(rate_max, RATE_INFINITE);
        p.u64(next_ns, 0);
        p.u64(burst_ns, *next_ns);
        p.u16(burst_left, 0);
        p.u32(late_ns, 0);
        p.bool(on);
        p.bool(waited);
    }

    /// Sets the rate by the window, of which `packets_out` segments are in flight. `srtt_us`: 0 if
    /// no round trip is known. Costs one 64-bit division per ACK.
    #[inline]
    pub fn refresh(
        &mut self,
        config: &Config,
        window: &Window,
        packets_out: u32,
        mss: u32,
        srtt_us: u32,
    ) {
        let percent = if window.cwnd() < window.ssthresh() / 2 {
            config.pacing_ss_percent
        } else {
            config.pacing_ca_percent
        };
        let segments = window.cwnd().max(packets_out);
        let bytes = u64::from(segments) * u64::from(mss);
        // Without a round trip Linux assumes an eighth of a microsecond, which is no limit in
        // effect.
        let rate = match srtt_us {
            0 => RATE_INFINITE,
            _ => bytes
                .checked_mul(u64::from(percent))
                .and_then(|bytes| (bytes / 100).checked_mul(MICROSECONDS))
                .map_or_else(
                    || rate_of_giants(bytes, percent, srtt_us),
                    |bytes| bytes / u64::from(srtt_us),
                ),
        };
        self.set_rate(rate);
    }

    /// Sets the rate, within the application's limit.
    #[inline]
    pub fn set_rate(&mut self, rate: u64) {
        self.rate = rate.min(self.rate_max);
    }

    /// Notes that a segment without payload left. The rate does not apply to it, but the pause that
    /// the next burst makes up for counts from it (Linux).
    #[inline]
    pub fn on_control_sent(&mut self, now_ns: u64) {
        if self.on {
            self.next_ns = self.next_ns.max(now_ns);
        }
    }

    /// Turns pacing on. The last segment left at `last_out_ns`.
    pub fn turn_on(&mut self, last_out_ns: u64) {
        if !self.on {
            self.on = true;
            self.next_ns = self.next_ns.max(last_out_ns);
        }
    }

    /// True if no data waits for its departure, or will.
    #[inline]
    pub fn is_off(&self) -> bool {
        !self.on && !self.waited
    }

    /// True if data must wait at `now_ns`.
    #[inline]
    pub fn holds(&self, now_ns: u64) -> bool {
        self.on && self.next_ns > now_ns && !(self.burst_left > 0 && self.burst_ns == now_ns)
    }

    /// Notes that a segment with `bytes` of payload left. `sent`: segments with payload sent on
    /// this connection, this one included.
    #[inline]
    pub fn on_sent(&mut self, now_ns: u64, bytes: u32, sent: u32, burst: Burst) {
        let is_free = sent.saturating_add(u32::from(burst.left)) < FREE_SEGMENTS;
        if self.rate == RATE_INFINITE || self.rate == 0 || is_free {
            self.next_ns = self.next_ns.max(now_ns);
            return;
        }
        self.burst_left = burst.left;
        if burst.begins {
            self.burst_ns = now_ns;
            let late_ns = now_ns.saturating_sub(self.next_ns);
            self.late_ns = u32::try_from(late_ns).unwrap_or(u32::MAX);
        }
        let spacing_ns = u128::from(bytes) * u128::from(SECOND_NS) / u128::from(self.rate);
        let spacing_ns = u64::try_from(spacing_ns).unwrap_or(NEVER_NS);
        if self.waited {
            // The caller's timer was late. The rate is still kept, within bounds.
            let since_ns = self.next_ns.max(now_ns.saturating_sub(LATE_NS_MAX));
            self.next_ns = since_ns.saturating_add(spacing_ns);
            return;
        }
        // After a pause a burst takes off up to half of its own spacing, until the pause is made up
        // for.
        let credit_ns = u64::from(self.late_ns).min(spacing_ns / 2);
        self.late_ns -= credit_ns as u32;
        let spacing_ns = spacing_ns - credit_ns;
        self.next_ns = self.next_ns.max(now_ns).saturating_add(spacing_ns);
    }

    /// SO_MAX_PACING_RATE. A limit turns pacing on for good, as in Linux. The last segment left at
    /// `last_out_ns`.
    pub fn limit(&mut self, rate_max: u64, last_out_ns: u64) {
        self.rate_max = rate_max;
        if rate_max != RATE_INFINITE {
            self.turn_on(last_out_ns);
        }
    }

    /// Notes that sending stopped; `waits`: pacing holds data back. Returns the time at which that
    /// data may leave, or [`NEVER_NS`].
    #[inline(always)]
    pub fn note_stop(&mut self, waits: bool) -> u64 {
        self.waited = waits;
        if waits { self.next_ns } else { NEVER_NS }
    }

    /// Bytes per second; [`RATE_INFINITE`] = not known yet.
    #[inline(always)]
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// SO_MAX_PACING_RATE in bytes per second; [`RATE_INFINITE`] = none.
    pub fn rate_max(&self) -> u64 {
        self.rate_max
    }

    /// Time at which the next burst may leave.
    #[inline(always)]
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// True if segments keep to the rate.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.on
    }
}

/// The rate for windows whose product exceeds 64 bits.
#[cold]
fn rate_of_giants(bytes: u64, percent: u32, srtt_us: u32) -> u64 {
    let bytes = u128::from(bytes) * u128::from(percent) / 100;
    let rate = bytes * u128::from(MICROSECONDS) / u128::from(srtt_us);
    u64::try_from(rate).unwrap_or(RATE_INFINITE)
}

#[cfg(test)]
mod tests;
