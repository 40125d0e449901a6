//! The end of the loss probe's timer (RFC 8985 7). `flight::tlp` holds the probe itself.

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::{Pending, flag};

impl Connection {
    /// The probe's time has come: a new segment if one fits the peer's window, else the last one
    /// again.
    pub(crate) fn on_probe_timer(&mut self, cx: &mut Cx<'_>) {
        if self.flight.recovery().any(flag::TLP) {
            // One probe leaves per flight.
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
        // The FIN is part of the last segment, or all of it.
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
            // The peer's window shrank below the segment, so only the timeout may repeat data
            // beyond the edge. Or the peer has the segment already: a reduction on ECE ended the
            // earlier probe, and its SACK came after this timer was set. Missing data then lies
            // before it.
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
        // Until the probe has left, and starts the timeout anew.
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
