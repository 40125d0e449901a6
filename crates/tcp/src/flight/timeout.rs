//! Entry into the Loss state: after a retransmission timeout (RFC 6298 5), or for segments that the
//! path does not carry any more.

use crate::congestion::CaState;
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::ecn::EcnState;
use crate::flight::Flight;
use crate::records::{Record, tag};
use crate::recovery::flag;
use crate::timers::Timers;
use crate::variables::Snd;

impl Flight {
    /// Handles a retransmission timeout: data older than a round trip is lost, and the window is
    /// one segment more than the data left in flight (RFC 5681 3.1).
    pub(crate) fn enter_loss(
        &mut self,
        cx: &mut Cx<'_>,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
        ecn: &mut EcnState,
    ) {
        let before_recovery = self.recovery.is_before_recovery();
        // Timeouts into a shut window are not counted, so each begins a new episode and none is
        // tested by F-RTO.
        let is_counted = timers.retransmits() > 0;
        let has_sack = !conn_flags.is_reno();
        self.recovery.timeout_mark_lost(cx, has_sack);
        let recovery = &self.recovery;
        let first = matches!(recovery.ca_state(), CaState::Open | CaState::Disorder)
            || recovery.high_seq().le(snd.una())
            || (recovery.ca_state() == CaState::Loss && !is_counted);
        if first {
            let moment = self.moment(cx, snd);
            self.congestion.begin_loss(&moment, self.current_ssthresh());
            self.recovery.begin_undo(snd);
        }
        self.congestion
            .restart(self.recovery.in_flight(), cx.now_ns);
        self.recovery
            .limit_reordering(u16::from(cx.config.dup_acks_max));
        self.set_ca_state(cx, CaState::Loss, snd);
        let frto = cx.config.frto && (before_recovery || is_counted);
        self.recovery.begin_loss(snd.nxt(), frto);
        ecn.queue_cwr(snd.ecn());
    }

    /// Sends again the segments that are too long for the path, without a reduction of the window
    /// (RFC 1191 6.5 keeps the window in segments).
    pub(crate) fn retransmit_too_long(
        &mut self,
        cx: &mut Cx<'_>,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
    ) {
        if !self.recovery.mark_too_long(cx, snd.mss()) {
            return;
        }
        if conn_flags.is_reno() {
            self.recovery.limit_reno_sacked();
        }
        self.retransmit_without_reduction(cx, conn_flags, snd);
    }

    /// Sends a probe of the path's MTU again in pieces that fit. The probe was the first segment in
    /// flight and too long.
    pub(crate) fn retransmit_path_probe(
        &mut self,
        cx: &mut Cx<'_>,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
    ) {
        self.recovery.mark_head_lost(cx);
        self.retransmit_without_reduction(cx, conn_flags, snd);
    }

    /// Sends the payload of our SYN again at once, because the SYN-ACK did not acknowledge it (RFC
    /// 7413 4.2).
    pub(crate) fn retransmit_syn_data(
        &mut self,
        cx: &mut Cx<'_>,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
        timers: &Timers,
    ) {
        let (una, nxt) = (snd.una(), snd.nxt());
        let (mss, sent_ns) = (snd.mss(), timers.syn_sent_ns());
        // A SYN carries no PSH, but its data is retransmitted with one (Linux).
        let record = Record::new(una, nxt, mss, sent_ns, tag::PUSHED);
        self.recovery.push_lost(cx, record);
        self.retransmit_without_reduction(cx, conn_flags, snd);
    }

    /// Sends lost segments again as fast as the window allows. Congestion did not cause the loss,
    /// so the window is not reduced.
    pub(crate) fn retransmit_without_reduction(
        &mut self,
        cx: &mut Cx<'_>,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
    ) {
        if self.recovery.ca_state() != CaState::Loss {
            self.recovery.await_ack_of(snd.nxt());
            self.congestion.hold_threshold(self.current_ssthresh());
            self.recovery.put(flag::UNDO, false);
            self.set_ca_state(cx, CaState::Loss, snd);
            self.recovery.put(flag::NOT_CONGESTED, true);
        }
        self.recovery.put(flag::SEND_LOST, true);
        self.after_recovery_event(conn_flags);
    }

    /// The threshold that remembers the window now; during a reduction, the threshold that is set.
    pub(crate) fn current_ssthresh(&self) -> u32 {
        if self.recovery.is_reducing() {
            self.congestion.ssthresh()
        } else {
            self.congestion.current_ssthresh()
        }
    }
}
