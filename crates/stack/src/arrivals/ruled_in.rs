//! Packet rules for TCP: they judge segments that would begin a connection or belong to none.

use wire::tcp::Flags;

use crate::arrivals::Arrivals;
use crate::arrivals::demux::Arrival;
use crate::arrivals::tcp_in::refuse;
use crate::counters::Counters;
use crate::rules::judge::{Judge, Verdict};
use crate::rules::packet::RulePacket;
use crate::schedule::Schedule;

impl Arrivals {
    /// True if the packet rules refuse the segment. A rejected segment is answered as at a closed
    /// port. Segments that this stack sends to itself are exempt.
    #[inline]
    pub(super) fn is_refused(
        &self,
        parts: (&mut Schedule, &mut Counters),
        rules: &mut Option<Box<Judge>>,
        arrival: &Arrival,
        now_ns: u64,
    ) -> bool {
        match rules {
            Some(judge) if !self.takes_local => {
                self.ask(parts, judge, arrival, now_ns) != Verdict::Pass
            }
            _ => false,
        }
    }

    #[inline(never)]
    fn ask(
        &self,
        (schedule, counters): (&mut Schedule, &mut Counters),
        judge: &mut Judge,
        arrival: &Arrival,
        now_ns: u64,
    ) -> Verdict {
        let flags = arrival.segment.flags;
        let is_syn = flags.contains(Flags::SYN) && !flags.contains(Flags::ACK);
        let bytes = arrival.packet_bytes();
        let packet = RulePacket::tcp(&arrival.key, self.port, bytes, is_syn);
        let verdict = judge.judge(&packet, now_ns, counters);
        if verdict == Verdict::Reject {
            refuse(schedule, counters, arrival);
        }
        verdict
    }
}
