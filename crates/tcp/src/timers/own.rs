//! What an application chose for its socket's timers in place of the stack's settings: the bounds of the retransmission timeout
//! (`TCP_RTO_MIN_US`, `TCP_RTO_MAX_MS`), the longest delay of an ACK (`TCP_DELACK_MAX_US`), and timeouts that do not double while little is in flight
//! (`TCP_THIN_LINEAR_TIMEOUTS`). Whoever arms a timer asks here.

use crate::connection::{Connection, Cx};
use crate::rtt::RtoBounds;

/// The grain of a socket's own timers, to which they are rounded up. Linux's is a tick of its clock, 1 to 10 ms.
const TICK_US: u32 = 2_000;
const TICK_NS: u64 = TICK_US as u64 * 1_000;

/// A socket's own timers in ticks; 0 = the stack's setting. Small, since few ask for any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnTimers {
    rto_max: u16,
    rto_min: u16,
    delayed_ack_max: u8,
    /// Timeouts do not double at first while little is in flight.
    pub thin_linear: bool,
}

/// The next whole number of ticks, at most as many as fit.
fn ticks<T: TryFrom<u32>>(us: u32, most: T) -> T {
    T::try_from(us.div_ceil(TICK_US)).unwrap_or(most)
}

impl OwnTimers {
    /// None of its own.
    pub const NONE: OwnTimers = OwnTimers {
        rto_max: 0,
        rto_min: 0,
        delayed_ack_max: 0,
        thin_linear: false,
    };
}

impl Connection {
    /// `TCP_RTO_MAX_MS`: the longest retransmission timeout, and the longest time between probes; 0 = the stack's setting.
    pub fn set_rto_max_ms(&mut self, ms: u32) {
        self.cold.own_timers.rto_max = ticks(ms.saturating_mul(1_000), u16::MAX);
    }

    /// `TCP_RTO_MIN_US`: the floor of the timeout's variance term; 0 = the stack's setting. It counts from the next round trip on.
    pub fn set_rto_min_us(&mut self, us: u32) {
        self.cold.own_timers.rto_min = ticks(us, u16::MAX);
    }

    /// The connection begins with its listener's `TCP_RTO_MIN_US`: the handshake's round trip counts by it too.
    pub fn begin_with_rto_min_us(&mut self, cx: &Cx<'_>, us: u32) {
        self.set_rto_min_us(us);
        if self.tx.rtt.srtt_us != 0 {
            let bounds = self.rto_bounds(cx);
            self.tx.rtt.begin_again(&bounds);
        }
    }

    /// `TCP_DELACK_MAX_US`: the longest time for which an ACK is held back; 0 = the stack's setting.
    pub fn set_delayed_ack_max_us(&mut self, us: u32) {
        self.cold.own_timers.delayed_ack_max = ticks(us, u8::MAX);
    }

    /// `TCP_THIN_LINEAR_TIMEOUTS`: the first timeouts of a stream with little in flight do not double.
    pub fn set_thin_linear_timeouts(&mut self, on: bool) {
        self.cold.own_timers.thin_linear = on;
    }

    /// The longest retransmission timeout.
    #[inline]
    pub(crate) fn rto_ns_max(&self, cx: &Cx<'_>) -> u64 {
        match self.cold.own_timers.rto_max {
            0 => cx.config.rto_ns_max,
            ticks => u64::from(ticks) * TICK_NS,
        }
    }

    /// The floor of the timeout's variance term.
    #[inline]
    pub(crate) fn rto_ns_min(&self, cx: &Cx<'_>) -> u64 {
        match self.cold.own_timers.rto_min {
            0 => cx.config.rto_ns_min,
            ticks => u64::from(ticks) * TICK_NS,
        }
    }

    /// Both.
    #[inline]
    pub(crate) fn rto_bounds(&self, cx: &Cx<'_>) -> RtoBounds {
        RtoBounds {
            ns_min: self.rto_ns_min(cx),
            ns_max: self.rto_ns_max(cx),
        }
    }

    /// The longest time for which an ACK is held back.
    #[inline]
    pub(crate) fn delayed_ack_ns_max(&self, cx: &Cx<'_>) -> u64 {
        match self.cold.own_timers.delayed_ack_max {
            0 => cx.config.delayed_ack_ns_max,
            ticks => u64::from(ticks) * TICK_NS,
        }
    }
}
