//! Proportional rate reduction (RFC 6937; RFC 9937's choice of bound): during a reduction of the
//! window, segments leave in proportion to the data delivered.

use crate::congestion::{AckSample, CaState, Event};
use crate::context::Cx;
use crate::ecn::EcnState;
use crate::flight::Flight;
use crate::recovery::ack::Ack;
use crate::recovery::flag;
use crate::timers::Timers;
use crate::variables::Snd;

impl Flight {
    /// Begins a reduction: the threshold is set, and the window follows it ACK by ACK.
    pub(crate) fn begin_reduction(&mut self, cx: &mut Cx<'_>, snd: &Snd, ecn: &mut EcnState) {
        self.recovery.begin_reduction(snd.nxt());
        let moment = self.moment(cx, snd);
        self.congestion.begin_reduction(&moment);
        ecn.queue_cwr(snd.ecn());
    }

    /// Takes `delivered` segments that arrived during a reduction. `lost`: segments found lost with
    /// them; `advanced`: SND.UNA moved.
    pub(crate) fn reduce_window(&mut self, delivered: u32, lost: u32, advanced: bool) {
        if delivered == 0 || !self.congestion.is_reducible() {
            return;
        }
        let may_catch_up = advanced && lost == 0;
        let reduction = self.recovery.take_reduction(delivered, may_catch_up);
        self.congestion.reduce(&reduction);
    }

    /// Completes the reduction: sets the window to its threshold, unless the reduction was undone.
    pub(crate) fn end_reduction(&mut self, cx: &Cx<'_>, snd: &Snd) {
        if self.congestion.is_model() {
            return;
        }
        let recovery = &self.recovery;
        if recovery.ca_state() == CaState::Cwr || recovery.any(flag::UNDO) {
            self.congestion.end_reduction(cx.now_ns);
        }
        self.tell_algorithm(cx, Event::CompleteCwr, snd);
    }

    /// Tells the algorithm of an event.
    pub(crate) fn tell_algorithm(&mut self, cx: &Cx<'_>, event: Event, snd: &Snd) {
        let moment = self.moment(cx, snd);
        self.congestion.on_event(&moment, event);
    }

    /// Sets the window at the end of an ACK: it follows the model, shrinks, grows, or stays.
    #[inline(always)]
    pub(crate) fn control_window(&mut self, cx: &Cx<'_>, ack: &Ack, snd: &Snd, timers: &Timers) {
        if self.follow_model(cx, ack, snd, timers) {
            return;
        }
        let recovery = &self.recovery;
        let delivered = recovery.delivered().wrapping_sub(ack.prior_delivered);
        let lost = recovery.lost().wrapping_sub(ack.prior_lost);
        if recovery.is_reducing() {
            self.reduce_window(delivered, lost, ack.advanced);
            return;
        }
        // Where reordering is common, the window also grows on out-of-order delivery (unlike RFC
        // 5681).
        let reordered = recovery.reordering() > u16::from(cx.config.dup_acks_max);
        let may_grow = if reordered {
            ack.is_progress()
        } else {
            ack.acked > 0
        };
        if may_grow {
            let sample = Self::ack_sample(ack, delivered);
            let moment = self.moment(cx, snd);
            self.congestion.grow(&moment, &sample);
        }
    }

    /// The ACK as congestion control sees it; `delivered`: segments that it delivered.
    pub(crate) fn ack_sample(ack: &Ack, delivered: u32) -> AckSample {
        AckSample {
            acked: delivered,
            rtt_ns: ack.latest_rtt_ns,
        }
    }
}
