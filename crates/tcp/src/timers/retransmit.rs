//! The retransmission timer (RFC 6298 5) and giving up (RFC 9293 3.8.3).

use crate::MILLISECOND_NS;
use crate::connection::{Connection, Cx};
use crate::effects::Effects;
use crate::marks::Marks;
use crate::recovery::{Pending, flag};
use crate::state::{ConnectionError, State};

/// Timeouts in a row after which the path is suspected to swallow long segments: R1 of RFC 9293 3.8.3, Linux's `tcp_retries1`.
const PATH_RETRIES: u8 = 3;

impl Connection {
    /// RFC 6298 5.1: something with a sequence number leaves; the timer runs from now on.
    pub(crate) fn start_retransmit_timer(&mut self, cx: &Cx<'_>) {
        if self.marks.has(Marks::PERSIST) {
            self.end_persist();
        }
        if self.tx.timers.retransmit_ns == super::NEVER_NS {
            self.restart_retransmit_timer(cx);
        }
    }

    /// RFC 6298 5.3: runs afresh.
    pub(crate) fn restart_retransmit_timer(&mut self, cx: &Cx<'_>) {
        let wait_ns = self.within_user_timeout(cx.now_ns, self.tx.rtt.rto_ns());
        self.arm_pending(Pending::Timeout, cx.now_ns.saturating_add(wait_ns));
    }

    /// The timeout takes the deadline back, or the deadline goes when nothing is in flight. While it stood for a probe or for
    /// reordering, time passed that counts.
    pub(crate) fn rearm_retransmit(&mut self, cx: &Cx<'_>) {
        if self.marks.has(Marks::FAST_OPENED) {
            // The deadline is the SYN-ACK's.
            return;
        }
        if self.recovery.packets_out == 0 {
            self.arm_pending(Pending::Timeout, super::NEVER_NS);
            return;
        }
        if self.recovery.pending == Pending::Timeout {
            self.restart_retransmit_timer(cx);
            return;
        }
        let wait_ns = self.timeout_from_head_ns(cx).unwrap_or(1000);
        let wait_ns = self.within_user_timeout(cx.now_ns, wait_ns);
        self.arm_pending(Pending::Timeout, cx.now_ns.saturating_add(wait_ns));
    }

    /// After progress: the probe's timer, or the timeout.
    pub(crate) fn set_transmit_timer(&mut self, cx: &Cx<'_>) {
        if !self.schedule_probe(cx, true) {
            self.rearm_retransmit(cx);
        }
    }

    /// The deadline stands for `pending` now.
    pub(crate) fn arm_pending(&mut self, pending: Pending, at_ns: u64) {
        self.recovery.pending = pending;
        self.arm_retransmit(at_ns);
    }

    pub(super) fn on_retransmit_timer(&mut self, cx: &mut Cx<'_>) -> Effects {
        self.arm_retransmit(super::NEVER_NS);
        let pending = self.recovery.pending;
        let effects = match self.state {
            State::SynSent | State::SynReceived => self.on_syn_timeout(cx),
            // Closed before the handshake was complete: the SYN-ACK still comes first.
            _ if self.marks.has(Marks::FAST_OPENED) => self.on_syn_timeout(cx),
            _ if self.marks.has(Marks::PERSIST) => self.on_persist_timer(cx),
            _ if self.snd.flight() == 0 => Effects::NONE,
            _ => match pending {
                Pending::Timeout => self.on_data_timeout(cx),
                Pending::Reorder => {
                    self.on_reorder_timer(cx);
                    Effects::NONE
                }
                Pending::Probe => {
                    self.on_probe_timer(cx);
                    Effects::NONE
                }
            },
        };
        self.after_recovery_event();
        effects
    }

    /// `wait_ns`, but no longer than the user timeout has left.
    pub(super) fn within_user_timeout(&self, now_ns: u64, wait_ns: u64) -> u64 {
        if self.tx.user_timeout_ms == 0 {
            return wait_ns;
        }
        let end_ns = self.tx.progress_ns.saturating_add(self.user_timeout_ns());
        wait_ns.min(end_ns.saturating_sub(now_ns).max(MILLISECOND_NS))
    }

