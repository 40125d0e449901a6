//! The retransmission timer (RFC 6298 5) and giving up (RFC 9293 3.8.3).

use wire::SeqNumber;

use crate::MILLISECOND_NS;
use crate::congestion::{CaState, SSTHRESH_INFINITE};
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::marks::Marks;
use crate::recovery::{Pending, flag};
use crate::state::{ConnectionError, State};

/// Timeouts for whose usual time nothing must be acknowledged before the path is suspected to
/// swallow long segments: R1 of RFC 9293 3.8.3, Linux's `tcp_retries1`.
const PATH_RETRIES: u8 = 3;
/// The first timeout by which Linux reckons how long a number of retries is.
const USUAL_TIMEOUT_NS: u64 = 200 * MILLISECOND_NS;
/// A stream with fewer segments in flight is thin: its duplicate ACKs are too few for fast
/// retransmit.
const THIN_SEGMENTS: u32 = 4;
/// Timeouts in a row of a thin stream that do not double.
const THIN_RETRIES_MAX: u8 = 6;

impl Connection {
    /// RFC 6298 5.1: something with a sequence number leaves; the timer runs from now on.
    pub(crate) fn start_retransmit_timer(&mut self, cx: &Cx<'_>) {
        if self.marks.has(Marks::PERSIST) {
            self.end_persist();
        }
        if self.tx.timers.retransmit_ns == crate::timers::NEVER_NS {
            self.restart_retransmit_timer(cx);
        }
    }

    /// RFC 6298 5.3: runs afresh.
    pub(crate) fn restart_retransmit_timer(&mut self, cx: &Cx<'_>) {
        let wait_ns = self.paced_wait_ns(cx, self.tx.rtt.rto_ns());
        self.arm_timeout(cx, wait_ns);
    }

    fn arm_timeout(&mut self, cx: &Cx<'_>, wait_ns: u64) {
        let wait_ns = self.within_user_timeout(cx.now_ns, wait_ns);
        self.arm_pending(Pending::Timeout, cx.now_ns.saturating_add(wait_ns));
    }

    /// The timeout takes the deadline back, or the deadline goes when nothing is in flight. While
    /// it stood for a probe or for reordering, time passed that counts.
    pub(crate) fn rearm_retransmit(&mut self, cx: &Cx<'_>) {
        if self.marks.has(Marks::FAST_OPENED) {
            // The deadline is the SYN-ACK's.
            return;
        }
        if self.recovery.packets_out() == 0 {
            self.arm_pending(Pending::Timeout, crate::timers::NEVER_NS);
            return;
        }
        if self.recovery.is_pending(Pending::Timeout) {
            self.restart_retransmit_timer(cx);
            return;
        }
        let wait_ns = self
            .recovery
            .timeout_from_head_ns(&self.tx, cx.records, cx.now_ns)
            .unwrap_or(1000);
        self.arm_timeout(cx, self.paced_wait_ns(cx, wait_ns));
    }

    /// Arms the probe's timer or the timeout, after progress.
    pub(crate) fn set_transmit_timer(&mut self, cx: &Cx<'_>) {
        if !self.schedule_probe(cx, true) {
            self.rearm_retransmit(cx);
        }
    }

    /// Arms the deadline for `pending`.
    pub(crate) fn arm_pending(&mut self, pending: Pending, at_ns: u64) {
        self.recovery.set_pending(pending);
        self.arm_retransmit(at_ns);
    }

