//! Measured round trips, which enter the estimate and the timeout.

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::segment::Segment;
use crate::send::Sender;
use crate::timers::Timers;
use crate::variables::Snd;

impl Timers {
    /// Takes a round trip that the handshake measured.
    pub(crate) fn note_round_trip(&mut self, cx: &Cx<'_>, rtt_ns: u64, snd: &Snd) {
        self.rtt.note_least(rtt_ns, false, cx.now_ns, cx.config);
        let bounds = self.own.rto_bounds(cx.config);
        self.rtt.sample(rtt_ns, snd.una(), snd.nxt(), &bounds);
    }

    /// Takes a round trip for the estimate, and one for the least round trip, which the receiver's
    /// ACK delay may have lengthened (`maybe_delayed`).
    #[inline]
    pub(crate) fn take_round_trip(
        &mut self,
        cx: &Cx<'_>,
        rtt_ns: u64,
        latest_ns: u64,
        maybe_delayed: bool,
        snd: &Snd,
    ) {
        let (una, nxt) = (snd.una(), snd.nxt());
        let bounds = self.own.rto_bounds(cx.config);
        let rtt = &mut self.rtt;
        rtt.note_least(latest_ns, maybe_delayed, cx.now_ns, cx.config);
        rtt.sample(rtt_ns, una, nxt, &bounds);
        self.backoff = 0;
    }

    /// Takes the round trip of our SYN when it is acknowledged: by the clock if the SYN was sent
    /// once (Karn), otherwise by the timestamp.
    pub(crate) fn note_handshake_rtt(
        &mut self,
        cx: &Cx<'_>,
        seg: &Segment,
        conn_flags: &mut ConnFlags,
        snd: &Snd,
        tx: &Sender,
    ) {
        if conn_flags.has(ConnFlags::TIMING) {
            conn_flags.clear(ConnFlags::TIMING);
            let rtt_ns = cx.now_ns.saturating_sub(self.syn_sent_ns);
            self.note_round_trip(cx, rtt_ns, snd);
        } else if let Some(rtt_ns) = tx.rtt_by_timestamp(cx.now_ns, seg, *conn_flags) {
            self.note_round_trip(cx, rtt_ns, snd);
        } else if self.retransmits > 0 {
            // The SYN was lost, and nothing was measured (RFC 6298 5.7).
            self.forget_round_trip(cx.config.rto_after_syn_loss_ns);
        }
    }
}
