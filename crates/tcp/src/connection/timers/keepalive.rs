//! Keep-alive (RFC 9293 3.8.4): off unless asked for; a probe without data after a long silence.

use crate::MILLISECOND_NS;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::marks::Marks;
use crate::state::{ConnectionError, State};

impl Connection {
    /// Arms the timer for the next look, if keep-alive is on and the state has a use for it.
    pub(crate) fn arm_keepalive(&mut self, cx: &Cx<'_>) {
        if self.keeps_alive() {
            let idle_ns = u64::from(self.tx.keepalive_idle_ms) * MILLISECOND_NS;
            self.arm_slow(cx.now_ns.saturating_add(idle_ns));
        }
    }

    /// Another idle time while keep-alive is on: the silence so far counts (Linux).
    pub(crate) fn rearm_keepalive(&mut self, cx: &Cx<'_>) {
        if self.keeps_alive() {
            let idle_ns = u64::from(self.tx.keepalive_idle_ms) * MILLISECOND_NS;
            let due_ns = self.rx.last_heard_ns().saturating_add(idle_ns);
            self.arm_slow(due_ns.max(cx.now_ns));
        }
    }

    /// The slow timer belongs to keep-alive.
    pub(crate) fn keeps_alive(&self) -> bool {
        self.marks.has(Marks::KEEPALIVE)
            && match self.state() {
                State::Established | State::CloseWait | State::FinWait1 => true,
                State::FinWait2 => !self.is_orphan(),
                _ => false,
            }
    }

    pub(super) fn on_keepalive_timer(&mut self, cx: &mut Cx<'_>) -> Effects {
        self.arm_slow(crate::timers::NEVER_NS);
        if !self.keeps_alive() {
            return Effects::NONE;
        }
        let idle_ns = u64::from(self.tx.keepalive_idle_ms) * MILLISECOND_NS;
        let interval_ns = u64::from(self.tx.keepalive_interval_ms) * MILLISECOND_NS;
        let silent_ns = cx.now_ns.saturating_sub(self.rx.last_heard_ns());
        // Data in flight or waiting has its own timers, which notice a dead peer sooner.
        if silent_ns < idle_ns || self.has_unfinished_sending() {
            let remaining_ns = if silent_ns < idle_ns {
                idle_ns - silent_ns
            } else {
                idle_ns
            };
            self.arm_slow(cx.now_ns.saturating_add(remaining_ns));
            return Effects::NONE;
        }
        if self.tx.keepalive_exhausted(silent_ns) {
            cx.counters.timed_out += 1;
            let error = self.tx.soft_error.unwrap_or(ConnectionError::TimedOut);
            return self.fail(error) | self.send_reset_and_close();
        }
        self.tx.probes = self.tx.probes.saturating_add(1);
        self.marks.set(Marks::PROBE_DUE);
        cx.counters.keepalive_probes_out += 1;
        self.arm_slow(cx.now_ns.saturating_add(interval_ns));
        Effects::NONE
    }
}
