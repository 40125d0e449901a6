//! Keep-alive (RFC 9293 3.8.4): off by default; sends a probe without data after a long silence.

use crate::MILLISECOND_NS;
use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::timers::NEVER_NS;

impl Connection {
    /// Arms the timer again after a change of the idle time. The silence so far counts (Linux).
    pub(crate) fn rearm_keepalive(&mut self, cx: &Cx<'_>) {
        if self.conn_flags.keeps_alive(self.state()) {
            let idle_ns = u64::from(self.timers.keepalive_idle_ms()) * MILLISECOND_NS;
            let due_ns = self.rx.last_heard_ns().saturating_add(idle_ns);
            self.timers.arm_slow(due_ns.max(cx.now_ns));
        }
    }

    pub(super) fn on_keepalive_timer(&mut self, cx: &mut Cx<'_>) -> Effects {
        self.timers.arm_slow(NEVER_NS);
        if !self.conn_flags.keeps_alive(self.state()) {
            return Effects::NONE;
        }
        let idle_ns = u64::from(self.timers.keepalive_idle_ms()) * MILLISECOND_NS;
        let interval_ns = u64::from(self.timers.keepalive_interval_ms()) * MILLISECOND_NS;
        let silent_ns = cx.now_ns.saturating_sub(self.rx.last_heard_ns());
        // Data in flight or waiting has timers of its own, which notice a dead peer sooner.
        if silent_ns < idle_ns
            || self
                .snd
                .has_unfinished_sending(self.state(), self.conn_flags)
        {
            let remaining_ns = if silent_ns < idle_ns {
                idle_ns - silent_ns
            } else {
                idle_ns
            };
            self.timers.arm_slow(cx.now_ns.saturating_add(remaining_ns));
            return Effects::NONE;
        }
        if self.timers.keepalive_exhausted(silent_ns) {
            cx.counters.timed_out += 1;
            let error = self.timers.timeout_error();
            return self.fail(error) | self.send_reset_and_close();
        }
        self.timers.count_probe();
        self.conn_flags.set(ConnFlags::PROBE_DUE);
        cx.counters.keepalive_probes_out += 1;
        self.timers.arm_slow(cx.now_ns.saturating_add(interval_ns));
        Effects::NONE
    }
}
