//! Runs: segments of one flow that arrived together, one after another in order, taken in one visit.
//!
//! The stack's stage `aggregation` finds them (Menon and Zwaenepoel, "Optimizing TCP Receive Performance", USENIX ATC 2008). What a
//! connection does once per visit (deciding what to send, arming timers) it does once per run; everything that an ACK number, a timestamp or
//! a length means it does for each segment, in order, so that a run leaves the connection as its segments would have left it one by one.
//!
//! The ACKs that fall due on the way are asked for with [`Connection::poll_due_ack`] before the next segment is taken: as many leave as if each
//! segment had arrived alone, which the peer's congestion control counts on.

use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::recv_buffer::RecvBuffer;
use crate::segment::Segment;

/// A run under way: what its end is compared with.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Run {
    deadline_ns: u64,
}

impl Connection {
    /// A run of segments begins, of one or more.
    #[inline]
    pub fn begin_run(&self) -> Run {
        Run {
            deadline_ns: self.deadline_ns,
        }
    }

    /// The next segment of a run (RFC 9293 3.10.7). A run whose segment had effects other than `READABLE` and `WRITABLE` ends with it.
    #[inline]
    pub fn on_segment_of_run(
        &mut self,
        cx: &mut Cx<'_>,
        seg: &Segment,
        rx: &mut impl RecvBuffer,
    ) -> Effects {
        cx.counters.segments_in += 1;
        self.rx.count_segment(seg.len > 0);
        if self.is_predicted(seg) {
            self.predicted(cx, seg, rx)
        } else {
            self.segment_arrives(cx, seg, rx)
        }
    }

    /// The run is over; `effects` are those of all its segments together.
    #[inline]
    pub fn end_run(&mut self, cx: &mut Cx<'_>, effects: Effects, run: Run) -> Effects {
        self.finish(cx, effects, run.deadline_ns)
    }

    /// A segment arrives (RFC 9293 3.10.7): a run of one.
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
