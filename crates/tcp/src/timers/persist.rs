//! The end of the persist timer (RFC 9293 3.8.6.1).

use crate::conn_flags::ConnFlags;
use crate::timers::{NEVER_NS, Timers};

impl Timers {
    /// Ends the persist timer, because the window opened or all data is sent.
    pub(crate) fn end_persist(&mut self, conn_flags: &mut ConnFlags) {
        if conn_flags.has(ConnFlags::PERSIST) {
            conn_flags.clear(ConnFlags::PERSIST | ConnFlags::PUSH_DUE | ConnFlags::PROBE_DUE);
            self.port_blocked_at = 0;
            self.probes = 0;
            self.backoff = 0;
            self.arm_retransmit(NEVER_NS);
        }
    }
}
