//! The waits of a connection that is closing: TIME_WAIT, and FIN_WAIT_2 once the application is
//! gone.

use wire::tcp::Flags;

use crate::MILLISECOND_NS;
use crate::config::Config;
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::segment::Segment;
use crate::state::State;
use crate::timers::{NOT_AWAITED, Timers};
use crate::variables::Rcv;

impl Timers {
    /// Restarts TIME_WAIT when the peer repeats its FIN, because it lacks our ACK (RFC 9293
    /// 3.10.7.4, eighth step).
    pub(crate) fn restart_time_wait(
        &mut self,
        cx: &Cx<'_>,
        seg: &Segment,
        state: State,
        rcv: &Rcv,
    ) {
        if state == State::TimeWait && seg.has(Flags::FIN) && seg.end() == rcv.nxt() {
            self.arm_slow(cx.now_ns.saturating_add(cx.config.time_wait_ns));
        }
    }

    /// Wait in FIN_WAIT_2: the configured time, but at least three and a half timeouts (Linux).
    pub(crate) fn fin_wait_2_ns(&self, config: &Config) -> u64 {
        let asked_ns = match self.fin_wait_2_ms {
            0 | NOT_AWAITED => config.fin_wait_2_ns,
            ms => u64::from(ms) * MILLISECOND_NS,
        };
        asked_ns.max(self.least_wait_ns())
    }

    /// True if TCP_LINGER2 is below zero: the connection does not wait for the peer's FIN.
    pub(crate) fn skips_fin_wait_2(&self, conn_flags: ConnFlags) -> bool {
        self.fin_wait_2_ms == NOT_AWAITED && conn_flags.has(ConnFlags::ORPHAN)
    }
}
