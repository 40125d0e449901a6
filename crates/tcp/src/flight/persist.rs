//! The persist timer (RFC 9293 3.8.6.1): when it is armed, how long it waits, when it gives up.

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::flight::Flight;
use crate::state::State;
use crate::timers::{NEVER_NS, Timers};
use crate::variables::Snd;

impl Flight {
    /// Arms the persist timer if nothing can be sent now, something waits, and no other timer would
    /// send it.
    pub(crate) fn arm_persist_if_stuck(
        &self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
    ) {
        let waits = snd.unsent(state, *conn_flags) > 0 || conn_flags.fin_unsent();
        if !waits || snd.flight() > 0 || !state.sends_data() {
            return;
        }
        if timers.retransmit_ns() != NEVER_NS {
            return;
        }
        conn_flags.set(ConnFlags::PERSIST);
        timers.note_progress(cx.now_ns);
        let wait_ns = timers.rtt().rto_ns().max(timers.rto_ns_min(cx.config));
        let wait_ns = self.paced_wait_ns(cx, wait_ns, timers);
        timers.arm_retransmit(cx.now_ns.saturating_add(wait_ns));
    }

    /// Restarts the wait for the next probe: the peer has answered, and its window is still shut
    /// (Linux).
    pub(crate) fn restart_probing(
        &self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &mut Timers,
    ) {
        if snd.usable() == 0 && timers.port_blocked_at() == 0 {
            let wait_ns = self.probe_interval_ns(cx, state, conn_flags, snd, timers);
            timers.arm_retransmit(cx.now_ns.saturating_add(wait_ns));
        }
    }

    pub(crate) fn persist_exhausted(
        &self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
    ) -> bool {
        let limit = if conn_flags.has(ConnFlags::ORPHAN) {
            cx.config.orphan_retries_max
        } else {
            cx.config.retries_max
        };
        // No application waits for an orphan, so a peer that answers but never opens its window
        // does not keep it alive (Linux).
        let overdue = conn_flags.has(ConnFlags::ORPHAN)
            && timers.backoff() >= limit
            && self.probe_interval_ns(cx, state, conn_flags, snd, timers)
                >= timers.rto_ns_max(cx.config);
        timers.probes() >= limit
            || overdue
            || self.user_timeout_passed(cx.now_ns, state, conn_flags, snd, timers)
    }

    /// The wait before the next probe: the timeout at first, then exponentially longer (RFC 9293
    /// SHLD-29, SHLD-30).
    pub(crate) fn probe_interval_ns(
        &self,
        cx: &Cx<'_>,
        state: State,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
    ) -> u64 {
        let base_ns = timers.rtt().rto_ns().max(timers.rto_ns_min(cx.config));
        let doublings = u32::from(timers.backoff().min(20));
        let wait_ns = (base_ns << doublings).min(timers.rto_ns_max(cx.config));
        self.within_user_timeout(
            cx.now_ns,
            self.paced_wait_ns(cx, wait_ns, timers),
            state,
            conn_flags,
            snd,
            timers,
        )
    }
}
