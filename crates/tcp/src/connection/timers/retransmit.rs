//! Expiry of the retransmission timer (RFC 6298 5), whatever it is armed for.

use wire::SeqNumber;

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::recovery::{Pending, flag};
use crate::state::State;
use crate::timers::NEVER_NS;

/// Number of timeouts whose usual duration must pass without an acknowledgment before the path is
/// suspected to swallow long segments: R1 of RFC 9293 3.8.3, Linux's `tcp_retries1`.
const PATH_RETRIES: u8 = 3;

impl Connection {
    pub(super) fn on_retransmit_timer(&mut self, cx: &mut Cx<'_>) -> Effects {
        self.timers.arm_retransmit(NEVER_NS);
        let pending = self.flight.recovery().pending();
        let effects = match self.state() {
            State::SynSent | State::SynReceived => self.on_syn_timeout(cx),
            // Closed before the handshake was complete: the SYN-ACK comes before everything else.
            _ if self.conn_flags.has(ConnFlags::FAST_OPENED) => self.on_syn_timeout(cx),
            _ if self.conn_flags.has(ConnFlags::PERSIST) => self.on_persist_timer(cx),
            _ if self.snd.flight() == 0 => Effects::NONE,
            _ => match pending {
                Pending::Timeout => self.on_data_timeout(cx),
                Pending::Reorder => {
                    self.flight.on_reorder_timer(
                        cx,
                        self.state(),
                        self.conn_flags,
                        &self.snd,
                        &mut self.timers,
                        &mut self.ecn,
                    );
                    Effects::NONE
                }
                Pending::Probe => {
                    let (flight, mut parts) = self.flight_and_parts();
                    flight.on_probe_timer(cx, &mut parts);
                    Effects::NONE
                }
            },
        };
        self.flight.after_recovery_event(&mut self.conn_flags);
        effects
    }

    fn on_data_timeout(&mut self, cx: &mut Cx<'_>) -> Effects {
        let is_held_shut = self.snd.is_held_shut(self.state(), self.conn_flags);
        let has_given_up = match is_held_shut {
            true => self
                .flight
                .has_given_up_shut(cx, self.state(), &self.timers, &self.rx),
            false => self.flight.has_given_up(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &self.timers,
                &self.rx,
            ),
        };
        if has_given_up {
            cx.counters.timed_out += 1;
            return self.fail(self.timers.timeout_error());
        }
        cx.counters.retransmit_timeouts += 1;
        if !is_held_shut {
            if self
                .flight
                .has_retransmitted_for(cx, PATH_RETRIES, &self.timers)
            {
                self.path
                    .suspect_black_hole(cx, &mut self.conn_flags, &mut self.snd, &mut self.tx);
            }
            self.timers.note_timeout(cx);
        }
        self.flight
            .enter_loss(cx, self.conn_flags, &self.snd, &self.timers, &mut self.ecn);
        self.flight.recovery_mut().put(flag::SEND_HEAD, true);
        self.flight.back_off(
            cx,
            self.state(),
            &mut self.conn_flags,
            &self.snd,
            &mut self.timers,
        );
        Effects::NONE
    }

    fn on_syn_timeout(&mut self, cx: &mut Cx<'_>) -> Effects {
        let (retries, linear) = self.timers.syn_retries(cx, self.state(), self.conn_flags);
        let expired = self.timers.retransmits() >= retries.saturating_add(linear)
            || self
                .flight
                .has_retried_syn_for(cx, retries, linear, self.conn_flags, &self.timers)
            || self.flight.user_timeout_passed(
                cx.now_ns,
                self.state(),
                self.conn_flags,
                &self.snd,
                &self.timers,
            );
        let effects = if self.opening.suspects_fast_open(expired, &self.timers) {
            Effects::FAST_OPEN_LOST
        } else {
            Effects::NONE
        };
        if expired {
            cx.counters.timed_out += 1;
            let error = self.timers.timeout_error();
            return effects | self.fail(error);
        }
        self.conn_flags.set(ConnFlags::SYN_DUE);
        self.conn_flags.clear(ConnFlags::TIMING);
        self.timers.note_timeout(cx);
        if self.conn_flags.has(ConnFlags::FAST_OPENED) {
            self.flight.on_syn_ack_timeout(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &mut self.timers,
                &mut self.ecn,
            );
        } else if self.timers.retransmits() < linear {
            self.timers.count_retransmit();
            self.flight.restart_retransmit_timer(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &mut self.timers,
            );
        } else {
            self.flight.back_off(
                cx,
                self.state(),
                &mut self.conn_flags,
                &self.snd,
                &mut self.timers,
            );
        }
        effects
    }

    /// Takes back one doubling of the timeout (RFC 6069): a router reports that the first segment
    /// in flight, a retransmission, did not get through, so its loss is no sign of congestion. If
    /// the shorter timeout has passed already, the connection retransmits at once.
    pub(crate) fn revert_backoff(&mut self, cx: &mut Cx<'_>, quoted_seq: SeqNumber) -> Effects {
        let applies = quoted_seq == self.snd.una()
            && self.conn_flags.may_send_data(self.state())
            && !self.conn_flags.has(ConnFlags::FAST_OPENED)
            && self.timers.retransmits() > 0
            && self.timers.backoff() > 0;
        let Some(head) = self.flight.recovery().head(cx.records) else {
            return Effects::NONE;
        };
        if !applies {
            return Effects::NONE;
        }
        let sent_ns = head.sent_ns;
        self.timers.take_back_backoff(cx.config);
        let due_ns = sent_ns.saturating_add(self.timers.rtt().rto_ns());
        if due_ns > cx.now_ns {
            self.flight
                .arm_pending(Pending::Timeout, due_ns, &mut self.timers);
            return Effects::NONE;
        }
        self.flight.recovery_mut().set_pending(Pending::Timeout);
        self.on_retransmit_timer(cx)
    }
}
