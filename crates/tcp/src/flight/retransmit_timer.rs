//! The retransmission timer: its arming (RFC 6298 5), the user timeout, and the limits at which a
//! connection gives up (RFC 9293 3.8.3).

use crate::MILLISECOND_NS;
use crate::congestion::{CaState, SSTHRESH_INFINITE};
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::ecn::EcnState;
use crate::flight::Flight;
use crate::receive::Receiver;
use crate::recovery::Pending;
use crate::state::State;
use crate::timers::{NEVER_NS, Timers};
use crate::variables::Snd;

/// First timeout with which Linux converts a number of retries into a time.
const USUAL_TIMEOUT_NS: u64 = 200 * MILLISECOND_NS;

/// Number of segments in flight below which a stream is thin: its duplicate ACKs are too few for
/// fast retransmit.
const THIN_SEGMENTS: u32 = 4;

/// Timeouts in a row that do not double on a thin stream.
const THIN_RETRIES_MAX: u8 = 6;

/// Time since `stamp_ms`, a millisecond clock that wraps.
fn since_ns(now_ns: u64, stamp_ms: u32) -> u64 {
    let now_ms = (now_ns / MILLISECOND_NS) as u32;
    u64::from(now_ms.wrapping_sub(stamp_ms)) * MILLISECOND_NS
}

impl Flight {
    /// Runs after the ACK that completed a Fast Open's handshake. Data in flight waits for a whole
    /// timeout from now on, as the SYN-ACK did, and no probe comes before it (Linux).
    pub(crate) fn rearm_after_fast_open(
        &mut self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
    ) {
        let stands_for_probe = self.recovery.is_pending(Pending::Probe);
        if stands_for_probe && timers.retransmit_ns() != NEVER_NS {
            self.restart_retransmit_timer(cx, state, conn_flags, snd, timers);
        }
    }

    /// Starts the timer, if it is not running, when a segment with a sequence number leaves (RFC
    /// 6298 5.1).
    pub(crate) fn start_retransmit_timer(
        &mut self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
    ) {
        if conn_flags.has(ConnFlags::PERSIST) {
            timers.end_persist(conn_flags);
        }
        if timers.retransmit_ns() == NEVER_NS {
            self.restart_retransmit_timer(cx, state, *conn_flags, snd, timers);
        }
    }

    /// Restarts the timer (RFC 6298 5.3).
    pub(crate) fn restart_retransmit_timer(
        &mut self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
    ) {
        let wait_ns = self.paced_wait_ns(cx, timers.rtt().rto_ns(), timers);
        self.arm_timeout(cx, wait_ns, state, conn_flags, snd, timers);
    }

    fn arm_timeout(
        &mut self,
        cx: &Cx<'_>,
        wait_ns: u64,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
    ) {
        let wait_ns = self.within_user_timeout(cx.now_ns, wait_ns, state, conn_flags, snd, timers);
        self.arm_pending(Pending::Timeout, cx.now_ns.saturating_add(wait_ns), timers);
    }

    /// Turns the deadline back into the timeout, or clears it if nothing is in flight. Time that
    /// passed while the deadline stood for a probe or for reordering counts.
    pub(crate) fn rearm_retransmit(
        &mut self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
    ) {
        if conn_flags.has(ConnFlags::FAST_OPENED) {
            // The deadline belongs to the SYN-ACK.
            return;
        }
        if self.recovery.packets_out() == 0 {
            self.arm_pending(Pending::Timeout, NEVER_NS, timers);
            return;
        }
        if self.recovery.is_pending(Pending::Timeout) {
            self.restart_retransmit_timer(cx, state, conn_flags, snd, timers);
            return;
        }
        let wait_ns = self
            .recovery
            .timeout_from_head_ns(timers, cx.records, cx.now_ns)
            .unwrap_or(1000);
        self.arm_timeout(
            cx,
            self.paced_wait_ns(cx, wait_ns, timers),
            state,
            conn_flags,
            snd,
            timers,
        );
    }

    /// Arms the probe's timer or the timeout, after progress.
    #[inline(always)]
    pub(crate) fn set_transmit_timer(
        &mut self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
    ) {
        if !self.schedule_probe(cx, true, conn_flags, timers) {
            self.rearm_retransmit(cx, state, conn_flags, snd, timers);
        }
    }

    /// Arms the deadline with the purpose `pending`.
    pub(crate) fn arm_pending(&mut self, pending: Pending, at_ns: u64, timers: &mut Timers) {
        self.recovery.set_pending(pending);
        timers.arm_retransmit(at_ns);
    }

