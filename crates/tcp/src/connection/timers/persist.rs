//! The persist timer (RFC 9293 3.8.6.1): data waits, nothing is in flight, and the peer's window
//! (or a cork, or silly-window avoidance) holds it. Shares the retransmission deadline, marked
//! `PERSIST`.

use crate::connection::Connection;
use crate::connection::timers::AckKind;
use crate::context::Cx;
use crate::effects::Effects;
use crate::marks::Marks;
use crate::state::ConnectionError;

/// Interval at which a connection checks whether its port has room again (Linux's
/// TCP_RESOURCE_PROBE_INTERVAL).
const BLOCKED_LOOK_NS: u64 = crate::SECOND_NS / 2;

impl Connection {
    /// Nothing can be sent now; if something waits and no timer would ever send it, arm one.
    pub(crate) fn arm_persist_if_stuck(&mut self, cx: &Cx<'_>) {
        let waits = self.unsent() > 0 || self.fin_unsent();
        if !waits || self.snd.flight() > 0 || !self.state().sends_data() {
            return;
        }
        if self.tx.timers.retransmit_ns != crate::timers::NEVER_NS {
            return;
        }
        self.marks.set(Marks::PERSIST);
        self.tx.progress_ns = cx.now_ns;
        let wait_ns = self
            .tx
            .rtt
            .rto_ns()
            .max(self.cold.own_timers.rto_ns_min(cx.config));
        let wait_ns = self.paced_wait_ns(cx, wait_ns);
        self.arm_retransmit(cx.now_ns.saturating_add(wait_ns));
    }

    /// The port had no room for a due segment. If no timer runs, nothing would notice how long that
    /// lasts, so the persist timer runs. The user timeout and the limit of probes count as for a
    /// shut window (Linux: a full queue).
    pub fn on_port_blocked(&mut self, cx: &mut Cx<'_>) -> Effects {
        let deadline_ns = self.deadline_ns;
        let waits = self.unsent() > 0 || self.fin_unsent();
        let is_idle =
            self.snd.flight() == 0 && self.tx.timers.retransmit_ns == crate::timers::NEVER_NS;
        if waits && is_idle && self.may_send_data() {
            self.marks.set(Marks::PERSIST);
            self.cold.port_blocked_at = departed(cx);
            self.tx.progress_ns = cx.now_ns;
            let wait_ns = self
                .tx
                .rtt
                .rto_ns()
                .max(self.cold.own_timers.rto_ns_min(cx.config));
            self.arm_retransmit(cx.now_ns.saturating_add(wait_ns));
        }
        self.finish(cx, Effects::NONE, deadline_ns)
    }

    /// The port is still blocked, or was a moment ago. If segments of others have left since the
    /// last look it is only short of room, and this connection waits for its turn: nothing that
    /// counts as a probe without an answer, however many are before it.
    #[cold]
    fn on_blocked_timer(&mut self, cx: &mut Cx<'_>) -> Effects {
        let departed = departed(cx);
        if core::mem::replace(&mut self.cold.port_blocked_at, departed) != departed {
            self.tx.probes = 0;
        }
        if self.tx.probes == 0 {
            self.tx.progress_ns = cx.now_ns;
        } else if self.persist_exhausted(cx) {
            cx.counters.timed_out += 1;
            return self.fail(self.tx.soft_error.unwrap_or(ConnectionError::TimedOut));
        }
        self.tx.probes = self.tx.probes.saturating_add(1);
        let wait_ns = self.within_user_timeout(cx.now_ns, BLOCKED_LOOK_NS);
        self.arm_retransmit(cx.now_ns.saturating_add(wait_ns));
        Effects::NONE
    }

    /// The window opened, or all is sent: the persist timer's state is void.
    pub(crate) fn end_persist(&mut self) {
        if self.marks.has(Marks::PERSIST) {
            self.marks
                .clear(Marks::PERSIST | Marks::PUSH_DUE | Marks::PROBE_DUE);
            self.cold.port_blocked_at = 0;
            self.tx.probes = 0;
            self.tx.backoff = 0;
            self.arm_retransmit(crate::timers::NEVER_NS);
        }
    }

    /// The peer answered and its window is still shut: the next probe waits from now on (Linux).
    pub(crate) fn restart_probing(&mut self, cx: &Cx<'_>) {
        if self.snd.usable() == 0 && self.cold.port_blocked_at == 0 {
            let wait_ns = self.probe_interval_ns(cx);
            self.arm_retransmit(cx.now_ns.saturating_add(wait_ns));
        }
    }

    pub(super) fn on_persist_timer(&mut self, cx: &mut Cx<'_>) -> Effects {
        if self.unsent() == 0 && !self.fin_unsent() {
            self.end_persist();
            return Effects::NONE;
        }
        if self.cold.port_blocked_at != 0 {
            return self.on_blocked_timer(cx);
        }
        if self.tx.backoff == 0 {
            // The user's patience is counted from the first probe on, as in Linux.
            self.tx.progress_ns = cx.now_ns;
        }
        // MUST-37: as long as probes are answered (`probes` is 0 again), the window may stay shut.
        if self.persist_exhausted(cx) {
            cx.counters.timed_out += 1;
            return self.fail(self.tx.soft_error.unwrap_or(ConnectionError::TimedOut));
        }
        if self.snd.usable() > 0 {
            // Override of silly-window avoidance and of the cork: send what fits.
            self.marks.set(Marks::PUSH_DUE | Marks::PUSH_AT_END);
        } else {
            self.marks.set(Marks::PROBE_DUE);
            self.tx.probes = self.tx.probes.saturating_add(1);
            cx.counters.window_probes_out += 1;
            if self.is_urgent() {
                // The peer drops the probe for its number, and its urgent pointer with it; an ACK
                // at RCV.NXT is heard through a shut window (RFC 9293 3.10.7.4, Linux).
                self.request_ack(AckKind::Urgent);
            }
        }
        self.tx.backoff = self.tx.backoff.saturating_add(1);
        let wait_ns = self.probe_interval_ns(cx);
        self.arm_retransmit(cx.now_ns.saturating_add(wait_ns));
        Effects::NONE
    }

    fn persist_exhausted(&self, cx: &Cx<'_>) -> bool {
        let limit = if self.is_orphan() {
            cx.config.orphan_retries_max
        } else {
            cx.config.retries_max
        };
        // Nobody waits for an orphan: a peer that answers but never opens its window does not keep
        // it (Linux).
        let overdue = self.is_orphan()
            && self.tx.backoff >= limit
            && self.probe_interval_ns(cx) >= self.cold.own_timers.rto_ns_max(cx.config);
        self.tx.probes >= limit || overdue || self.user_timeout_passed(cx.now_ns)
    }

    /// SHLD-29 and SHLD-30: first after the timeout, then exponentially longer.
    fn probe_interval_ns(&self, cx: &Cx<'_>) -> u64 {
        let base_ns = self
            .tx
            .rtt
            .rto_ns()
            .max(self.cold.own_timers.rto_ns_min(cx.config));
        let doublings = u32::from(self.tx.backoff.min(20));
        let wait_ns = (base_ns << doublings).min(self.cold.own_timers.rto_ns_max(cx.config));
        self.within_user_timeout(cx.now_ns, self.paced_wait_ns(cx, wait_ns))
    }
}

/// A value that changes when any connection of the stack sends: the number of segments sent, folded
/// into one byte that is not zero. Two looks may see the same value by chance, so giving up takes a
/// dozen in a row.
fn departed(cx: &Cx<'_>) -> u8 {
    (cx.counters.segments_out % 255) as u8 + 1
}
