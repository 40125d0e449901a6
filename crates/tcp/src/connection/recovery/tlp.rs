//! Expiry of the loss probe's timer (RFC 8985 7). `flight::tlp` holds the probe itself.

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::{Pending, flag};

impl Connection {
    /// Plans the probe whose time has come: a new segment if one fits the peer's window, otherwise
    /// the last one again.
    pub(crate) fn on_probe_timer(&mut self, cx: &mut Cx<'_>) {
        if self.flight.recovery().any(flag::TLP) {
            // At most one probe leaves per flight.
            self.flight.rearm_retransmit(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &mut self.timers,
            );
            return;
        }
        let (unsent, mss) = (
            self.snd.unsent(self.state(), self.conn_flags),
            self.ecn
                .current_mss(cx, self.conn_flags, &self.snd, &self.timers, &self.rx),
        );
        // The FIN belongs to the last segment, or is all of it.
        let next = unsent.min(mss) + u32::from(self.conn_flags.fin_unsent() && unsent <= mss);
        if next > 0 && next <= self.snd.usable() {
            self.conn_flags.set(ConnFlags::PUSH_DUE);
            self.flight.recovery_mut().put(flag::PROBE_NEW, true);
        } else if !self.flight.recovery().is_tail_sacked(cx.records)
            && self
                .flight
                .plan_probe(
                    cx,
                    self.conn_flags,
                    &self.snd,
                    &self.timers,
                    &self.rx,
                    &self.ecn,
                )
                .is_some()
        {
            self.flight.recovery_mut().put(flag::PROBE_LAST, true);
        } else {
            // Only the timeout may repeat data here, for one of two reasons. The peer's window may
            // have shrunk below the segment. Or the peer has the segment already: a reduction on
            // ECE ended the earlier probe, whose SACK came after this timer was set, and the
            // missing data lies before it.
            self.flight.rearm_retransmit(
                cx,
                self.state(),
                self.conn_flags,
                &self.snd,
                &mut self.timers,
            );
            return;
        }
        cx.counters.loss_probes_out += 1;
        // This deadline holds until the probe has left, which restarts the timeout.
        self.flight.recovery_mut().set_pending(Pending::Timeout);
        self.flight.rearm_retransmit(
            cx,
            self.state(),
            self.conn_flags,
            &self.snd,
            &mut self.timers,
        );
    }
}
