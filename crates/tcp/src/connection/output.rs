//! Output: the choice of the next segment (`next`, the policy), its construction (`build`), and the
//! state changes after it has left (`sent`). The segment of a short message takes a shortcut
//! through all three (`lone`).
//!
//! Each call into the connection ends by making a [`Plan`] and storing it; `due` and
//! `Effects::TRANSMIT` follow from it. `poll_transmit` executes the stored plan, builds the segment
//! and records it as sent. Planning changes nothing.

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::plan::{Plan, Retransmission};
use crate::recovery::flag;
use crate::segment::{SegmentOut, TransmitClass};

mod build;
mod burst;
mod burst_tail;
mod lone;
mod next;
mod plain_ack;
mod sent;
#[cfg(feature = "twin")]
#[path = "../../tests/harness/shortcuts.rs"]
mod shortcuts;

pub use burst_tail::BurstTail;
pub use plain_ack::PlainAck;

impl Connection {
    /// The class of the next segment, as the last call found it. `Effects::TRANSMIT` puts the
    /// connection on the list of that class. After [`poll_transmit`](Self::poll_transmit) returned
    /// a segment, `None` means that it was the last; any other value means that more may follow.
    #[inline]
    #[must_use]
    pub fn due(&self) -> TransmitClass {
        self.due
    }

    /// The list that [`Effects::TRANSMIT`](crate::Effects::TRANSMIT) and
    /// [`HELD`](crate::Effects::HELD) put the connection on: the list of the due segment, or of
    /// data if none is due.
    #[inline]
    #[must_use]
    pub fn list(&self) -> TransmitClass {
        match self.due {
            TransmitClass::None => TransmitClass::Data,
            due => due,
        }
    }

    /// Plans the next segment at this time, for [`due`](Self::due) and for
    /// [`poll_transmit`](Self::poll_transmit). A caller that stopped polling early, or that comes
    /// back later, needs it.
    #[inline]
    pub fn refresh_due(&mut self, cx: &Cx<'_>) -> TransmitClass {
        let plan = self.plan(cx);
        self.store_plan(cx, plan);
        self.due
    }

    /// Stores that nothing is to be sent.
    #[inline(always)]
    pub(super) fn store_nothing(&mut self) {
        self.due = TransmitClass::None;
        self.planned.forget();
    }

    /// Stores a plan, which is valid until something changes.
    #[inline(always)]
    pub(super) fn store_plan(&mut self, cx: &Cx<'_>, plan: Plan) {
        self.planned.store(plan, cx.now_ns);
        self.due = self.class_of(plan);
    }

    #[inline(always)]
    fn class_of(&self, plan: Plan) -> TransmitClass {
        match plan {
            Plan::Ack if self.rx.ack_may_ride(self.conn_flags, &self.snd, &self.rcv) => {
                TransmitClass::Piggyback
            }
            plan => plan.class(),
        }
    }

    /// Builds the next segment, with at most one MSS of payload; false if there is none. Call until
    /// it returns false, or until [`due`](Self::due) says that nothing follows.
    pub fn poll_transmit(&mut self, cx: &mut Cx<'_>, out: &mut SegmentOut) -> bool {
        if self
            .conn_flags
            .any(ConnFlags::PATH_NARROWED | ConnFlags::PATH_PROBING)
        {
            self.planned.forget();
            self.path
                .review_path(cx, &mut self.conn_flags, &mut self.snd, &mut self.tx);
        }
        let stored = self.planned.take(cx.now_ns);
        debug_assert!(
            stored.is_none_or(|plan| plan == self.plan(cx)),
            "nothing has changed"
        );
        match stored.unwrap_or_else(|| self.plan(cx)) {
            Plan::Lone { len, fin } => self.send_lone(cx, out, u32::from(len), fin),
            Plan::Nothing => {
                self.stop(cx);
                return false;
            }
            plan => return self.send_planned(cx, out, plan),
        }
        true
    }

