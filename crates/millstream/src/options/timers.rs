//! `SOL_TCP`: the bounds of a socket's timers.

use super::*;

/// What Linux takes: the longest timeout from a second on, and none longer than two minutes.
const RTO_MAX_MS: std::ops::RangeInclusive<u32> = 1_000..=120_000;
/// No timer is shorter than two ticks of a kernel's clock.
const TIMER_US_MIN: u32 = 2_000;
const RTO_MIN_US_MAX: u32 = 200_000;
const DELAYED_ACK_US_MAX: u32 = 200_000;

impl SocketOptions<'_> {
    /// `TCP_RTO_MAX_MS`: no retransmission timeout, nor the time between two probes, is longer.
    ///
    /// # Errors
    /// `InvalidInput` outside 1,000 to 120,000.
    pub fn set_rto_max_ms(&self, ms: u32) -> io::Result<()> {
        if !RTO_MAX_MS.contains(&ms) {
            return Err(invalid());
        }
        self.change(|settings| settings.rto_max_ms = ms);
        self.tell(SocketOption::RtoMax(ms))
    }

    /// `TCP_RTO_MAX_MS`
    #[must_use]
    pub fn rto_max_ms(&self) -> u32 {
        match self.look(|settings| settings.rto_max_ms) {
            0 => micros(self.inner.tcp_config().rto_ns_max) / 1_000,
            ms => ms,
        }
    }

    /// `TCP_RTO_MIN_US`: the retransmission timeout is longer than the round trip by so much at least, from the next measured one on.
    ///
    /// # Errors
    /// `InvalidInput` outside 2,000 to 200,000.
    pub fn set_rto_min_us(&self, us: u32) -> io::Result<()> {
        if !(TIMER_US_MIN..=RTO_MIN_US_MAX).contains(&us) {
            return Err(invalid());
        }
        self.change(|settings| settings.rto_min_us = us);
        self.tell(SocketOption::RtoMin(us))
    }

    /// `TCP_RTO_MIN_US`
    #[must_use]
    pub fn rto_min_us(&self) -> u32 {
        match self.look(|settings| settings.rto_min_us) {
            0 => micros(self.inner.tcp_config().rto_ns_min),
            us => us,
        }
    }

    /// `TCP_DELACK_MAX_US`: no acknowledgment is held back for longer.
    ///
    /// # Errors
    /// `InvalidInput` outside 2,000 to 200,000.
    pub fn set_delayed_ack_max_us(&self, us: u32) -> io::Result<()> {
        if !(TIMER_US_MIN..=DELAYED_ACK_US_MAX).contains(&us) {
            return Err(invalid());
        }
        self.change(|settings| settings.delayed_ack_max_us = us);
        self.tell(SocketOption::DelayedAckMax(us))
    }

    /// `TCP_DELACK_MAX_US`
    #[must_use]
    pub fn delayed_ack_max_us(&self) -> u32 {
        match self.look(|settings| settings.delayed_ack_max_us) {
            0 => micros(self.inner.tcp_config().delayed_ack_ns_max),
            us => us,
        }
    }

    /// `TCP_THIN_LINEAR_TIMEOUTS`: while fewer than four segments are in flight, the first six timeouts in a row do not double.
    ///
    /// # Errors
    /// As [`set_nodelay`](Self::set_nodelay).
    pub fn set_thin_linear_timeouts(&self, on: bool) -> io::Result<()> {
        self.change(|settings| settings.thin_linear_timeouts = on);
        self.tell(SocketOption::ThinLinearTimeouts(on))
    }

    /// `TCP_THIN_LINEAR_TIMEOUTS`
    #[must_use]
    pub fn thin_linear_timeouts(&self) -> bool {
        self.look(|settings| settings.thin_linear_timeouts)
    }
}

fn micros(ns: u64) -> u32 {
    let us = Duration::from_nanos(ns).as_micros();
    u32::try_from(us).unwrap_or(u32::MAX)
}
