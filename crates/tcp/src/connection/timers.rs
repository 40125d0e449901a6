//! The actions at a deadline. Each timer has a file.

use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::state::State;
use crate::timers::{NEVER_NS, Timers};

mod closing;
mod delayed_ack;
mod keepalive;
mod own;
mod persist;
mod retransmit;

pub(crate) use delayed_ack::{AckKind, least_delay_us};

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
        self.deadline_ns = self.tx.timers.nearest_ns().min(self.pacing.departure_ns());
    }

    pub(crate) fn disarm_all(&mut self) {
        self.tx.timers = Timers::OFF;
        self.pacing.cancel_departure();
        self.deadline_ns = NEVER_NS;
    }

    /// Runs the timers that are due at `cx.now_ns`.
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
