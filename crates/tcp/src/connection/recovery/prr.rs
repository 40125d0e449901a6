//! Proportional rate reduction (RFC 6937; RFC 9937's choice of bound): while the window is being reduced,
//! segments leave in proportion to what is delivered.

use crate::congestion::{AckSample, CongestionControl, Event, SSTHRESH_INFINITE};
use crate::connection::Connection;
use crate::context::Cx;
use crate::limits::CWND_SEGMENTS_MAX;
use crate::recovery::ack::Ack;
use crate::recovery::flag;

impl Connection {
    /// The reduction begins: the threshold is set, the window follows ACK by ACK.
    pub(crate) fn begin_reduction(&mut self, cx: &mut Cx<'_>) {
        let recovery = &mut self.recovery;
        recovery.high_seq = self.snd.nxt;
        recovery.put(flag::TLP, false);
        recovery.prr_delivered = 0;
        recovery.prr_out = 0;
        let window = &mut self.congestion.window;
        window.cwnd_cnt = 0;
        window.prior_cwnd = window.cwnd;
        self.take_threshold(cx);
        self.ecn.queue_cwr(self.snd.ecn);
    }

    /// Asks the algorithm for the threshold.
    pub(crate) fn take_threshold(&mut self, cx: &Cx<'_>) {
        let moment = self.moment(cx);
        let congestion = &mut self.congestion;
        congestion.window.ssthresh = congestion.algorithm.ssthresh(&moment, &congestion.window);
    }

    /// `delivered` segments arrived while the window is being reduced; `lost` were found lost with them;
    /// `advanced` = SND.UNA moved.
    pub(crate) fn reduce_window(&mut self, delivered: u32, lost: u32, advanced: bool) {
        let recovery = &mut self.recovery;
        let window = &mut self.congestion.window;
        if delivered == 0 || window.prior_cwnd == 0 {
            return;
        }
        recovery.prr_delivered = recovery.prr_delivered.saturating_add(delivered);
        let in_flight = i64::from(recovery.in_flight());
        let sent = i64::from(recovery.prr_out);
        let room = i64::from(window.ssthresh) - in_flight;
        let mut send = if room < 0 {
            let share = u64::from(window.ssthresh) * u64::from(recovery.prr_delivered);
            share.div_ceil(u64::from(window.prior_cwnd)) as i64 - sent
        } else {
            // Packet conservation; with progress and no further loss, slow start up to the threshold.
            let owed = i64::from(recovery.prr_delivered) - sent;
            let bound = owed.max(i64::from(delivered)) + i64::from(advanced && lost == 0);
            bound.min(room)
        };
        // The fast retransmit itself always goes.
        send = send.max(i64::from(recovery.prr_out == 0));
        window.cwnd = (in_flight + send).clamp(0, i64::from(CWND_SEGMENTS_MAX)) as u32;
    }

    /// The reduction is complete: the window stands at its threshold, unless it was undone.
    pub(crate) fn end_reduction(&mut self, cx: &Cx<'_>) {
        if self.congestion.algorithm.is_model() {
            return;
        }
        let recovery = &self.recovery;
        let window = &mut self.congestion.window;
        let reduced =
            recovery.ca_state == crate::congestion::CaState::Cwr || recovery.any(flag::UNDO);
        if window.ssthresh < SSTHRESH_INFINITE && reduced {
            window.cwnd = window.ssthresh.max(1);
            self.congestion.usage.stamp_ns = cx.now_ns;
        }
        self.tell_algorithm(cx, Event::CompleteCwr);
    }

    /// Something happened that the algorithm may want to know.
    pub(crate) fn tell_algorithm(&mut self, cx: &Cx<'_>, event: Event) {
        let moment = self.moment(cx);
        let congestion = &mut self.congestion;
        congestion
            .algorithm
            .on_event(&moment, &mut congestion.window, event);
    }

    /// The ACK is understood: the window follows the model, or shrinks, or grows, or stays.
    pub(crate) fn control_window(&mut self, cx: &Cx<'_>, ack: &Ack) {
        if self.follow_model(cx, ack) {
            return;
        }
        let recovery = &self.recovery;
        let delivered = recovery.delivered.wrapping_sub(ack.prior_delivered);
        let lost = recovery.lost.wrapping_sub(ack.prior_lost);
        if recovery.is_reducing() {
            self.reduce_window(delivered, lost, ack.advanced);
            return;
        }
        // Where reordering is common, growth does not wait for the order (RFC 5681 otherwise).
        let reordered = recovery.reordering > u16::from(cx.config.dup_acks_max);
        let may_grow = if reordered {
            ack.is_progress()
        } else {
            ack.acked > 0
        };
        if may_grow {
            let sample = Self::ack_sample(ack, delivered);
            let moment = self.moment(cx);
            self.congestion.grow(&moment, &sample);
        }
    }

    /// The ACK as congestion control sees it; it delivered `delivered` segments.
    pub(crate) fn ack_sample(ack: &Ack, delivered: u32) -> AckSample {
        AckSample {
            acked: delivered,
            rtt_ns: ack.latest_rtt_ns,
        }
    }
}
