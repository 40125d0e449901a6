//! Output: what to send next (`next`, the policy), how it looks as a segment (`build`), and what
//! changes when it has left (`sent`). The segment of a short message takes a straight line through
//! all three (`lone`).
//!
//! `poll_transmit` asks for a [`Plan`], builds the segment and records it as sent. Planning changes
//! nothing, so `transmit_class` and `Effects::TRANSMIT` use the same plan.

use crate::connection::Connection;
use crate::context::Cx;
use crate::marks::Marks;
use crate::recovery::flag;
use crate::segment::{SegmentOut, TransmitClass};

mod build;
mod burst;
mod burst_tail;
mod defer;
mod lone;
mod next;
mod plain_ack;
mod sent;

pub use burst_tail::BurstTail;
pub use plain_ack::PlainAck;

/// The next segment to send.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing.
    Nothing,
    /// The RST that ends the connection.
    Reset,
    /// A RST that answers one segment.
    ReplyReset,
    /// A SYN, or the SYN-ACK of a simultaneous open.
    Syn,
    /// Payload sent before, `len` bytes from `seq` on, and the FIN behind them.
    Repeat {
        seq: wire::SeqNumber,
        len: u32,
        fin: bool,
    },
    /// The next `len` new bytes, and the FIN behind them. `probes_path`: the segment is longer than
    /// the size known to pass (RFC 4821).
    Fresh {
        len: u32,
        fin: bool,
        probes_path: bool,
    },
    /// An empty segment at SND.UNA - 1, which the peer must answer.
    Probe,
    /// A pure ACK for the data that arrived before a mark changed (DCTCP).
    OwedAck,
    /// A pure ACK.
    Ack,
}

impl Plan {
    fn class(self) -> TransmitClass {
        match self {
            Plan::Nothing => TransmitClass::None,
            Plan::Reset | Plan::ReplyReset => TransmitClass::Control,
            Plan::Syn => TransmitClass::Opening,
            Plan::Repeat { len: 0, .. } | Plan::Fresh { len: 0, .. } => TransmitClass::Control,
            Plan::Repeat { .. } | Plan::Fresh { .. } => TransmitClass::Data,
            Plan::Probe | Plan::OwedAck | Plan::Ack => TransmitClass::Ack,
        }
    }
}

impl Connection {
    /// The class of the segment that the last call found to be sent first. `Effects::TRANSMIT` puts
    /// the connection on that list. After [`poll_transmit`](Self::poll_transmit) gave a segment,
    /// `None` means that it was the last one; any other value means that more may follow.
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

    /// Finds the next segment's class at this time, and stores it for [`due`](Self::due). For a
    /// caller that stopped polling early, or that comes back after a while.
    #[inline]
    pub fn refresh_due(&mut self, cx: &Cx<'_>) -> TransmitClass {
        self.due = self.transmit_class(cx);
        self.due
    }

    /// The class of the segment that `poll_transmit` would send first, at this time.
    #[must_use]
    #[inline]
    pub fn transmit_class(&self, cx: &Cx<'_>) -> TransmitClass {
        match self.plan(cx) {
            Plan::Ack if self.ack_may_ride() => TransmitClass::Piggyback,
            plan => plan.class(),
        }
    }

    /// The next segment to send, at most one MSS of payload; false when there is none. Call until
    /// false, or until [`due`](Self::due) says that nothing follows.
    pub fn poll_transmit(&mut self, cx: &mut Cx<'_>, out: &mut SegmentOut) -> bool {
        if let Some(lone) = self.lone() {
            self.send_lone(cx, out, lone);
            return true;
        }
        if self.owes_plain_ack() {
            self.send_plain_ack(cx, out);
            return true;
        }
        if self.marks.any(Marks::PATH_NARROWED | Marks::PATH_PROBING) {
            self.review_path(cx);
        }
        let plan = self.plan(cx);
        match plan {
            Plan::Nothing => {
                self.stop(cx);
                return false;
            }
            Plan::Reset => self.build_reset(cx, out),
            Plan::ReplyReset => self.build_reply_reset(out),
            Plan::Syn => self.build_syn(cx, out),
            Plan::Repeat { seq, len, fin } => self.build_payload(cx, out, plan, seq, len, fin),
            Plan::Fresh { len, fin, .. } => {
                self.build_payload(cx, out, plan, self.snd.nxt, len, fin);
            }
            Plan::Probe => self.build_ack(cx, out, self.snd.una - 1),
            Plan::OwedAck => {
                self.build_empty(cx, out, self.acceptable_seq());
                self.pay_owed_ack(out);
            }
            Plan::Ack => self.build_ack(cx, out, self.acceptable_seq()),
        }
        self.note_sent(cx, plan, out);
        self.due = plan.class();
        if self.is_drained() {
            self.stop(cx);
        }
        true
    }

