//! What do I send next: the policy. Control first, then owed duplicate ACKs, what is presumed lost, new
//! data, probes, and an ACK alone if nothing gave it a ride.

use super::Plan;
use crate::connection::Connection;
use crate::marks::Marks;
use crate::recovery::{LossRecovery, Repeat};
use crate::state::State;

impl Connection {
    /// The next segment. Changes nothing.
    #[inline]
    pub(crate) fn plan(&self) -> Plan {
        let idle = !self.marks.any(Marks::SEND_NOW) && self.unsent() == 0 && !self.fin_unsent();
        if idle {
            Plan::Nothing
        } else {
            self.plan_in_full()
        }
    }

    fn plan_in_full(&self) -> Plan {
        if let Some(plan) = self.plan_control() {
            return plan;
        }
        if matches!(self.state, State::SynSent | State::Closed) {
            return Plan::Nothing;
        }
        if self.owes_ack() && self.marks.has(Marks::ACK_NOW) {
            return Plan::OwedAck;
        }
        if self.rx.dup_acks_due > 0 && self.marks.has(Marks::ACK_NOW) {
            return Plan::Ack;
        }
        if self.may_send_data()
            && let Some(plan) = self.plan_repeat().or_else(|| self.plan_fresh())
        {
            return plan;
        }
        if self.marks.has(Marks::PROBE_DUE) {
            return Plan::Probe;
        }
        if self.marks.has(Marks::ACK_NOW) {
            return Plan::Ack;
        }
        Plan::Nothing
    }

    fn plan_control(&self) -> Option<Plan> {
        if self.marks.has(Marks::RESET_DUE) {
            Some(Plan::Reset)
        } else if self.marks.has(Marks::REPLY_RESET) {
            Some(Plan::ReplyReset)
        } else if self.marks.has(Marks::SYN_DUE) {
            Some(Plan::Syn)
        } else {
            None
        }
    }

    /// What recovery wants to repeat, as one segment, if the congestion window lets it.
    fn plan_repeat(&self) -> Option<Plan> {
        if !self.marks.has(Marks::RECOVERING) {
            return None;
        }
        let Repeat { seq, end, forced } = self.tx.recovery.next_repeat()?;
        let fin_sent = self.marks.has(Marks::FIN_SENT);
        let data_end = self.snd.nxt - u32::from(fin_sent);
        let payload_end = end.min(data_end).max(seq);
        let len = payload_end.since(seq).min(u32::from(self.snd.mss));
        let fin = fin_sent && seq + len == data_end && end.gt(data_end);
        if len == 0 && !fin {
            return None;
        }
        let fits_path = forced || self.fits_path(len);
        // SHLD-16: within the window; MAY-7: the first one beyond it too, as the probe of a shrunken one.
        let fits_window = seq == self.snd.una || (seq + len).le(self.snd.wnd_end());
        (fits_path && fits_window).then_some(Plan::Repeat { seq, len, fin })
    }

    /// New data and the FIN behind it.
    fn plan_fresh(&self) -> Option<Plan> {
        let unsent = self.unsent();
        let fin_waits = self.fin_unsent();
        let usable = self.snd.usable();
        if unsent == 0 {
            // A FIN takes a sequence number, so it needs the window, but no room on the path.
            return (fin_waits && usable > 0).then_some(Plan::Fresh { len: 0, fin: true });
        }
        let len = self.segment_size(unsent, usable, fin_waits)?;
        let fin = fin_waits && len == unsent && len < usable;
        let fits_path = self.fits_path(len) || (fin && len < u32::from(self.snd.mss));
        fits_path.then_some(Plan::Fresh { len, fin })
    }

    /// The congestion window lets a segment of `len` bytes go.
    #[inline]
    fn fits_path(&self, len: u32) -> bool {
        let pipe = self.pipe();
        let mss = u64::from(self.snd.mss);
        pipe == 0 || u64::from(pipe + len) <= u64::from(self.congestion.window.cwnd) * mss
    }
}