    /// Executes a plan that has no straight path. False: what was to be sent again has arrived.
    fn send_planned(&mut self, cx: &mut Cx<'_>, out: &mut SegmentOut, plan: Plan) -> bool {
        match plan {
            Plan::Nothing | Plan::Lone { .. } => return false,
            Plan::Reset => self.build_reset(cx, out),
            Plan::ReplyReset => self.tx.build_reply_reset(out),
            Plan::Syn => self.build_syn(cx, out),
            Plan::Retransmission { .. } => {
                let Some(retransmission) = self.plan_retransmission(cx) else {
                    return false;
                };
                self.build_payload(cx, out, plan, retransmission);
            }
            Plan::Fresh { len, fin } => {
                let seq = self.snd.nxt();
                self.build_payload(cx, out, plan, Retransmission { seq, len, fin });
            }
            Plan::PathProbe { len } => {
                let seq = self.snd.nxt();
                let fin = false;
                self.build_payload(cx, out, plan, Retransmission { seq, len, fin });
            }
            Plan::Probe => self.build_ack(cx, out, self.snd.una() - 1),
            Plan::OwedAck => {
                self.build_empty(cx, out, self.rcv.acceptable_seq(&self.snd));
                self.ecn.pay_owed_ack(out, &self.rcv);
            }
            Plan::Ack => self.build_ack(cx, out, self.rcv.acceptable_seq(&self.snd)),
        }
        self.note_sent(cx, plan, out);
        self.due = plan.class();
        if self.snd.is_drained(self.state(), self.conn_flags) {
            self.stop_drained(cx);
        }
        true
    }

    /// Ends a series of segments: notes the limit that ended it, and arms the timers that continue.
    #[inline]
    fn stop(&mut self, cx: &mut Cx<'_>) {
        self.due = TransmitClass::None;
        self.flight.delivery_mut().end_burst();
        if self.flight.recovery().any(flag::SEND_NEW) {
            self.flight.recovery_mut().end_new_data_test(&self.snd);
        }
        self.note_stop(cx);
        self.arm_departure(cx);
        self.flight.arm_persist_if_stuck(
            cx,
            self.state(),
            &mut self.conn_flags,
            &self.snd,
            &mut self.timers,
        );
    }

    /// Like [`stop`](Self::stop), where nothing is left to send: no limit holds bytes back, and no
    /// window needs a probe.
    #[inline]
    fn stop_drained(&mut self, cx: &mut Cx<'_>) {
        self.due = TransmitClass::None;
        self.flight.delivery_mut().end_burst();
        if self.flight.recovery().any(flag::SEND_NEW) {
            self.flight.recovery_mut().end_new_data_test(&self.snd);
        }
        self.flight
            .note_busy(cx, self.state(), self.conn_flags, &self.snd, &self.tx);
        if self.flight.delivery().has_sent_new() {
            self.flight
                .validate_window(cx, false, &self.snd, &self.timers);
        }
        self.arm_departure(cx);
    }

    /// True if an ACK is due now, alone or on other segments.
    #[inline]
    #[must_use]
    pub fn has_ack_due(&self) -> bool {
        self.conn_flags.has(ConnFlags::ACK_NOW)
    }

    /// Builds a due pure ACK before the next segment of a run is taken ([`run`](crate::run)). This
    /// covers ACKs that report gaps, duplicates or marks, because the next segment would change
    /// their report. False if no ACK is due, or if it would not leave alone. Several ACKs may be
    /// due.
    pub fn poll_due_ack(&mut self, cx: &mut Cx<'_>, out: &mut SegmentOut) -> bool {
        let plan = self.plan_generally(cx);
        match plan {
            Plan::Ack => self.build_ack(cx, out, self.rcv.acceptable_seq(&self.snd)),
            Plan::OwedAck => {
                self.build_empty(cx, out, self.rcv.acceptable_seq(&self.snd));
                self.ecn.pay_owed_ack(out, &self.rcv);
            }
            _ => return false,
        }
        self.planned.forget();
        self.note_sent(cx, plan, out);
        true
    }

    #[inline]
    fn build_payload(
        &mut self,
        cx: &Cx<'_>,
        out: &mut SegmentOut,
        plan: Plan,
        data: Retransmission,
    ) {
        self.build_data(cx, out, data.seq, u32::from(data.len), data.fin);
        if self.ends_burst(cx, plan, data.seq) {
            out.flags |= wire::tcp::Flags::PSH;
        }
    }
}
