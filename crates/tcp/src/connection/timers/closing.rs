//! The timers of a closing connection: TIME_WAIT, and FIN_WAIT_2 once the application is gone.

use crate::config::Config;
use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::limits::FIN_WAIT_2_ENTRY_NS_MAX;
use crate::state::State;
use crate::timers::NOT_AWAITED;

impl Connection {
    /// Enters TIME_WAIT after the last ACK, so that old segments expire (RFC 9293 3.6.1).
    pub(crate) fn enter_time_wait(&mut self, cx: &mut Cx<'_>) -> Effects {
        cx.counters.time_waits += 1;
        self.state.transition_to(State::TimeWait);
        self.timers.disarm_all();
        self.timers
            .arm_slow(cx.now_ns.saturating_add(cx.config.time_wait_ns));
        Effects::TIME_WAIT
    }

    /// Enters FIN_WAIT_2: our FIN is acknowledged. `fin`: the segment has the peer's FIN too, which
    /// is taken next.
    pub(crate) fn enter_fin_wait_2(&mut self, cx: &mut Cx<'_>, fin: bool) -> Effects {
        self.state.transition_to(State::FinWait2);
        self.await_fin(cx, fin)
    }

    /// Limits the wait of an orphan in FIN_WAIT_2. A compact entry waits for the peer's FIN, as in
    /// Linux; the connection itself takes the first part of a long wait. `fin`: the peer's FIN is
    /// taken next.
    pub(crate) fn await_fin(&mut self, cx: &mut Cx<'_>, fin: bool) -> Effects {
        if !self.conn_flags.has(ConnFlags::ORPHAN) {
            return if fin {
                Effects::NONE
            } else {
                Effects::FIN_WAIT_2
            };
        }
        if fin {
            self.timers
                .arm_slow(cx.now_ns.saturating_add(FIN_WAIT_2_ENTRY_NS_MAX));
            return Effects::NONE;
        }
        if self.timers.fin_wait_2_ms() == NOT_AWAITED {
            cx.counters.fin_wait_2_expired += 1;
            return self.send_reset_and_close();
        }
        let wait_ns = self.timers.fin_wait_2_ns(cx.config);
        let beyond_ns = wait_ns.saturating_sub(FIN_WAIT_2_ENTRY_NS_MAX);
        if beyond_ns == 0 {
            return self.leave_in_fin_wait_2(cx, wait_ns);
        }
        self.timers.arm_slow(cx.now_ns.saturating_add(beyond_ns));
        Effects::NONE
    }

    /// Replaces this connection by a compact entry. Data stored beyond a gap is dropped, because
    /// nothing will read it.
    fn leave_in_fin_wait_2(&mut self, cx: &mut Cx<'_>, wait_ns: u64) -> Effects {
        self.rx.held_mut().release(cx.ranges);
        self.timers.disarm_all();
        self.timers.arm_slow(cx.now_ns.saturating_add(wait_ns));
        Effects::TIME_WAIT
    }

    /// True if closing now would leave an entry that waits for the peer's FIN, and no connection
    /// without an application.
    #[must_use]
    pub fn closes_as_entry(&self, config: &Config) -> bool {
        self.state() == State::FinWait2
            && self.timers.fin_wait_2_ms() != NOT_AWAITED
            && self.timers.fin_wait_2_ns(config) <= FIN_WAIT_2_ENTRY_NS_MAX
    }

    /// Resets the peer when it acknowledges our FIN, as if the connection no longer existed
    /// (Linux).
    #[cold]
    pub(crate) fn refuse_the_rest(&mut self, cx: &mut Cx<'_>) -> Effects {
        cx.counters.fin_wait_2_expired += 1;
        self.tx.set_reply_seq(self.snd.una());
        self.conn_flags.set(ConnFlags::REPLY_RESET);
        self.finish_closed()
    }

    pub(super) fn on_time_wait_timer(&mut self) -> Effects {
        self.finish_closed()
    }

    /// Ends the first part of a long wait, or the wait for a FIN that came with the ACK of ours and
    /// was not taken. From now on the peer only gets a RST.
    pub(super) fn on_fin_wait_2_timer(&mut self, cx: &mut Cx<'_>) -> Effects {
        let remaining_ns = self
            .timers
            .fin_wait_2_ns(cx.config)
            .saturating_sub(FIN_WAIT_2_ENTRY_NS_MAX);
        if remaining_ns > 0 {
            return self.leave_in_fin_wait_2(cx, remaining_ns.max(self.timers.least_wait_ns()));
        }
        cx.counters.fin_wait_2_expired += 1;
        self.send_reset_and_close()
    }
}
