//! The persist timer (RFC 9293 3.8.6.1): its end.

use crate::marks::Marks;
use crate::timers::{NEVER_NS, Timers};

impl Timers {
    /// The window opened, or all is sent: the persist timer's state is void.
    pub(crate) fn end_persist(&mut self, marks: &mut Marks) {
        if marks.has(Marks::PERSIST) {
            marks.clear(Marks::PERSIST | Marks::PUSH_DUE | Marks::PROBE_DUE);
            self.port_blocked_at = 0;
            self.probes = 0;
            self.backoff = 0;
            self.arm_retransmit(NEVER_NS);
        }
    }
}