    /// Ends a series of segments: notes the limit that ended it, and arms the timers that continue
    /// it.
    #[inline]
    fn stop(&mut self, cx: &mut Cx<'_>) {
        self.due = TransmitClass::None;
        self.delivery.end_burst();
        if self.recovery.any(flag::SEND_NEW) {
            self.recovery.end_new_data_test(&self.snd);
        }
        self.note_stop(cx);
        self.arm_departure(cx);
        self.arm_persist_if_stuck(cx);
    }

    /// Plainly nothing is left: the next plan would be none.
    #[inline]
    fn is_drained(&self) -> bool {
        let owes = Marks::SEND_NOW
            .with(Marks::PATH_NARROWED)
            .with(Marks::PATH_PROBING);
        self.unsent() == 0 && !self.fin_unsent() && !self.marks.any(owes)
    }

    /// An ACK is due now, whether or not it will leave alone.
    #[inline]
    #[must_use]
    pub fn has_ack_due(&self) -> bool {
        self.marks.has(Marks::ACK_NOW)
    }

    /// Takes a pure ACK that is due before the next segment of a run is taken
    /// ([`run`](crate::run)). An ACK that also reports gaps, duplicates or marks is included,
    /// because the next segment would change its report. False when no ACK is due, or when it would
    /// not leave alone. Several may be due.
    pub fn poll_due_ack(&mut self, cx: &mut Cx<'_>, out: &mut SegmentOut) -> bool {
        let plan = self.plan(cx);
        match plan {
            Plan::Ack => self.build_ack(cx, out, self.acceptable_seq()),
            Plan::OwedAck => {
                self.build_empty(cx, out, self.acceptable_seq());
                self.pay_owed_ack(out);
            }
            _ => return false,
        }
        self.note_sent(cx, plan, out);
        true
    }

    #[inline]
    fn build_payload(
        &mut self,
        cx: &Cx<'_>,
        out: &mut SegmentOut,
        plan: Plan,
        seq: wire::SeqNumber,
        len: u32,
        fin: bool,
    ) {
        self.build_data(cx, out, seq, len, fin);
        if self.ends_burst(cx, plan) {
            out.flags |= wire::tcp::Flags::PSH;
        }
    }

    /// RFC 5681 4.1: the congestion window of a sender that paused says little about the path now.
    /// Called when there is something to send again: the application wrote, or the peer's window
    /// changed (as in Linux).
    #[inline]
    pub(crate) fn restart_if_idle(&mut self, cx: &Cx<'_>) {
        let idle_ns = cx.now_ns.saturating_sub(self.tx.last_sent_ns);
        let rto_ns = self.tx.rtt.rto_ns();
        if idle_ns <= rto_ns || self.tx.last_sent_ns == 0 {
            return;
        }
        if !cx.config.slow_start_after_idle || self.recovery.packets_out() > 0 || self.unsent() == 0
        {
            return;
        }
        if self.congestion.is_model() {
            return;
        }
        let moment = self.moment(cx);
        self.congestion.on_idle(&moment, idle_ns, rto_ns);
    }

    /// Payload in the send buffer that was never sent.
    #[inline]
    pub(crate) fn unsent(&self) -> u32 {
        let fin = u32::from(self.marks.has(Marks::FIN_SENT));
        let sent = self.snd.flight().saturating_sub(fin);
        match self.snd.buffered.saturating_sub(sent) {
            // The common case. The state is read only if it matters.
            0 => 0,
            unsent if self.may_send_data() => unsent,
            _ => 0,
        }
    }

    /// A FIN is queued and was never sent.
    #[inline]
    pub(crate) fn fin_unsent(&self) -> bool {
        self.marks.has(Marks::FIN_QUEUED) && !self.marks.has(Marks::FIN_SENT)
    }

    /// Something of ours is not acknowledged or not even sent.
    pub(crate) fn has_unfinished_sending(&self) -> bool {
        self.snd.flight() > 0 || self.unsent() > 0 || self.fin_unsent()
    }
}
