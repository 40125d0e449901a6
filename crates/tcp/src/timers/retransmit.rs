//! Timeouts in a row: their number and their sum (RFC 6298 5, RFC 9293 3.8.3).

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::state::State;
use crate::timers::Timers;
use crate::timestamp::clock_ms;

impl Timers {
    /// The sum of the timeouts so far. The first took `first_ns`; each later one is twice the one
    /// before it, except for the first `linear`.
    pub(crate) fn waits_ns(&self, cx: &Cx<'_>, first_ns: u64, linear: u8) -> u64 {
        let longest_ns = self.own.rto_ns_max(cx.config);
        let (mut wait_ns, mut sum_ns) = (first_ns, 0);
        for timeout in 1..=self.retransmits {
            if timeout > linear {
                wait_ns = wait_ns.saturating_mul(2).min(longest_ns);
            }
            sum_ns += wait_ns;
        }
        sum_ns
    }

    /// Limits of a SYN's or SYN-ACK's retransmissions: those with doubled waits (TCP_SYNCNT), and
    /// those before them without doubling. A Fast Open's SYN-ACK gets one retransmission more,
    /// because its connection is in use already.
    pub(crate) fn syn_retries(&self, cx: &Cx<'_>, state: State, conn_flags: ConnFlags) -> (u8, u8) {
        let config = cx.config;
        let retries = match self.syn_retries_max {
            0 if conn_flags.has(ConnFlags::FAST_OPENED) => {
                config.syn_ack_retries_max.saturating_add(1)
            }
            0 => config.syn_retries_max,
            asked => asked,
        };
        match state {
            State::SynSent => (retries, config.syn_linear_timeouts_max),
            _ => (retries, 0),
        }
    }

    pub(crate) fn note_timeout(&mut self, cx: &Cx<'_>) {
        let now_ms = clock_ms(cx.now_ns);
        self.tally.note(self.retransmits == 0, now_ms);
    }
}
