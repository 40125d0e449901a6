//! The connection's timers: three deadlines, of which the nearest is the one that the caller arms,
//! unless `pacing`'s is nearer.
//!
//! ```text
//!   retransmit  data in flight: RFC 6298 · nothing in flight and the peer's window shut: persist
//!   delayed_ack an acknowledgment is held back
//!   slow        keep-alive · FIN_WAIT_2 of an orphan · TIME_WAIT; one at a time, by state
//! ```
//!
//! `on_timer` dispatches; a file each says what happens.

use crate::pack::Packing;

pub(crate) mod own;
mod tally;

pub(crate) use own::OwnTimers;
pub(crate) use tally::Tally;

/// No deadline.
pub(crate) const NEVER_NS: u64 = u64::MAX;

/// The three deadlines in nanoseconds; [`NEVER_NS`] = not armed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timers {
    pub retransmit_ns: u64,
    pub delayed_ack_ns: u64,
    pub slow_ns: u64,
}

impl Timers {
    /// No timer is armed.
    pub const OFF: Timers = Timers {
        retransmit_ns: NEVER_NS,
        delayed_ack_ns: NEVER_NS,
        slow_ns: NEVER_NS,
    };

    /// A quiet connection has at most the keep-alive timer.
    pub fn pack(&mut self, p: &mut impl Packing) {
        let Timers {
            retransmit_ns,
            delayed_ack_ns,
            slow_ns,
        } = self;
        p.u64(retransmit_ns, NEVER_NS);
        p.u64(delayed_ack_ns, NEVER_NS);
        p.u64(slow_ns, NEVER_NS);
    }

    pub fn nearest_ns(&self) -> u64 {
        self.retransmit_ns
            .min(self.delayed_ack_ns)
            .min(self.slow_ns)
    }
}
