//! Round trips of records that SEG.ACK covers, and signs of reordering.

use crate::context::Cx;
use crate::flight::Flight;
use crate::flight::send_parts::SendParts;
use crate::records::Record;
use crate::recovery::ack::Ack;
use crate::recovery::acked::RemovedRecords;

impl Flight {
    /// Takes round trips: by the clock from segments that were sent once (Karn; RFC 6298 3),
    /// otherwise by the timestamp (RFC 7323 4). Then applies them to the timer and to the measure
    /// of reordering.
    #[inline]
    pub(crate) fn take_round_trips(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &mut Ack,
        removed: &RemovedRecords,
        head: Option<&Record>,
        parts: &mut SendParts<'_>,
    ) {
        let since = |sent_ns: u64| cx.now_ns.saturating_sub(sent_ns);
        let mut rtt_ns = None;
        let mut latest_ns = None;
        if removed.first_sent_ns != 0 && !ack.retrans_acked {
            rtt_ns = Some(since(removed.first_sent_ns));
            latest_ns = Some(since(removed.last_sent_ns));
            ack.maybe_delayed = self.recovery.is_maybe_delayed(parts.snd, ack, removed);
        }
        let sacked_ns = (ack.first_sacked_ns != 0).then(|| since(ack.first_sacked_ns));
        if sacked_ns.is_some() {
            latest_ns = Some(since(ack.last_sacked_ns));
        }
        let sample = match rtt_ns.or(sacked_ns) {
            Some(rtt_ns) => Some((rtt_ns, latest_ns.unwrap_or(rtt_ns))),
            None => ack.rtt_by_echo(cx.now_ns).map(|rtt_ns| (rtt_ns, rtt_ns)),
        };
        if let Some((rtt_ns, latest_ns)) = sample {
            ack.latest_rtt_ns = Some(latest_ns);
            parts
                .timers
                .take_round_trip(cx, rtt_ns, latest_ns, ack.maybe_delayed, parts.snd);
        }
        if ack.acked > 0 {
            ack.set_timer = true;
            if parts.conn_flags.is_reno() {
                self.recovery
                    .remove_reno_sacks(parts.snd, cx.config, cx.counters, ack);
                if ack.retrans_acked {
                    ack.original_acked = false;
                }
            } else if removed.lowest.lt(ack.prior_highest) {
                // The gap was filled by segments that were sent only once, so they were reordered.
                self.check_reordering(
                    cx,
                    removed.lowest,
                    *parts.conn_flags,
                    parts.snd,
                    parts.timers,
                );
            }
        } else if let (Some(sacked_ns), Some(head), true) = (sacked_ns, head, sample.is_some()) {
            // A SACKed segment that was sent before the head's last transmission does not restart
            // the timer, or the timeout would move away for ever.
            ack.set_timer |= sacked_ns > since(head.sent_ns);
        }
    }
}
