//! The persist timer (RFC 9293 3.8.6.1): data waits, nothing is in flight, and the peer's window
//! (or a cork, or silly-window avoidance) holds the data back. It shares the retransmission
//! deadline; `PERSIST` marks that.

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::receive::delayed_ack::AckKind;
use crate::timers::NEVER_NS;

/// Interval at which a connection checks whether its port has room again (Linux's
/// TCP_RESOURCE_PROBE_INTERVAL).
const BLOCKED_LOOK_NS: u64 = crate::SECOND_NS / 2;

impl Connection {
    /// The port had no room for a due segment. If no timer runs, the persist timer measures how
    /// long that lasts. The user timeout and the limit of probes apply as for a shut window (Linux
    /// does so for a full queue).
    pub fn on_port_blocked(&mut self, cx: &mut Cx<'_>) -> Effects {
        let deadline_ns = self.timers.deadline_ns();
        let waits =
            self.snd.unsent(self.state(), self.conn_flags) > 0 || self.conn_flags.fin_unsent();
        let is_idle = self.snd.flight() == 0 && self.timers.retransmit_ns() == NEVER_NS;
        if waits && is_idle && self.conn_flags.may_send_data(self.state()) {
            self.conn_flags.set(ConnFlags::PERSIST);
            self.timers.block_port(departed(cx));
            self.timers.note_progress(cx.now_ns);
            let wait_ns = self
                .timers
                .rtt()
                .rto_ns()
                .max(self.timers.rto_ns_min(cx.config));
            self.timers
                .arm_retransmit(cx.now_ns.saturating_add(wait_ns));
        }
        self.finish(cx, Effects::NONE, deadline_ns)
    }

    /// The port is still blocked, or was a moment ago. If other connections have sent since the
    /// last check, this one only waits for its turn, and the check does not count as an unanswered
    /// probe.
    #[cold]
    fn on_blocked_timer(&mut self, cx: &mut Cx<'_>) -> Effects {
        let departed = departed(cx);
        if self.timers.look_at_port(departed) {
            self.timers.settle_probes();
        }
        if self.timers.probes() == 0 {
            self.timers.note_progress(cx.now_ns);
        } else if self.flight.persist_exhausted(
            cx,
            self.state(),
            self.conn_flags,
            &self.snd,
            &self.timers,
        ) {
            cx.counters.timed_out += 1;
            return self.fail(self.timers.timeout_error());
        }
        self.timers.count_probe();
        let wait_ns = self.flight.within_user_timeout(
            cx.now_ns,
            BLOCKED_LOOK_NS,
            self.state(),
            self.conn_flags,
            &self.snd,
            &self.timers,
        );
        self.timers
            .arm_retransmit(cx.now_ns.saturating_add(wait_ns));
        Effects::NONE
    }

    pub(super) fn on_persist_timer(&mut self, cx: &mut Cx<'_>) -> Effects {
        if self.snd.unsent(self.state(), self.conn_flags) == 0 && !self.conn_flags.fin_unsent() {
            self.timers.end_persist(&mut self.conn_flags);
            return Effects::NONE;
        }
        if self.timers.port_blocked_at() != 0 {
            return self.on_blocked_timer(cx);
        }
        if self.timers.backoff() == 0 {
            // The user timeout counts from the first probe on, as in Linux.
            self.timers.note_progress(cx.now_ns);
        }
        // RFC 9293 MUST-37: as long as probes are answered (`probes` is 0 again), the window may
        // stay shut.
        if self
            .flight
            .persist_exhausted(cx, self.state(), self.conn_flags, &self.snd, &self.timers)
        {
            cx.counters.timed_out += 1;
            return self.fail(self.timers.timeout_error());
        }
        if self.snd.usable() > 0 {
            // Overrides silly-window avoidance and the cork: whatever fits is sent.
            self.conn_flags
                .set(ConnFlags::PUSH_DUE | ConnFlags::PUSH_AT_END);
        } else {
            self.conn_flags.set(ConnFlags::PROBE_DUE);
            self.timers.count_probe();
            cx.counters.window_probes_out += 1;
            if self.tx.is_urgent(self.conn_flags) {
                // The peer drops the probe for its number, and its urgent pointer with it. An ACK
                // at RCV.NXT passes a shut window (RFC 9293 3.10.7.4, Linux).
                self.rx.request_ack(AckKind::Urgent, &mut self.conn_flags);
            }
        }
        self.timers.count_backoff();
        let wait_ns = self.flight.probe_interval_ns(
            cx,
            self.state(),
            self.conn_flags,
            &self.snd,
            &self.timers,
        );
        self.timers
            .arm_retransmit(cx.now_ns.saturating_add(wait_ns));
        Effects::NONE
    }
}

/// A value that changes when any connection of the stack sends: the number of sent segments modulo
/// 255, plus 1. Two checks may see the same value by chance, so giving up takes a dozen in a row.
fn departed(cx: &Cx<'_>) -> u8 {
    (cx.counters.segments_out % 255) as u8 + 1
}
