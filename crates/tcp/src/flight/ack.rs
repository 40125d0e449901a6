//! The facts of an ACK, collected before it changes anything.

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::flight::Flight;
use crate::recovery::ack::Ack;
use crate::recovery::rate::RateSample;
use crate::segment::Segment;
use crate::send::Sender;
use crate::timers::Timers;
use crate::variables::Snd;

impl Flight {
    /// The facts of the ACK before it changes anything.
    #[inline]
    pub(crate) fn read_ack(
        &self,
        seg: &Segment,
        conn_flags: ConnFlags,
        snd: &Snd,
        tx: &Sender,
        timers: &Timers,
    ) -> Ack {
        let window = snd.scaled_window(seg);
        let advanced = seg.ack.gt(snd.una());
        let recovery = &self.recovery;
        Ack {
            seq: seg.ack,
            prior_una: snd.una(),
            prior_highest: self.highest_sacked(conn_flags, snd, timers),
            prior_packets: recovery.packets_out(),
            prior_delivered: recovery.delivered(),
            prior_lost: recovery.lost(),
            prior_in_flight: recovery.in_flight(),
            acked: 0,
            sack_delivered: 0,
            sacked_bytes: 0,
            reordered: snd.nxt(),
            first_sacked_ns: 0,
            last_sacked_ns: 0,
            echo_ms: tx.echo_ms(seg, conn_flags),
            latest_rtt_ns: None,
            duplicates: 0,
            rate: RateSample::default(),
            data: seg.seq_len() > 0,
            window_update: advanced
                || seg.seq.gt(snd.wl1())
                || (seg.seq == snd.wl1() && (window > snd.wnd() || window == 0)),
            advanced,
            retrans_acked: false,
            sacked: false,
            original_acked: false,
            dsack: false,
            dsack_of_probe: false,
            ece: snd.sees_ece(seg),
            lost_retrans: false,
            reneging: false,
            set_timer: false,
            maybe_delayed: false,
        }
    }

    /// Tells the algorithm of an ACK with news.
    #[inline]
    pub(crate) fn tell_acked(&mut self, cx: &Cx<'_>, ack: &Ack, snd: &Snd) {
        let delivered = self.recovery.delivered().wrapping_sub(ack.prior_delivered);
        let sample = Self::ack_sample(ack, delivered);
        let moment = self.moment(cx, snd);
        self.congestion.on_acked(&moment, &sample);
    }

    /// Counts a duplicate ACK in Linux's sense: no new data acknowledged, no text, no window
    /// update, no D-SACK.
    pub(crate) fn count_duplicate(&self, cx: &mut Cx<'_>, ack: &mut Ack) {
        if !ack.advanced && !ack.is_no_duplicate() && !ack.dsack {
            ack.duplicates = 1;
            cx.counters.dup_acks_in += 1;
        }
    }
}
