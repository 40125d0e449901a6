//! The timers of a connection that is closing: TIME_WAIT, and FIN_WAIT_2 once the application is gone.

use crate::connection::{Connection, Cx};
use crate::effects::Effects;
use crate::marks::Marks;
use crate::state::State;

impl Connection {
    /// RFC 9293 3.6.1: the last ACK is out, old segments die out.
    pub(crate) fn enter_time_wait(&mut self, cx: &mut Cx<'_>) -> Effects {
        cx.counters.time_waits += 1;
        self.state = State::TimeWait;
        self.disarm_all();
        self.arm_slow(cx.now_ns.saturating_add(cx.config.time_wait_ns));
        Effects::TIME_WAIT
    }

    /// Our FIN is acknowledged. An orphan waits for the peer's only so long: nobody would read its data.
    pub(crate) fn enter_fin_wait_2(&mut self, cx: &mut Cx<'_>) -> Effects {
        self.state = State::FinWait2;
        if !self.is_orphan() {
            return Effects::NONE;
        }
        let wait_ns = match self.cold.fin_wait_2_ms {
            None => {
                cx.counters.fin_wait_2_expired += 1;
                return self.send_reset_and_close();
            }
            Some(0) => cx.config.fin_wait_2_ns,
            Some(ms) => u64::from(ms) * crate::MILLISECOND_NS,
        };
        self.arm_slow(cx.now_ns.saturating_add(wait_ns));
        Effects::NONE
    }

    /// TCP_LINGER2 below zero: nobody waits for the peer's FIN.
    pub(crate) fn skips_fin_wait_2(&self) -> bool {
        self.cold.fin_wait_2_ms.is_none() && self.is_orphan()
    }

    /// As Linux we answer the ACK of our FIN as if there were no connection any more.
    #[cold]
    pub(crate) fn refuse_the_rest(&mut self, cx: &mut Cx<'_>) -> Effects {
        cx.counters.fin_wait_2_expired += 1;
        self.tx.reply_seq = self.snd.una;
        self.marks.set(Marks::REPLY_RESET);
        self.finish_closed()
    }

    pub(super) fn on_time_wait_timer(&mut self) -> Effects {
        self.finish_closed()
    }

    pub(super) fn on_fin_wait_2_timer(&mut self, cx: &mut Cx<'_>) -> Effects {
        cx.counters.fin_wait_2_expired += 1;
        self.finish_closed()
    }
}