    /// `wait_ns`, but at most what remains of the user timeout, if that applies.
    pub(crate) fn within_user_timeout(
        &self,
        now_ns: u64,
        wait_ns: u64,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
    ) -> u64 {
        let is_held_shut =
            self.recovery.ca_state() == CaState::Loss && snd.is_held_shut(state, conn_flags);
        let counts = timers.retransmits() > 0 || conn_flags.has(ConnFlags::PERSIST) || is_held_shut;
        if timers.user_timeout_ms() == 0 || !counts {
            return wait_ns;
        }
        let waited_ns = self.user_has_waited_ns(now_ns, state, conn_flags, snd, timers);
        let left_ns = timers.user_timeout_ns().saturating_sub(waited_ns);
        wait_ns.min(left_ns.max(MILLISECOND_NS))
    }

    /// True if nothing was acknowledged for the user timeout (RFC 9293 3.8.3, RFC 5482).
    pub(crate) fn user_timeout_passed(
        &self,
        now_ns: u64,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
    ) -> bool {
        timers.user_timeout_ms() != 0
            && self.user_has_waited_ns(now_ns, state, conn_flags, snd, timers)
                >= timers.user_timeout_ns()
    }

    /// Time that counts towards the user timeout. Before the first timeout it is zero (Linux). For
    /// data it counts from the first retransmission, otherwise from the first transmission of the
    /// due segment.
    fn user_has_waited_ns(
        &self,
        now_ns: u64,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
    ) -> u64 {
        let silent_ns = now_ns.saturating_sub(timers.progress_ns());
        if conn_flags.has(ConnFlags::PERSIST) {
            return silent_ns;
        }
        let is_opening = matches!(state, State::SynSent | State::SynReceived);
        match (timers.retransmits(), self.recovery.retrans_stamp_ms()) {
            (0, 0) => 0,
            (0, _) if !snd.is_held_shut(state, conn_flags) => 0,
            _ if is_opening || conn_flags.has(ConnFlags::FAST_OPENED) => silent_ns,
            (1, 0) => 0,
            (_, 0) => silent_ns,
            (_, stamp_ms) => silent_ns.min(since_ns(now_ns, stamp_ms)),
        }
    }

    /// True if the connection gives up on a peer behind a shut window. The window may stay shut as
    /// long as the peer answers (RFC 9293 SHLD-17). The connection ends when the peer was silent
    /// for twice the longest timeout, or when the user timeout passes, whatever the peer answers
    /// (Linux).
    pub(crate) fn has_given_up_shut(
        &self,
        cx: &Cx<'_>,
        state: State,
        timers: &Timers,
        rx: &Receiver,
    ) -> bool {
        let retransmitted_ns = match self.recovery.retrans_stamp_ms() {
            0 => {
                let head = self.recovery.head(cx.records);
                head.map_or(0, |head| cx.now_ns.saturating_sub(head.sent_ns))
            }
            ms => since_ns(cx.now_ns, ms),
        };
        if timers.user_timeout_ms() != 0 && retransmitted_ns >= timers.user_timeout_ns() {
            return true;
        }
        let longest_ns = timers.rto_ns_max(cx.config);
        // A clock that jumps ends no connection: before so long a silence the timeouts must have
        // grown, unless they do not double.
        let is_slow =
            timers.rtt().rto_ns() >= longest_ns || self.is_thin_and_linear(cx, state, timers);
        let silent_ns = cx.now_ns.saturating_sub(rx.last_ack_ns());
        is_slow && silent_ns.min(retransmitted_ns) > 2 * longest_ns
    }

    /// True if retransmission has lasted as long as `retries` timeouts that begin with `first_ns`
    /// and double. Linux gives up by time and not by number, because the first timeouts of a long
    /// path are long. `waits_ns`: the sum of the timeouts so far, so that a clock that jumps ends
    /// no connection.
    fn has_retried_for(
        &self,
        cx: &Cx<'_>,
        retries: u8,
        first_ns: u64,
        waits_ns: u64,
        timers: &Timers,
    ) -> bool {
        if timers.retransmits() == 0 {
            return false;
        }
        // Progress after the first retransmission starts the time anew.
        let silent_ns = cx.now_ns.saturating_sub(timers.progress_ns());
        let since_ns = match self.recovery.retrans_stamp_ms() {
            0 => silent_ns,
            ms => silent_ns.min(since_ns(cx.now_ns, ms)),
        };
        let longest_ns = timers.rto_ns_max(cx.config);
        let doublings = u32::from(retries).min((longest_ns / first_ns).max(1).ilog2());
        let doubling_ns = ((2 << doublings) - 1) * first_ns;
        let rest = u64::from(u32::from(retries) - doublings);
        since_ns.min(waits_ns) >= doubling_ns.saturating_add(rest.saturating_mul(longest_ns))
    }

    /// True if data has been retransmitted for the time of `retries` usual timeouts.
    pub(crate) fn has_retransmitted_for(&self, cx: &Cx<'_>, retries: u8, timers: &Timers) -> bool {
        let first_ns = timers.rtt().undoubled_ns(cx.config.rto_initial_ns);
        let waits_ns = timers.waits_ns(cx, first_ns, 0);
        self.has_retried_for(cx, retries, USUAL_TIMEOUT_NS, waits_ns, timers)
    }

