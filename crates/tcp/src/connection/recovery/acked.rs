//! The records that SEG.ACK covers are removed: counts, round trips, signs of reordering and of
//! reneging.

use crate::connection::Connection;
use crate::connection::timestamp::elapsed_ns;
use crate::context::Cx;
use crate::records::{Record, tag};
use crate::recovery::ack::Ack;
use crate::recovery::acked::Leaving;
use crate::recovery::rate::Busy;

impl Connection {
    /// SND.UNA has moved (or not): records up to it leave.
    #[inline]
    pub(crate) fn take_acked_records(&mut self, cx: &mut Cx<'_>, ack: &mut Ack) {
        let mut leaving = Leaving {
            first_sent_ns: 0,
            last_sent_ns: 0,
            lowest: self.snd.nxt,
            whole: true,
            prior_sacked: self.recovery.sacked_out(),
        };
        let head = self
            .recovery
            .take_acked(cx, view!(self), &mut self.delivery, ack, &mut leaving);
        match &head {
            None if self.unsent() == 0 => self.delivery.rest(cx.now_ns),
            None => self.delivery.stop(cx.now_ns, Busy::Sending),
            Some(head) => ack.reneging = head.has(tag::SACKED),
        }
        self.take_round_trips(cx, ack, &leaving, head.as_ref());
    }

    /// Takes round trips: by the clock from segments that were sent once (Karn; RFC 6298 3), else
    /// by the timestamp (RFC 7323 4). Their meaning for the timer and for the measure of reordering
    /// follows.
    fn take_round_trips(
        &mut self,
        cx: &mut Cx<'_>,
        ack: &mut Ack,
        leaving: &Leaving,
        head: Option<&Record>,
    ) {
        let since = |sent_ns: u64| cx.now_ns.saturating_sub(sent_ns);
        let mut rtt_ns = None;
        let mut latest_ns = None;
        if leaving.first_sent_ns != 0 && !ack.retrans_acked {
            rtt_ns = Some(since(leaving.first_sent_ns));
            latest_ns = Some(since(leaving.last_sent_ns));
            ack.maybe_delayed = self.recovery.is_maybe_delayed(&self.snd, ack, leaving);
        }
        let sacked_ns = (ack.first_sacked_ns != 0).then(|| since(ack.first_sacked_ns));
        if sacked_ns.is_some() {
            latest_ns = Some(since(ack.last_sacked_ns));
        }
        let updated = self.update_round_trip(cx, ack, rtt_ns.or(sacked_ns), latest_ns);
        if ack.acked > 0 {
            ack.set_timer = true;
            if self.is_reno() {
                self.recovery
                    .remove_reno_sacks(&self.snd, cx.config, cx.counters, ack);
                if ack.retrans_acked {
                    ack.original_acked = false;
                }
            } else if leaving.lowest.lt(ack.prior_highest) {
                // The hole was filled by segments that were sent only once.
                self.check_reordering(cx, leaving.lowest);
            }
        } else if let (Some(sacked_ns), Some(head), true) = (sacked_ns, head, updated) {
            // A sample that is older than the head's last transmission is left out: the timeout
            // would recede for ever.
            ack.set_timer |= sacked_ns > since(head.sent_ns);
        }
    }

    /// Takes the samples. Returns whether there was one.
    fn update_round_trip(
        &mut self,
        cx: &Cx<'_>,
        ack: &mut Ack,
        by_clock_ns: Option<u64>,
        latest_ns: Option<u64>,
    ) -> bool {
        let by_echo_ns = || {
            let echo_ms = ack.echo_ms?;
            let elapsed_ms = self.clock_ms(cx.now_ns).wrapping_sub(echo_ms);
            (ack.acked > 0).then(|| elapsed_ns(elapsed_ms)).flatten()
        };
        let (rtt_ns, latest_ns) = match by_clock_ns {
            Some(rtt_ns) => (rtt_ns, latest_ns.unwrap_or(rtt_ns)),
            None => match by_echo_ns() {
                Some(rtt_ns) => (rtt_ns, rtt_ns),
                None => return false,
            },
        };
        ack.latest_rtt_ns = Some(latest_ns);
        self.take_round_trip(cx, rtt_ns, latest_ns, ack.maybe_delayed);
        true
    }

    /// A round trip for the estimate, and one for the least, which was `maybe_delayed` by the
    /// receiver.
    #[inline]
    pub(super) fn take_round_trip(
        &mut self,
        cx: &Cx<'_>,
        rtt_ns: u64,
        latest_ns: u64,
        maybe_delayed: bool,
    ) {
        let (una, nxt) = (self.snd.una, self.snd.nxt);
        let bounds = self.cold.own_timers.rto_bounds(cx.config);
        let rtt = &mut self.tx.rtt;
        rtt.note_least(latest_ns, maybe_delayed, cx.now_ns, cx.config);
        rtt.sample(rtt_ns, una, nxt, &bounds);
        self.tx.backoff = 0;
    }
}
