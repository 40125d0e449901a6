//! The actions of the timers when they expire. Each timer has a file.

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::state::State;

mod closing;
mod delayed_ack;
mod keepalive;
mod own;
mod persist;
mod retransmit;

impl Connection {
    /// Runs the timers that are due at `cx.now_ns`.
    pub(crate) fn fire_timers(&mut self, cx: &mut Cx<'_>) -> Effects {
        let mut effects = Effects::NONE;
        self.timers.depart(cx.now_ns);
        if self.timers.delayed_ack_ns() <= cx.now_ns {
            self.rx
                .on_delayed_ack_timer(cx, &mut self.conn_flags, &mut self.timers);
        }
        if self.timers.retransmit_ns() <= cx.now_ns {
            effects |= self.on_retransmit_timer(cx);
        }
        if self.timers.slow_ns() <= cx.now_ns {
            effects |= match self.state() {
                State::TimeWait => self.on_time_wait_timer(),
                State::FinWait2 if self.conn_flags.has(ConnFlags::ORPHAN) => {
                    self.on_fin_wait_2_timer(cx)
                }
                _ => self.on_keepalive_timer(cx),
            };
        }
        effects
    }
}