    /// True if the connection gives up, after enough time without progress (RFC 9293 3.8.3).
    pub(crate) fn has_given_up(
        &self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
        rx: &Receiver,
    ) -> bool {
        let limit = if conn_flags.has(ConnFlags::ORPHAN) {
            cx.config.orphan_retries_max
        } else {
            cx.config.retries_max
        };
        // RFC 9293 MUST-21: the user timeout replaces the default, shorter or longer. An orphan has
        // no user.
        let patient = timers.user_timeout_ms() != 0 && !conn_flags.has(ConnFlags::ORPHAN);
        let exhausted = !patient && self.has_retransmitted_for(cx, limit, timers);
        (exhausted && !self.is_held_by_a_living_peer(cx, conn_flags, snd, rx))
            || self.user_timeout_passed(cx.now_ns, state, conn_flags, snd, timers)
    }

    /// True if the sent data lies beyond a window that shrank and the peer has answered since. That
    /// is no reason to give up (RFC 9293 SHLD-17).
    fn is_held_by_a_living_peer(
        &self,
        cx: &Cx<'_>,
        conn_flags: ConnFlags,
        snd: &Snd,
        rx: &Receiver,
    ) -> bool {
        let head = self.recovery.head(cx.records);
        snd.wnd() < snd.flight()
            && !conn_flags.has(ConnFlags::ORPHAN)
            && head.is_some_and(|head| head.sent_ns <= rx.last_ack_ns())
    }

    /// Handles the second timeout of a Fast Open's SYN-ACK: the data behind it got no answer
    /// either, and is sent again when the SYN-ACK is acknowledged (Linux).
    pub(crate) fn on_syn_ack_timeout(
        &mut self,
        cx: &mut Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
        ecn: &mut EcnState,
    ) {
        if timers.retransmits() == 1 && self.recovery.packets_out() > 0 {
            self.enter_loss(cx, conn_flags, snd, timers, ecn);
        }
        timers.count_retransmit();
        self.arm_syn_ack_timer(cx, state, conn_flags, snd, timers);
    }

    /// Arms the timer of a Fast Open's SYN-ACK. Its wait is that of a half-open connection,
    /// whatever the timeout of its data.
    pub(crate) fn arm_syn_ack_timer(
        &mut self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
    ) {
        let doublings = u32::from(timers.retransmits().min(20));
        let wait_ns = (cx.config.rto_initial_ns << doublings).min(timers.rto_ns_max(cx.config));
        self.arm_timeout(cx, wait_ns, state, conn_flags, snd, timers);
    }

    /// True if the SYN has been retransmitted for the time that its retries would take if all
    /// doubled. For a Fast Open's SYN-ACK the number of retries counts.
    pub(crate) fn has_retried_syn_for(
        &self,
        cx: &Cx<'_>,
        retries: u8,
        linear: u8,
        conn_flags: ConnFlags,
        timers: &Timers,
    ) -> bool {
        let patient = timers.user_timeout_ms() != 0 || conn_flags.has(ConnFlags::FAST_OPENED);
        let first_ns = cx
            .config
            .rto_initial_ns
            .min(timers.rto_ns_max(cx.config))
            .max(1);
        // The wait counts from the SYN, not from its first retransmission.
        let waits_ns = first_ns + timers.waits_ns(cx, first_ns, linear);
        !patient && self.has_retried_for(cx, retries, first_ns, waits_ns, timers)
    }

    /// Doubles the timeout and restarts the timer (RFC 6298 5.5 and 5.6). Nothing in flight is
    /// timed any more (Karn).
    pub(crate) fn back_off(
        &mut self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
    ) {
        conn_flags.clear(ConnFlags::TIMING);
        if !snd.is_held_shut(state, *conn_flags) {
            timers.count_retransmit();
        }
        let is_linear = self.is_thin_and_linear(cx, state, timers);
        timers.back_off(is_linear, cx.config);
        // The retransmission begins a new wait, which includes pacing (Linux).
        self.arm_timeout(cx, timers.rtt().rto_ns(), state, *conn_flags, snd, timers);
    }

    /// True if timeouts do not double for now: little is in flight, and the application or the
    /// stack's settings ask for it (TCP_THIN_LINEAR_TIMEOUTS).
    fn is_thin_and_linear(&self, cx: &Cx<'_>, state: State, timers: &Timers) -> bool {
        (timers.is_thin_linear() || cx.config.thin_linear_timeouts)
            && state == State::Established
            && self.recovery.packets_out() < THIN_SEGMENTS
            && self.congestion.ssthresh() != SSTHRESH_INFINITE
            && timers.retransmits() <= THIN_RETRIES_MAX
    }
}
