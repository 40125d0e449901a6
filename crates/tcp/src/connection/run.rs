//! Runs: segments of one flow that arrived together, one after another in order, taken in one
//! visit.
//!
//! The stack's stage `aggregation` finds runs (Menon and Zwaenepoel, "Optimizing TCP Receive
//! Performance", USENIX ATC 2008). Work that belongs to a visit (planning the next segment, arming
//! timers) is done once per run. Work that follows from an ACK number, a timestamp or a length is
//! done for each segment, in order. A run therefore leaves the connection in the same state as its
//! segments one by one.
//!
//! Before each segment the stack takes the ACKs that have become due with
//! [`Connection::poll_due_ack`]. So as many ACKs leave as if each segment had arrived alone, which
//! the peer's congestion control relies on.

use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::recv_buffer::RecvBuffer;
use crate::segment::Segment;

/// A run in progress: the values with which its end is compared.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Run {
    deadline_ns: u64,
}

impl Connection {
    /// Begins a run of one or more segments.
    #[inline]
    pub fn begin_run(&self) -> Run {
        Run {
            deadline_ns: self.timers.deadline_ns(),
        }
    }

    /// Takes the next segment of a run (RFC 9293 3.10.7). The run ends with a segment that has
    /// effects other than `READABLE` and `WRITABLE`.
    #[inline]
    pub fn on_segment_of_run(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> Effects {
        cx.counters.segments_in += 1;
        self.rx.count_segment(seg.len > 0);
        if self
            .rx
            .is_predicted(seg, self.state(), self.conn_flags, &self.snd, &self.rcv)
        {
            self.predicted(cx, seg, rx)
        } else {
            self.segment_arrives(cx, seg, rx)
        }
    }

    /// Ends the run; `effects` are those of all its segments together.
    #[inline]
    pub fn end_run(&mut self, cx: &mut Cx<'_>, effects: Effects, run: Run) -> Effects {
        self.finish(cx, effects, run.deadline_ns)
    }

    /// Takes a segment that arrived (RFC 9293 3.10.7): a run of one.
    #[inline]
    pub fn on_segment(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> Effects {
        let run = self.begin_run();
        let effects = self.on_segment_of_run(cx, seg, rx);
        self.end_run(cx, effects, run)
    }
}
