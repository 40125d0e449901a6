//! The connection's timers: three deadlines, of which the nearest is the one that the caller arms, unless `pacing`'s is
//! nearer.
//!
//! ```text
//!   retransmit  data in flight: RFC 6298 · nothing in flight and the peer's window shut: persist
//!   delayed_ack an acknowledgment is held back
//!   slow        keep-alive · FIN_WAIT_2 of an orphan · TIME_WAIT; one at a time, by state
//! ```
//!
//! `on_timer` dispatches; a file each says what happens.

use crate::connection::{Connection, Cx};
use crate::effects::Effects;
use crate::pack::Packing;
use crate::state::State;

mod closing;
mod delayed_ack;
mod keepalive;
mod own;
mod persist;
mod retransmit;
mod tally;

pub(crate) use delayed_ack::{AckKind, least_delay_us};
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
    /// None armed.
    pub const OFF: Timers = Timers {
        retransmit_ns: NEVER_NS,
        delayed_ack_ns: NEVER_NS,
        slow_ns: NEVER_NS,
    };

    /// At most keep-alive's is set while a connection is quiet.
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

impl Connection {
    pub(crate) fn arm_retransmit(&mut self, at_ns: u64) {
        self.tx.timers.retransmit_ns = at_ns;
        self.refresh_deadline();
    }

    pub(crate) fn arm_delayed_ack(&mut self, at_ns: u64) {
        self.tx.timers.delayed_ack_ns = at_ns;
        self.refresh_deadline();
    }

    pub(crate) fn arm_slow(&mut self, at_ns: u64) {
        self.tx.timers.slow_ns = at_ns;
        self.refresh_deadline();
    }

    pub(crate) fn refresh_deadline(&mut self) {
        self.deadline_ns = self.tx.timers.nearest_ns().min(self.pacing.departure_ns);
    }

    pub(crate) fn disarm_all(&mut self) {
        self.tx.timers = Timers::OFF;
        self.pacing.departure_ns = NEVER_NS;
        self.deadline_ns = NEVER_NS;
    }

    /// What is due at `cx.now_ns`.
    pub(crate) fn fire_timers(&mut self, cx: &mut Cx<'_>) -> Effects {
        let mut effects = Effects::NONE;
        self.depart(cx.now_ns);
        if self.tx.timers.delayed_ack_ns <= cx.now_ns {
            self.on_delayed_ack_timer(cx);
        }
        if self.tx.timers.retransmit_ns <= cx.now_ns {
            effects |= self.on_retransmit_timer(cx);
        }
        if self.tx.timers.slow_ns <= cx.now_ns {
            effects |= match self.state() {
                State::TimeWait => self.on_time_wait_timer(),
                State::FinWait2 if self.is_orphan() => self.on_fin_wait_2_timer(cx),
                _ => self.on_keepalive_timer(cx),
            };
        }
        effects
    }
}
