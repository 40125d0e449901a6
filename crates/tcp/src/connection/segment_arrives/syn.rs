//! Fourth step: a SYN in a synchronized state (RFC 5961 4), and the SYN-ACK of a simultaneous open.

use wire::tcp::Flags;

use super::Step;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::segment::Segment;

impl Connection {
    /// Answers a SYN, whatever its sequence number, with a challenge ACK. A peer that has restarted
    /// answers that with a RST.
    pub(super) fn step_syn(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        if !seg.has(Flags::SYN) {
            return Step::Continue(Effects::NONE);
        }
        cx.counters.drop_syn_synchronized += 1;
        self.ecn.note_ecn_of_late_syn(self.snd.ecn(), seg);
        if self.rx.challenge(cx, &mut self.conn_flags, &mut self.tx) {
            self.ecn.reflect_next(self.snd.ecn());
        }
        Step::Done(Effects::NONE)
    }
}
