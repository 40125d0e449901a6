//! What SEG.ACK covers leaves the records: counts, round trips, signs of reordering and of reneging.

use crate::connection::Connection;
use crate::connection::timestamp::elapsed_ns;
use crate::context::Cx;
use crate::recovery::ack::Ack;
use crate::recovery::acked::Leaving;
use crate::recovery::rate::Busy;
use crate::recovery::records::{Record, tag};

impl Connection {
    /// SND.UNA has moved (or not): records up to it leave.
    #[inline]
    pub(crate) fn take_acked_records(&mut self, cx: &mut Cx<'_>, ack: &mut Ack) {
        let mut leaving = Leaving {
            first_sent_ns: 0,
            last_sent_ns: 0,
            lowest: self.snd.nxt,
            whole: true,
            prior_sacked: self.recovery.sacked_out,
        };
        while let Some(record) = cx.records.get(self.recovery.chain.head).copied() {
            let covered = self.covered(&record);
            if covered == 0 {
                // What is acknowledged of a run is cut off it, be it a part of a segment; a segment alone stays as it was sent (Linux).
                if record.count() > 1 && record.seq.lt(self.snd.una) {
                    if self.recovery.is_part_of(&record) {
                        self.recovery.part_acked(self.snd.una, 0);
                    }
                    self.recovery.trim_head(&self.snd, cx.records);
                }
                break;
            }
            self.leave(cx, &record, covered, ack, &mut leaving);
            if record.end.gt(self.snd.una) {
                leaving.whole = false;
                self.recovery.trim_head(&self.snd, cx.records);
                break;
            }
            self.recovery.drop_head(cx.records);
        }
        let head = cx.records.get(self.recovery.chain.head).copied();
        match &head {
            None if self.unsent() == 0 => self.delivery.rest(cx.now_ns),
            None => self.delivery.stop(cx.now_ns, Busy::Sending),
            Some(head) => ack.reneging = head.has(tag::SACKED),
        }
        self.take_round_trips(cx, ack, &leaving, head.as_ref());
    }

    /// Whole segments of the first record that SND.UNA has passed.
    #[inline]
    fn covered(&self, record: &Record) -> u32 {
        let count = record.count();
        if record.end.le(self.snd.una) {
            return count;
        }
        if count == 1 || self.snd.una.le(record.seq) {
            return 0;
        }
        let mut rest = *record;
        rest.seq = self.snd.una;
        count - rest.count()
    }

    /// `covered` segments of the first record are acknowledged.
    #[inline]
    fn leave(
        &mut self,
        cx: &mut Cx<'_>,
        record: &Record,
        covered: u32,
        ack: &mut Ack,
        leaving: &mut Leaving,
    ) {
        let recovery = &mut self.recovery;
        if record.any(tag::RETRANS | tag::EVER_RETRANS) {
            if record.has(tag::RETRANS) {
                recovery.retrans_out = recovery.retrans_out.saturating_sub(covered);
            }
            ack.retrans_acked = true;
        } else if !record.has(tag::SACKED) {
            leaving.last_sent_ns = record.sent_ns.max(1);
            if leaving.first_sent_ns == 0 {
                leaving.first_sent_ns = leaving.last_sent_ns;
            }
            leaving.lowest = leaving.lowest.min(record.seq);
            ack.original_acked |= record.end.le(recovery.high_seq);
        }
        if record.has(tag::LOST) {
            recovery.lost_out = recovery.lost_out.saturating_sub(covered);
            if recovery.is_part_of(record) {
                recovery.part_acked(self.snd.una, covered);
            }
        }
        recovery.packets_out = recovery.packets_out.saturating_sub(covered);
        ack.acked += covered;
        if record.has(tag::SACKED) {
            recovery.sacked_out = recovery.sacked_out.saturating_sub(covered);
        } else if !self.is_reno() {
            self.recovery.count_delivered(&self.snd, covered, ack.ece);
            if !self.was_needless(record, ack) {
                self.recovery.rack_advance(&self.tx, cx.now_ns, record);
            }
        }
        self.delivery.on_delivered(record, &mut ack.rate);
    }

    /// The echoed timestamp is older than the retransmission: it was the original that arrived (Eifel, RFC 3522).
    fn was_needless(&self, record: &Record, ack: &Ack) -> bool {
        record.any(tag::RETRANS | tag::EVER_RETRANS)
            && ack.echoes_before((record.sent_ns / crate::MILLISECOND_NS) as u32)
    }

    /// RFC 6298 3 (Karn), RFC 7323 4: by the clock from what was sent once, else by the timestamp. Then what the ACK means for
    /// the timer and for the measure of reordering.
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
                // A hole was filled by what was sent once only.
                self.check_reordering(cx, leaving.lowest);
            }
        } else if let (Some(sacked_ns), Some(head), true) = (sacked_ns, head, updated) {
            // Not when the sample is older than the head's last transmission: the timeout would recede for ever.
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

    /// A round trip for the estimate, and one for the least, which was `maybe_delayed` by the receiver.
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
