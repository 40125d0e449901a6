//! The timers that an application chose for its socket.

use crate::connection::Connection;
use crate::context::Cx;

impl Connection {
    /// `TCP_RTO_MAX_MS`: the longest retransmission timeout, and the longest time between probes; 0
    /// = the stack's setting.
    pub fn set_rto_max_ms(&mut self, ms: u32) {
        self.timers.set_rto_max_ms(ms);
    }

    /// `TCP_RTO_MIN_US`: the floor of the timeout's variance term; 0 = the stack's setting. It
    /// takes effect with the next round trip.
    pub fn set_rto_min_us(&mut self, us: u32) {
        self.timers.set_rto_min_us(us);
    }

    /// Begins with the listener's `TCP_RTO_MIN_US`, which also applies to the handshake's round
    /// trip.
    pub fn begin_with_rto_min_us(&mut self, cx: &Cx<'_>, us: u32) {
        self.planned.forget();
        self.timers.begin_with_rto_min_us(us, cx.config);
    }

    /// `TCP_DELACK_MAX_US`: the longest time for which an ACK is held back; 0 = the stack's
    /// setting.
    pub fn set_delayed_ack_max_us(&mut self, us: u32) {
        self.timers.set_delayed_ack_max_us(us);
    }

    /// `TCP_THIN_LINEAR_TIMEOUTS`: the first timeouts of a stream with little in flight do not
    /// double.
    pub fn set_thin_linear_timeouts(&mut self, on: bool) {
        self.timers.set_thin_linear(on);
    }
}
