//! Fourth step: a SYN in a synchronized state (RFC 5961 4), and the SYN-ACK of a simultaneous open.

use wire::tcp::Flags;

use super::Step;
use crate::connection::Connection;
use crate::context::Cx;
use crate::effects::Effects;
use crate::segment::Segment;
use crate::state::State;

impl Connection {
    /// Whatever its sequence number: a challenge ACK. A peer that has restarted answers it with a
    /// RST.
    pub(super) fn step_syn(&mut self, cx: &mut Cx<'_>, seg: &Segment) -> Step {
        if !seg.has(Flags::SYN) {
            return Step::Continue(Effects::NONE);
        }
        cx.counters.drop_syn_synchronized += 1;
        self.ecn.note_ecn_of_late_syn(self.snd.ecn, seg);
        if self.challenge(cx) {
            self.ecn.reflect_next(self.snd.ecn);
        }
        Step::Done(Effects::NONE)
    }

    /// True if both sides are in SYN_RECEIVED and this is the peer's SYN-ACK: the SYN is known, the
    /// ACK is new.
    pub(super) fn completes_crossed_open(&self, seg: &Segment) -> bool {
        self.state() == State::SynReceived
            && seg.has(Flags::SYN | Flags::ACK)
            && !seg.has(Flags::RST)
            && seg.seq == self.rx.irs()
            && seg.ack == self.snd.nxt
    }
}