    /// Nothing was acknowledged for the time that the user allows (RFC 9293 3.8.3, RFC 5482).
    pub(super) fn user_timeout_passed(&self, now_ns: u64) -> bool {
        self.tx.user_timeout_ms != 0
            && now_ns.saturating_sub(self.tx.progress_ns) >= self.user_timeout_ns()
    }

    fn on_data_timeout(&mut self, cx: &mut Cx<'_>) -> Effects {
        if self.has_given_up(cx) {
            cx.counters.timed_out += 1;
            return self.fail(self.tx.soft_error.unwrap_or(ConnectionError::TimedOut));
        }
        cx.counters.retransmit_timeouts += 1;
        if self.tx.retransmits >= PATH_RETRIES {
            self.suspect_black_hole(cx);
        }
        self.note_timeout(cx);
        self.enter_loss(cx);
        self.recovery.put(flag::SEND_HEAD, true);
        self.back_off(cx);
        Effects::NONE
    }

    /// Enough timeouts without progress (RFC 9293 3.8.3).
    fn has_given_up(&self, cx: &Cx<'_>) -> bool {
        let limit = if self.is_orphan() {
            cx.config.orphan_retries_max
        } else {
            cx.config.retries_max
        };
        // MUST-21: the user's patience takes the place of the default, shorter or longer; an orphan has no user.
        let patient = self.tx.user_timeout_ms != 0 && !self.is_orphan();
        let exhausted = !patient && self.tx.retransmits >= limit;
        exhausted || self.user_timeout_passed(cx.now_ns)
    }

    fn on_syn_timeout(&mut self, cx: &mut Cx<'_>) -> Effects {
        let (retries, linear) = self.syn_retries(cx);
        let expired = self.tx.retransmits >= retries || self.user_timeout_passed(cx.now_ns);
        let effects = if self.suspects_fast_open(expired) {
            Effects::FAST_OPEN_LOST
        } else {
            Effects::NONE
        };
        if expired {
            cx.counters.timed_out += 1;
            let error = self.tx.soft_error.unwrap_or(ConnectionError::TimedOut);
            return effects | self.fail(error);
        }
        self.marks.set(Marks::SYN_DUE);
        self.marks.clear(Marks::TIMING);
        self.note_timeout(cx);
        if self.tx.retransmits < linear {
            self.tx.retransmits += 1;
            self.restart_retransmit_timer(cx);
        } else {
            self.back_off(cx);
        }
        effects
    }

    /// How often a SYN or SYN-ACK is sent again, and how many of these times without doubling. Who asked for a number (TCP_SYNCNT)
    /// gets that number and exponential waits; a Fast Open's SYN-ACK, whose connection is in use already, gets one more.
    fn syn_retries(&self, cx: &Cx<'_>) -> (u8, u8) {
        let config = cx.config;
        match (self.state, self.cold.syn_retries_max) {
            (State::SynSent, 0) => {
                let linear = config.syn_linear_timeouts_max;
                (config.syn_retries_max.saturating_add(linear), linear)
            }
            (_, 0) => {
                let more = u8::from(self.is_fast_opened());
                (config.syn_ack_retries_max.saturating_add(more), 0)
            }
            (_, asked) => (asked, 0),
        }
    }

    fn note_timeout(&mut self, cx: &Cx<'_>) {
        let now_ms = self.clock_ms(cx.now_ns);
        self.cold.tally.note(self.tx.retransmits == 0, now_ms);
    }

    /// RFC 6298 5.5 and 5.6: twice the timeout, and the timer again. Karn: nothing in flight is timed.
    fn back_off(&mut self, cx: &Cx<'_>) {
        self.marks.clear(Marks::TIMING);
        self.tx.retransmits = self.tx.retransmits.saturating_add(1);
        self.tx.backoff = self.tx.backoff.saturating_add(1);
        self.tx.rtt.back_off(cx.config);
        self.restart_retransmit_timer(cx);
    }
}
