//! Runs: segments of one flow that arrived together, one after another in order, taken in one
//! visit.
//!
//! The stack's stage `aggregation` finds them (Menon and Zwaenepoel, "Optimizing TCP Receive
//! Performance", USENIX ATC 2008). Work that belongs to a visit (deciding what to send, arming
//! timers) is done once per run. Work that follows from an ACK number, a timestamp or a length is
//! done for each segment, in order. A run therefore leaves the connection in the state that its
//! segments would leave one by one.
//!
//! Before each segment the stack takes the ACKs that have fallen due with
//! [`Connection::poll_due_ack`]. As many ACKs leave as if each segment had arrived alone, which the
//! peer's congestion control counts on.

use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::recv_buffer::RecvBuffer;
use crate::segment::Segment;

/// A run in progress: the values that its end is compared with.
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
            deadline_ns: self.timers.deadline_ns(),
        }
    }

    /// The next segment of a run (RFC 9293 3.10.7). A run whose segment had effects other than
    /// `READABLE` and `WRITABLE` ends with it.
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