    pub(super) fn on_retransmit_timer(&mut self, cx: &mut Cx<'_>) -> Effects {
        self.arm_retransmit(crate::timers::NEVER_NS);
        let pending = self.recovery.pending();
        let effects = match self.state() {
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

    /// `wait_ns`, but no longer than the user timeout has left once it counts.
    pub(super) fn within_user_timeout(&self, now_ns: u64, wait_ns: u64) -> u64 {
        let is_held_shut = self.recovery.ca_state() == CaState::Loss && self.is_held_shut();
        let counts = self.tx.retransmits > 0 || self.marks.has(Marks::PERSIST) || is_held_shut;
        if self.tx.user_timeout_ms == 0 || !counts {
            return wait_ns;
        }
        let waited_ns = self.user_has_waited_ns(now_ns);
        let left_ns = self.tx.user_timeout_ns().saturating_sub(waited_ns);
        wait_ns.min(left_ns.max(MILLISECOND_NS))
    }

    /// Nothing was acknowledged for the time that the user allows (RFC 9293 3.8.3, RFC 5482).
    pub(super) fn user_timeout_passed(&self, now_ns: u64) -> bool {
        self.tx.user_timeout_ms != 0 && self.user_has_waited_ns(now_ns) >= self.tx.user_timeout_ns()
    }

    /// Time that the user has waited. Before the first timeout it is zero (Linux). For data it
    /// counts from that timeout, otherwise from the first transmission of the due segment.
    fn user_has_waited_ns(&self, now_ns: u64) -> u64 {
        let silent_ns = now_ns.saturating_sub(self.tx.progress_ns);
        if self.marks.has(Marks::PERSIST) {
            return silent_ns;
        }
        let is_opening = matches!(self.state(), State::SynSent | State::SynReceived);
        match (self.tx.retransmits, self.recovery.retrans_stamp_ms()) {
            (0, 0) => 0,
            (0, _) if !self.is_held_shut() => 0,
            _ if is_opening || self.is_fast_opened() => silent_ns,
            (1, 0) => 0,
            (_, 0) => silent_ns,
            (_, stamp_ms) => silent_ns.min(since_ns(now_ns, stamp_ms)),
        }
    }

    fn on_data_timeout(&mut self, cx: &mut Cx<'_>) -> Effects {
        let is_held_shut = self.is_held_shut();
        let has_given_up = match is_held_shut {
            true => self.has_given_up_shut(cx),
            false => self.has_given_up(cx),
        };
        if has_given_up {
            cx.counters.timed_out += 1;
            return self.fail(self.tx.soft_error.unwrap_or(ConnectionError::TimedOut));
        }
        cx.counters.retransmit_timeouts += 1;
        if !is_held_shut {
            if self.has_repeated_for(cx, PATH_RETRIES) {
                self.suspect_black_hole(cx);
            }
            self.note_timeout(cx);
        }
        self.enter_loss(cx);
        self.recovery.put(flag::SEND_HEAD, true);
        self.back_off(cx);
        Effects::NONE
    }

    /// True if the peer shut its window on data in flight. Retransmissions are then probes and are
    /// not counted (Linux). For an orphan they count as usual.
    fn is_held_shut(&self) -> bool {
        let is_opening = matches!(self.state(), State::SynSent | State::SynReceived);
        self.snd.wnd == 0 && !is_opening && !self.is_orphan()
    }

    /// True if the connection gives up on a peer behind a shut window. Such a peer may stay as long
    /// as it answers (RFC 9293 SHLD-17). The connection ends once the peer was silent for twice the
    /// longest timeout, or when the user timeout passes, whatever the peer answers (Linux).
    fn has_given_up_shut(&self, cx: &Cx<'_>) -> bool {
        let repeated_ns = match self.recovery.retrans_stamp_ms() {
            0 => {
                let head = self.recovery.head(cx.records);
                head.map_or(0, |head| cx.now_ns.saturating_sub(head.sent_ns))
            }
            ms => since_ns(cx.now_ns, ms),
        };
        if self.tx.user_timeout_ms != 0 && repeated_ns >= self.tx.user_timeout_ns() {
            return true;
        }
        let longest_ns = self.cold.own_timers.rto_ns_max(cx.config);
        // A clock that jumps ends no connection: so long a silence takes timeouts that have grown,
        // where they grow.
        let is_slow = self.tx.rtt.rto_ns() >= longest_ns || self.is_thin_and_linear(cx);
        let silent_ns = cx.now_ns.saturating_sub(self.rx.last_ack_ns());
        is_slow && silent_ns.min(repeated_ns) > 2 * longest_ns
    }

    /// True if retransmission has lasted as long as `retries` timeouts that begin with `first_ns`
    /// and double. Linux gives up by time and not by number, because the first timeouts of a long
    /// path are long. `waits_ns` is the sum of the timeouts so far, so a clock that jumps ends no
    /// connection.
    fn has_retried_for(&self, cx: &Cx<'_>, retries: u8, first_ns: u64, waits_ns: u64) -> bool {
        if self.tx.retransmits == 0 {
            return false;
        }
        // Progress since then begins the count anew.
        let silent_ns = cx.now_ns.saturating_sub(self.tx.progress_ns);
        let since_ns = match self.recovery.retrans_stamp_ms() {
            0 => silent_ns,
            ms => silent_ns.min(since_ns(cx.now_ns, ms)),
        };
        let longest_ns = self.cold.own_timers.rto_ns_max(cx.config);
        let doublings = u32::from(retries).min((longest_ns / first_ns).max(1).ilog2());
        let doubling_ns = ((2 << doublings) - 1) * first_ns;
        let rest = u64::from(u32::from(retries) - doublings);
        since_ns.min(waits_ns) >= doubling_ns.saturating_add(rest.saturating_mul(longest_ns))
    }

    /// The sum of the timeouts so far, of which the first took `first_ns`. Each is twice the one
    /// before it, except the first `linear`.
    fn waits_ns(&self, cx: &Cx<'_>, first_ns: u64, linear: u8) -> u64 {
        let longest_ns = self.cold.own_timers.rto_ns_max(cx.config);
        let (mut wait_ns, mut sum_ns) = (first_ns, 0);
        for timeout in 1..=self.tx.retransmits {
            if timeout > linear {
                wait_ns = wait_ns.saturating_mul(2).min(longest_ns);
            }
            sum_ns += wait_ns;
        }
        sum_ns
    }

    /// True if data has been retransmitted for as long as `retries` usual timeouts take.
    fn has_repeated_for(&self, cx: &Cx<'_>, retries: u8) -> bool {
        let first_ns = self.tx.rtt.undoubled_ns(cx.config.rto_initial_ns);
        let waits_ns = self.waits_ns(cx, first_ns, 0);
        self.has_retried_for(cx, retries, USUAL_TIMEOUT_NS, waits_ns)
    }

    /// Enough time without progress (RFC 9293 3.8.3).
    fn has_given_up(&self, cx: &Cx<'_>) -> bool {
        let limit = if self.is_orphan() {
            cx.config.orphan_retries_max
        } else {
            cx.config.retries_max
        };
        // MUST-21: the user timeout replaces the default, shorter or longer; an orphan has no user.
        let patient = self.tx.user_timeout_ms != 0 && !self.is_orphan();
        let exhausted = !patient && self.has_repeated_for(cx, limit);
        (exhausted && !self.is_held_by_a_living_peer(cx)) || self.user_timeout_passed(cx.now_ns)
    }

    /// True if the sent data lies beyond a window that was drawn back and the peer has answered
    /// since: no reason to give up (RFC 9293 SHLD-17).
    fn is_held_by_a_living_peer(&self, cx: &Cx<'_>) -> bool {
        let head = self.recovery.head(cx.records);
        self.snd.wnd < self.snd.flight()
            && !self.is_orphan()
            && head.is_some_and(|head| head.sent_ns <= self.rx.last_ack_ns())
    }

    fn on_syn_timeout(&mut self, cx: &mut Cx<'_>) -> Effects {
        let (retries, linear) = self.syn_retries(cx);
        let expired = self.tx.retransmits >= retries.saturating_add(linear)
            || self.has_retried_syn_for(cx, retries, linear)
            || self.user_timeout_passed(cx.now_ns);
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
        if self.is_fast_opened() {
            self.on_syn_ack_timeout(cx);
        } else if self.tx.retransmits < linear {
            self.tx.retransmits += 1;
            self.restart_retransmit_timer(cx);
        } else {
            self.back_off(cx);
        }
        effects
    }

    /// The SYN-ACK of a Fast Open got no answer for the second time, so the data behind it got none
    /// either: it is sent again when an ACK of the SYN-ACK has come (Linux).
    fn on_syn_ack_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.tx.retransmits == 1 && self.recovery.packets_out() > 0 {
            self.enter_loss(cx);
        }
        self.tx.retransmits = self.tx.retransmits.saturating_add(1);
        self.arm_syn_ack_timer(cx);
    }

    /// Arms the timer of a Fast Open's SYN-ACK. It waits like a half-open connection's, whatever
    /// the timeout of its data.
    pub(crate) fn arm_syn_ack_timer(&mut self, cx: &Cx<'_>) {
        let doublings = u32::from(self.tx.retransmits.min(20));
        let wait_ns =
            (cx.config.rto_initial_ns << doublings).min(self.cold.own_timers.rto_ns_max(cx.config));
        self.arm_timeout(cx, wait_ns);
    }

    /// A SYN is given as much time as its retries would take if all of them doubled, a Fast Open's
    /// SYN-ACK its number.
    fn has_retried_syn_for(&self, cx: &Cx<'_>, retries: u8, linear: u8) -> bool {
        let patient = self.tx.user_timeout_ms != 0 || self.is_fast_opened();
        let first_ns = cx
            .config
            .rto_initial_ns
            .min(self.cold.own_timers.rto_ns_max(cx.config))
            .max(1);
        // The wait counts from the SYN, not from its first retransmission.
        let waits_ns = first_ns + self.waits_ns(cx, first_ns, linear);
        !patient && self.has_retried_for(cx, retries, first_ns, waits_ns)
    }

    /// Retransmissions of a SYN or SYN-ACK with doubled waits, and those before without doubling.
    /// TCP_SYNCNT sets the former. A Fast Open's SYN-ACK, whose connection is in use already, is
    /// sent once more than others.
    fn syn_retries(&self, cx: &Cx<'_>) -> (u8, u8) {
        let config = cx.config;
        let retries = match self.cold.syn_retries_max {
            0 if self.is_fast_opened() => config.syn_ack_retries_max.saturating_add(1),
            0 => config.syn_retries_max,
            asked => asked,
        };
        match self.state() {
            State::SynSent => (retries, config.syn_linear_timeouts_max),
            _ => (retries, 0),
        }
    }

    fn note_timeout(&mut self, cx: &Cx<'_>) {
        let now_ms = self.clock_ms(cx.now_ns);
        self.cold.tally.note(self.tx.retransmits == 0, now_ms);
    }

    /// RFC 6298 5.5 and 5.6: twice the timeout, and the timer again. Karn: nothing in flight is
    /// timed.
    fn back_off(&mut self, cx: &Cx<'_>) {
        self.marks.clear(Marks::TIMING);
        if !self.is_held_shut() {
            self.tx.retransmits = self.tx.retransmits.saturating_add(1);
        }
        let bounds = self.cold.own_timers.rto_bounds(cx.config);
        if self.is_thin_and_linear(cx) {
            self.tx.backoff = 0;
            self.tx.rtt.recompute(&bounds);
        } else {
            self.tx.backoff = self.tx.backoff.saturating_add(1);
            self.tx.rtt.back_off(&bounds);
        }
        // The retransmission begins another wait, which includes pacing (Linux).
        self.arm_timeout(cx, self.tx.rtt.rto_ns());
    }

    /// Little is in flight, and the application or the stack's settings want no doubling then, for
    /// a while (TCP_THIN_LINEAR_TIMEOUTS).
    fn is_thin_and_linear(&self, cx: &Cx<'_>) -> bool {
        (self.cold.own_timers.thin_linear || cx.config.thin_linear_timeouts)
            && self.state() == State::Established
            && self.recovery.packets_out() < THIN_SEGMENTS
            && self.congestion.ssthresh() != SSTHRESH_INFINITE
            && self.tx.retransmits <= THIN_RETRIES_MAX
    }

    /// RFC 6069: a router reports that the first segment in flight, which was retransmitted, did
    /// not get through. Its loss is no sign of congestion, so one doubling of the timeout is taken
    /// back. A connection that is overdue by the shorter timeout retransmits at once.
    pub(crate) fn revert_backoff(&mut self, cx: &mut Cx<'_>, quoted_seq: SeqNumber) -> Effects {
        let applies = quoted_seq == self.snd.una
            && self.may_send_data()
            && !self.marks.has(Marks::FAST_OPENED)
            && self.tx.retransmits > 0
            && self.tx.backoff > 0;
        let Some(head) = self.recovery.head(cx.records) else {
            return Effects::NONE;
        };
        if !applies {
            return Effects::NONE;
        }
        let sent_ns = head.sent_ns;
        self.tx.backoff -= 1;
        let bounds = self.cold.own_timers.rto_bounds(cx.config);
        self.tx
            .rtt
            .recompute_after(cx.config.rto_initial_ns, self.tx.backoff, &bounds);
        let due_ns = sent_ns.saturating_add(self.tx.rtt.rto_ns());
        if due_ns > cx.now_ns {
            self.arm_pending(Pending::Timeout, due_ns);
            return Effects::NONE;
        }
        self.recovery.set_pending(Pending::Timeout);
        self.on_retransmit_timer(cx)
    }
}

/// The time since `stamp_ms`, a clock of milliseconds that wraps.
fn since_ns(now_ns: u64, stamp_ms: u32) -> u64 {
    let now_ms = (now_ns / MILLISECOND_NS) as u32;
    u64::from(now_ms.wrapping_sub(stamp_ms)) * MILLISECOND_NS
}
