//! Packet rules on TCP: a segment that would begin a connection or belongs to none.

use wire::tcp::Flags;

use crate::arrivals::Arrivals;
use crate::arrivals::demux::Arrival;
use crate::arrivals::tcp_in::refuse;
use crate::engine::Engine;
use crate::rules::judge::{Judge, Verdict};
use crate::rules::packet::RulePacket;

impl Arrivals {
    /// True for a segment that the packet rules do not let in. One that they reject is answered as
    /// at a port where nobody listens. What this stack sends to itself is not asked about.
    #[inline]
    pub(super) fn is_refused(
        &self,
        engine: &mut Engine,
        rules: &mut Option<Box<Judge>>,
        arrival: &Arrival,
    ) -> bool {
        match rules {
            Some(judge) if !self.takes_local => self.ask(engine, judge, arrival) != Verdict::Pass,
            _ => false,
        }
    }

    #[inline(never)]
    fn ask(&self, engine: &mut Engine, judge: &mut Judge, arrival: &Arrival) -> Verdict {
        let parts = engine.parts();
        let flags = arrival.segment.flags;
        let is_syn = flags.contains(Flags::SYN) && !flags.contains(Flags::ACK);
        let bytes = arrival.packet_bytes();
        let packet = RulePacket::tcp(&arrival.key, self.port, bytes, is_syn);
        let verdict = judge.judge(&packet, parts.env.now_ns, parts.counters);
        if verdict == Verdict::Reject {
            refuse(parts.schedule, parts.counters, arrival);
        }
        verdict
    }
}
