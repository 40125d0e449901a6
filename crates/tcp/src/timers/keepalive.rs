//! Keep-alive (RFC 9293 3.8.4): the time of the next check.

use crate::MILLISECOND_NS;
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::state::State;
use crate::timers::Timers;

impl Timers {
    /// Arms the timer for the next check, if keep-alive is on and the state needs it.
    pub(crate) fn arm_keepalive(&mut self, cx: &Cx<'_>, state: State, conn_flags: ConnFlags) {
        if conn_flags.keeps_alive(state) {
            let idle_ns = u64::from(self.keepalive_idle_ms) * MILLISECOND_NS;
            self.arm_slow(cx.now_ns.saturating_add(idle_ns));
        }
    }
}
