//! Expiry of the loss probe's timer (RFC 8985 7). [`tlp`](super::tlp) holds the probe itself.

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::flight::Flight;
use crate::flight::send_parts::SendParts;
use crate::recovery::{Pending, flag};

impl Flight {
    /// Plans the probe whose time has come: a new segment if one fits the peer's window, otherwise
    /// the last one again.
    pub(crate) fn on_probe_timer(&mut self, cx: &mut Cx<'_>, parts: &mut SendParts<'_>) {
        if self.recovery.any(flag::TLP) {
            // At most one probe leaves per flight.
            self.rearm_retransmit(cx, parts.state, *parts.conn_flags, parts.snd, parts.timers);
            return;
        }
        let (unsent, mss) = (
            parts.snd.unsent(parts.state, *parts.conn_flags),
            parts
                .ecn
                .current_mss(cx, *parts.conn_flags, parts.snd, parts.timers, parts.rx),
        );
        // The FIN belongs to the last segment, or is all of it.
        let next = unsent.min(mss) + u32::from(parts.conn_flags.fin_unsent() && unsent <= mss);
        if next > 0 && next <= parts.snd.usable() {
            parts.conn_flags.set(ConnFlags::PUSH_DUE);
            self.recovery.put(flag::PROBE_NEW, true);
        } else if !self.recovery.is_tail_sacked(cx.records)
            && self
                .plan_probe(
                    cx,
                    *parts.conn_flags,
                    parts.snd,
                    parts.timers,
                    parts.rx,
                    parts.ecn,
                )
                .is_some()
        {
            self.recovery.put(flag::PROBE_LAST, true);
        } else {
            // Only the timeout may repeat data here, for one of two reasons. The peer's window may
            // have shrunk below the segment. Or the peer has the segment already: a reduction on
            // ECE ended the earlier probe, whose SACK came after this timer was set, and the
            // missing data lies before it.
            self.rearm_retransmit(cx, parts.state, *parts.conn_flags, parts.snd, parts.timers);
            return;
        }
        cx.counters.loss_probes_out += 1;
        // This deadline holds until the probe has left, which restarts the timeout.
        self.recovery.set_pending(Pending::Timeout);
        self.rearm_retransmit(cx, parts.state, *parts.conn_flags, parts.snd, parts.timers);
    }
}
