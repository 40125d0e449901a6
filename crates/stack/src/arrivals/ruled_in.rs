//! Packet rules on TCP: a segment that would begin a connection or belongs to none.

use wire::tcp::Flags;

use crate::arrivals::Arrivals;
use crate::arrivals::demux::Arrival;
use crate::arrivals::tcp_in::refuse;
use crate::core::Core;
use crate::rules::judge::Verdict;
use crate::rules::packet::RulePacket;

impl Arrivals {
    /// True for a segment that the packet rules do not let in. One that they reject is answered as
    /// at a port where nobody listens. What this stack sends to itself is not asked about.
    #[inline]
    pub(super) fn is_refused(&self, core: &mut Core, arrival: &Arrival) -> bool {
        core.rules.is_some() && !self.takes_local && self.judge(core, arrival) != Verdict::Pass
    }

    #[inline(never)]
    fn judge(&self, core: &mut Core, arrival: &Arrival) -> Verdict {
        let Some(judge) = &mut core.rules else {
            return Verdict::Pass;
        };
        let flags = arrival.segment.flags;
        let is_syn = flags.contains(Flags::SYN) && !flags.contains(Flags::ACK);
        let bytes = arrival.packet_bytes();
        let packet = RulePacket::tcp(&arrival.key, self.port, bytes, is_syn);
        let verdict = judge.judge(&packet, core.env.now_ns, &mut core.counters);
        if verdict == Verdict::Reject {
            refuse(&mut core.schedule, &mut core.counters, arrival);
        }
        verdict
    }
}
