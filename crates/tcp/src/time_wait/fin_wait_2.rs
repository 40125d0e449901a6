//! FIN_WAIT_2 as a compact entry: the application is gone, our FIN is acknowledged, and the peer's
//! FIN has not come. Arriving segments are judged as in Linux (`tcp_timewait_state_process`): the
//! window first, then the segments that may end the wait.

use wire::Ecn;
use wire::tcp::Flags;

use super::{TimeWait, TimeWaitOutcome};
use crate::context::Cx;
use crate::limits::{TS_RECENT_AGE_MAX_OF_RESET, coarse};
use crate::segment::{Segment, SegmentOut};

#[cfg(test)]
mod tests;

impl TimeWait {
    pub(super) fn in_fin_wait_2(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> TimeWaitOutcome {
        if self.is_too_old(cx.now_ns, seg) {
            cx.counters.drop_paws += 1;
            return self.acknowledge(cx, seg);
        }
        if !self.is_acceptable(seg) {
            cx.counters.drop_outside_window += 1;
            return self.acknowledge(cx, seg);
        }
        if seg.has(Flags::RST) {
            // A RST anywhere in the window counts, because a forged one harms no application.
            cx.counters.resets_in += 1;
            return TimeWaitOutcome::Gone;
        }
        if seg.has(Flags::SYN) && seg.seq.ge(self.rcv_nxt) {
            cx.counters.drop_syn_synchronized += 1;
            return TimeWaitOutcome::Reset;
        }
        if !seg.has(Flags::ACK) {
            cx.counters.drop_no_ack += 1;
            return TimeWaitOutcome::Drop;
        }
        if seg.seq_len() == 0 || seg.end().le(self.rcv_nxt) {
            // The segment only acknowledges. The peer's window does not matter any more.
            return TimeWaitOutcome::Drop;
        }
        if !seg.has(Flags::FIN) || seg.end() != self.rcv_nxt + 1 {
            cx.counters.bytes_drop_orphan += u64::from(seg.len);
            return TimeWaitOutcome::Reset;
        }
        self.enter_time_wait(cx, seg)
    }

    /// Takes the peer's FIN, which has no new data before it, and enters TIME_WAIT.
    fn enter_time_wait(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> TimeWaitOutcome {
        cx.counters.time_waits += 1;
        self.fin_wait_2 = false;
        self.rcv_nxt = seg.end();
        if let Some(timestamp) = seg.options.timestamp
            && self.timestamps
        {
            self.ts_recent = timestamp.value;
            self.ts_recent_at = coarse(cx.now_ns);
        }
        self.deadline_ns = cx.now_ns.saturating_add(cx.config.time_wait_ns);
        TimeWaitOutcome::Ack(SegmentOut {
            ecn: if self.ecn_capable {
                Ecn::Ect0
            } else {
                Ecn::NotEct
            },
            ..self.ack(cx)
        })
    }

    /// The RST with which a stack that shuts down ends the connection of a peer that has not
    /// closed.
    #[must_use]
    pub fn farewell(&self) -> SegmentOut {
        SegmentOut {
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags: Flags::RST | Flags::ACK,
            ..SegmentOut::empty()
        }
    }

    /// True if PAWS rejects the segment. PAWS applies to a RST only while TS.Recent is young
    /// (Linux), since RFC 7323 5.2 requires no timestamp on a RST.
    fn is_too_old(&self, now_ns: u64, seg: &Segment) -> bool {
        let is_young = coarse(now_ns).wrapping_sub(self.ts_recent_at) < TS_RECENT_AGE_MAX_OF_RESET;
        self.is_old(now_ns, seg) && (is_young || !seg.has(Flags::RST))
    }

    /// True if the segment is acceptable by RFC 9293 table 6.
    fn is_acceptable(&self, seg: &Segment) -> bool {
        let edge = self.rcv_nxt + self.rcv_wnd;
        let is_within = seg.end().gt(self.rcv_nxt) && seg.seq.lt(edge);
        seg.seq == self.rcv_nxt || is_within || (seg.seq == edge && seg.end() == edge)
    }
}
