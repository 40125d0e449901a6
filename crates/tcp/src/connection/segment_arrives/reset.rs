//! Second step: RST (RFC 9293 3.10.7.4, RFC 5961 3).

use wire::tcp::Flags;

use super::Step;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::segment::Segment;
use crate::state::{ConnectionError, State};

impl Connection {
    pub(super) fn step_reset(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        if !seg.has(Flags::RST) {
            return Step::Continue(Effects::NONE);
        }
        if seg.seq == self.rcv.nxt() || self.rcv.forgets_its_fin(seg, self.state()) {
            cx.counters.resets_in += 1;
            return Step::Done(self.reset_by_peer());
        }
        if seg.seq.in_window(self.rcv.nxt(), self.rcv.wnd()) {
            // The RST may be a blind attack, or may have overtaken data. The true peer resets at
            // the window's left edge.
            cx.counters.drop_reset_in_window += 1;
            let _ = self.rx.challenge(cx, &mut self.conn_flags, &mut self.tx);
        } else {
            cx.counters.drop_reset_outside_window += 1;
        }
        Step::Done(Effects::NONE)
    }

    pub(super) fn reset_by_peer(&mut self) -> Effects {
        match self.state() {
            // Everything was sent and acknowledged, so no error is reported.
            State::TimeWait => self.finish_closed(),
            // An application that is still there is told, as in Linux, although the peer had
            // closed.
            _ => self.fail(ConnectionError::Reset),
        }
    }
}
