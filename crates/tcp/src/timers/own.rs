//! Timers that an application chose for its socket in place of the stack's settings. They are the
//! bounds of the retransmission timeout (`TCP_RTO_MIN_US`, `TCP_RTO_MAX_MS`), the longest delay of
//! an ACK (`TCP_DELACK_MAX_US`), and timeouts that do not double while little is in flight
//! (`TCP_THIN_LINEAR_TIMEOUTS`).

use crate::config::Config;
use crate::rtt::RtoBounds;

/// Unit of a socket's own timers, to which they are rounded up. Linux's unit is a tick of its
/// clock, 1 to 10 ms.
const TICK_US: u32 = 2_000;
const TICK_NS: u64 = TICK_US as u64 * 1_000;

/// A socket's own timers in ticks; 0: the stack's setting. Small, because few sockets set any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnTimers {
    rto_max: u16,
    rto_min: u16,
    delayed_ack_max: u8,
    /// True if the first timeouts do not double while little is in flight.
    thin_linear: bool,
}

/// The next whole number of ticks, at most `most`.
fn ticks<T: TryFrom<u32>>(us: u32, most: T) -> T {
    T::try_from(us.div_ceil(TICK_US)).unwrap_or(most)
}

impl OwnTimers {
    /// Timers for which the stack's settings apply.
    pub const NONE: OwnTimers = OwnTimers {
        rto_max: 0,
        rto_min: 0,
        delayed_ack_max: 0,
        thin_linear: false,
    };

    /// `TCP_RTO_MAX_MS`.
    pub fn set_rto_max_ms(&mut self, ms: u32) {
        self.rto_max = ticks(ms.saturating_mul(1_000), u16::MAX);
    }

    /// `TCP_RTO_MIN_US`.
    pub fn set_rto_min_us(&mut self, us: u32) {
        self.rto_min = ticks(us, u16::MAX);
    }

    /// `TCP_DELACK_MAX_US`.
    pub fn set_delayed_ack_max_us(&mut self, us: u32) {
        self.delayed_ack_max = ticks(us, u8::MAX);
    }

    /// `TCP_THIN_LINEAR_TIMEOUTS`.
    pub fn set_thin_linear(&mut self, on: bool) {
        self.thin_linear = on;
    }

    /// True if the first timeouts do not double while little is in flight.
    pub fn is_thin_linear(&self) -> bool {
        self.thin_linear
    }

    /// The longest retransmission timeout.
    #[inline]
    pub fn rto_ns_max(&self, config: &Config) -> u64 {
        match self.rto_max {
            0 => config.rto_ns_max,
            ticks => u64::from(ticks) * TICK_NS,
        }
    }

    /// The floor of the timeout's variance term.
    #[inline]
    pub fn rto_ns_min(&self, config: &Config) -> u64 {
        match self.rto_min {
            0 => config.rto_ns_min,
            ticks => u64::from(ticks) * TICK_NS,
        }
    }

    /// The bounds of the timeout.
    #[inline]
    pub fn rto_bounds(&self, config: &Config) -> RtoBounds {
        RtoBounds {
            ns_min: self.rto_ns_min(config),
            ns_max: self.rto_ns_max(config),
        }
    }

    /// The longest time for which an ACK is held back.
    #[inline]
    pub fn delayed_ack_ns_max(&self, config: &Config) -> u64 {
        match self.delayed_ack_max {
            0 => config.delayed_ack_ns_max,
            ticks => u64::from(ticks) * TICK_NS,
        }
    }
}
