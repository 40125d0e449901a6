//! The Loss state is entered: a retransmission timeout (RFC 6298 5), or segments that the path does not
//! carry any more.

use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::recovery::flag;
use crate::recovery::records::{NONE, Record, tag};

impl Connection {
    /// The retransmission timeout fired: what is older than a round trip is lost, and the window is one segment more than what
    /// is left in flight (RFC 5681 3.1).
    pub(crate) fn enter_loss(&mut self, cx: &mut Cx<'_>) {
        let before_recovery = self.recovery.is_before_recovery();
        // Timeouts into a window that is shut are not counted, so each begins anew and none is put to the test of F-RTO.
        let is_counted = self.tx.retransmits > 0;
        self.timeout_mark_lost(cx);
        let recovery = &self.recovery;
        let first = matches!(recovery.ca_state, CaState::Open | CaState::Disorder)
            || recovery.high_seq.le(self.snd.una)
            || (recovery.ca_state == CaState::Loss && !is_counted);
        if first {
            let moment = self.moment(cx);
            self.congestion.begin_loss(&moment, self.current_ssthresh());
            self.recovery.begin_undo(&self.snd);
        }
        self.congestion
            .restart(self.recovery.in_flight(), cx.now_ns);
        // Many duplicates and still a timeout: reordering was overestimated.
        let default = u16::from(cx.config.dup_acks_max);
        let recovery = &mut self.recovery;
        if matches!(recovery.ca_state, CaState::Open | CaState::Disorder)
            && recovery.sacked_out >= u32::from(default)
        {
            recovery.reordering = recovery.reordering.min(default);
        }
        self.set_ca_state(cx, CaState::Loss);
        let recovery = &mut self.recovery;
        recovery.high_seq = self.snd.nxt;
        recovery.put(flag::TLP | flag::SEND, false);
        let frto = cx.config.frto && (before_recovery || is_counted);
        recovery.put(flag::FRTO, frto);
        self.ecn.queue_cwr(self.snd.ecn);
    }

    /// All is lost but what was sent less than a round trip ago. A receiver whose first hole is SACKed has reneged (RFC 2018 8): its
    /// SACKs are forgotten.
    fn timeout_mark_lost(&mut self, cx: &mut Cx<'_>) {
        let head = self.recovery.chain.head;
        let reneged = cx
            .records
            .get(head)
            .is_some_and(|record| record.has(tag::SACKED));
        if reneged {
            cx.counters.sack_reneged += 1;
            self.recovery.sacked_out = 0;
            self.recovery.highest = NONE;
            self.recovery.put(flag::RENEGING, true);
        } else if self.is_reno() {
            self.recovery.reset_reno_sack();
        }
        let mut at = head;
        while let Some(record) = cx.records.get_mut(at) {
            let next_of = at;
            if reneged {
                record.tags &= !(tag::SACKED | tag::SETTLED);
            }
            let record = *record;
            at = cx.records.next(at);
            let recent = next_of != head
                && !reneged
                && self.recovery.rack_remaining_us(cx.now_ns, &record, 0) > 0;
            if !recent {
                self.recovery.mark_lost(cx.records, cx.counters, next_of);
            }
        }
        self.recovery.hint = NONE;
    }

    /// The path takes smaller segments only: what is too long is sent again, without a reduction of the
    /// window (RFC 1191 6.5 leaves the window in segments).
    pub(crate) fn resend_too_long(&mut self, cx: &mut Cx<'_>) {
        let mss = self.snd.mss;
        let mut at = self.recovery.chain.head;
        while let Some(record) = cx.records.get(at).copied() {
            if record.mss > mss && record.payload() > u32::from(mss) {
                self.recovery.mark_lost(cx.records, cx.counters, at);
            }
            at = cx.records.next(at);
        }
        if self.recovery.lost_out == 0 {
            return;
        }
        if self.is_reno() {
            self.recovery.limit_reno_sacked();
        }
        self.resend_without_reduction(cx);
    }

    /// The first segment in flight was a probe of the path's MTU, too long for it: sent again in pieces that fit.
    pub(crate) fn resend_path_probe(&mut self, cx: &mut Cx<'_>) {
        self.recovery
            .mark_lost(cx.records, cx.counters, self.recovery.chain.head);
        self.resend_without_reduction(cx);
    }

    /// The payload of our SYN did not arrive with it (RFC 7413 4.2): it is sent again at once.
    pub(crate) fn resend_syn_data(&mut self, cx: &mut Cx<'_>) {
        let (una, nxt) = (self.snd.una, self.snd.nxt);
        let (mss, sent_ns) = (self.snd.mss, self.tx.rtt.timed_at_ns);
        // A SYN bears no PSH; what it bore does (Linux).
        let record = Record::new(una, nxt, mss, sent_ns, tag::PUSHED);
        let pushed = self.recovery.chain.push(cx.records, record, false);
        self.recovery.packets_out += pushed.unwrap_or_default();
        self.recovery
            .mark_lost(cx.records, cx.counters, self.recovery.chain.head);
        self.resend_without_reduction(cx);
    }

    /// Losses that congestion did not cause: sent again as fast as the window lets them.
    pub(crate) fn resend_without_reduction(&mut self, cx: &mut Cx<'_>) {
        if self.recovery.ca_state != CaState::Loss {
            self.recovery.high_seq = self.snd.nxt;
            self.congestion.hold_threshold(self.current_ssthresh());
            self.recovery.put(flag::UNDO, false);
            self.set_ca_state(cx, CaState::Loss);
        }
        self.recovery.put(flag::SEND_LOST, true);
        self.after_recovery_event();
    }

    /// The threshold that would remember the window now; while it is being reduced, the one that is set.
    pub(crate) fn current_ssthresh(&self) -> u32 {
        if self.recovery.is_reducing() {
            self.congestion.ssthresh()
        } else {
            self.congestion.current_ssthresh()
        }
    }
}
