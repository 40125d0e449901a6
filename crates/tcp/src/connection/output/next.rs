//! The sending policy. The order is: control segments, owed duplicate ACKs, data presumed lost, new
//! data, a pure ACK if no segment carried it, and probes.

use crate::conn_flags::ConnFlags;
use crate::connection::Connection;
use crate::context::Cx;
use crate::plan::{Plan, Retransmission};
use crate::recovery::flag;
use crate::state::State;

impl Connection {
    /// The plan for the next segment. Changes nothing.
    #[inline]
    pub(crate) fn plan(&self, cx: &Cx<'_>) -> Plan {
        if let Some(plan) = self.plan_from_marks() {
            return plan;
        }
        let lone = self
            .flight
            .lone(self.state(), self.conn_flags, &self.snd, &self.rx);
        match lone {
            Some(lone) => lone,
            None => self.plan_in_full(cx),
        }
    }

    /// The plan, if nothing waits to be sent and at most a pure ACK is due.
    #[inline(always)]
    pub(crate) fn plan_from_marks(&self) -> Option<Plan> {
        if self.snd.unsent(self.state(), self.conn_flags) > 0 || self.conn_flags.fin_unsent() {
            return None;
        }
        match self.conn_flags.of(ConnFlags::NEEDS_FULL_PLAN) {
            ConnFlags::NONE => Some(Plan::Nothing),
            ConnFlags::ACK_NOW if self.sends_plain_acks() => Some(Plan::Ack),
            _ => None,
        }
    }

    /// The plan for the next segment by the general rules, without shortcuts.
    #[inline]
    pub(crate) fn plan_generally(&self, cx: &Cx<'_>) -> Plan {
        if self.snd.unsent(self.state(), self.conn_flags) > 0 || self.conn_flags.fin_unsent() {
            return self.plan_in_full(cx);
        }
        match self.conn_flags.of(ConnFlags::NEEDS_FULL_PLAN) {
            ConnFlags::NONE => Plan::Nothing,
            ConnFlags::ACK_NOW if self.sends_plain_acks() => Plan::Ack,
            _ => self.plan_in_full(cx),
        }
    }

    /// True if a due ACK leaves as a pure ACK when no payload carries it.
    #[inline]
    fn sends_plain_acks(&self) -> bool {
        self.state().is_synchronized() && !self.ecn.owes_ack(self.snd.ecn())
    }

    pub(crate) fn plan_in_full(&self, cx: &Cx<'_>) -> Plan {
        if let Some(plan) = self.conn_flags.plan_control() {
            return plan;
        }
        if matches!(self.state(), State::SynSent | State::Closed) {
            return Plan::Nothing;
        }
        if self.ecn.owes_ack(self.snd.ecn()) && self.conn_flags.has(ConnFlags::ACK_NOW) {
            return Plan::OwedAck;
        }
        if self.rx.dup_acks_due() > 0 && self.conn_flags.has(ConnFlags::ACK_NOW) {
            return Plan::Ack;
        }
        if !self.flight.pacing().holds(cx.now_ns)
            && let Some(plan) = self.plan_payload(cx)
        {
            return plan;
        }
        // Data that a timeout sends leaves at once, without pacing.
        if self.flight.recovery().any(flag::SEND_HEAD)
            && let Some(retransmission) = self.plan_retransmission(cx)
        {
            return retransmission.plan();
        }
        // The ACK leaves before a probe. A probe carries the same ACK but does not answer the
        // peer's probe, so two ends that send keep-alives in step would not hear each other.
        if self.conn_flags.has(ConnFlags::ACK_NOW) {
            return Plan::Ack;
        }
        if self.conn_flags.has(ConnFlags::PROBE_DUE) {
            return Plan::Probe;
        }
        Plan::Nothing
    }

    /// Plans lost data, then new data; new data first while F-RTO tests. Ignores pacing.
    pub(crate) fn plan_payload(&self, cx: &Cx<'_>) -> Option<Plan> {
        if !self.conn_flags.may_send_data(self.state()) {
            return None;
        }
        if !self.conn_flags.has(ConnFlags::RECOVERING) {
            return self.plan_fresh(cx);
        }
        if self.flight.recovery().any(flag::SEND_NEW)
            && !self.flight.recovery().any(flag::SEND_HEAD)
        {
            self.plan_fresh(cx)
                .or_else(|| self.plan_retransmission(cx).map(Retransmission::plan))
        } else {
            let retransmission = self.plan_retransmission(cx).map(Retransmission::plan);
            retransmission.or_else(|| self.plan_fresh(cx))
        }
    }

    /// Plans new data and the FIN behind it.
    fn plan_fresh(&self, cx: &Cx<'_>) -> Option<Plan> {
        let unsent = self.snd.unsent(self.state(), self.conn_flags);
        let fin_waits = self.conn_flags.fin_unsent() && self.state() != State::SynReceived;
        let usable = self.snd.usable();
        // A FIN takes a sequence number and, as in recent Linux, room in the congestion window.
        let fits_path = self.flight.recovery().segments_in_flight()
            < self.flight.congestion().cwnd()
            || self.flight.recovery().any(flag::PROBE_NEW);
        if unsent == 0 {
            return (fin_waits && usable > 0 && fits_path)
                .then_some(Plan::Fresh { len: 0, fin: true });
        }
        if let Some(len) = self.path_probe(cx, unsent, usable) {
            return Some(Plan::PathProbe { len: len as u16 });
        }
        let mss = self
            .ecn
            .current_mss(cx, self.conn_flags, &self.snd, &self.timers, &self.rx);
        let len = self.segment_size(mss, unsent, usable, fin_waits)?;
        let fin = fin_waits && len == unsent && len < usable;
        if !fits_path || (len == mss && self.deferral(cx, mss).is_some()) {
            return None;
        }
        // The length is at most one segment, so it fits a u16.
        Some(Plan::Fresh {
            len: len as u16,
            fin,
        })
    }

    /// Bytes of `unsent` that the next segment takes, at most `mss`; `None`: they wait. `usable`:
    /// room in the peer's window; `fin`: a FIN would follow the last byte.
    pub(crate) fn segment_size(
        &self,
        mss: u32,
        unsent: u32,
        usable: u32,
        fin: bool,
    ) -> Option<u32> {
        let push = self.conn_flags.has(ConnFlags::PUSH_DUE);
        let record = self.tx.record_room(self.conn_flags, &self.snd);
        let want = unsent.min(mss).min(record);
        if want > usable {
            // The window cuts the segment. Such a segment leaves only behind full segments of the
            // same burst, or when it is overdue (Linux).
            let worth = push
                || (self.flight.delivery().burst_left() > 0
                    && !self.tx.held_by_nagle(self.conn_flags, &self.snd));
            return (usable > 0 && worth).then_some(usable);
        }
        // F-RTO's test data does not wait to fill a segment (Linux); the window limits it like
        // other data.
        let overdue = push || self.flight.recovery().any(flag::SEND_NEW);
        // The end of a record with more data behind it counts as a full segment.
        if want == mss || (want == record && record < unsent) || overdue || (fin && want == unsent)
        {
            return Some(want);
        }
        if self.tx.held_by_nagle(self.conn_flags, &self.snd) {
            None
        } else {
            Some(want)
        }
    }
}
