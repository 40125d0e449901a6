//! The accurate ECN option: room in segments, and paths that lose it (RFC 9768 3.2.3).

use crate::connection::Connection;
use crate::context::Cx;
use crate::ecn::received::fail;
use crate::limits::timestamp_bytes;
use crate::marks::Marks;

impl Connection {
    /// Bytes that SACK blocks and an AccECN option take from the payload of a segment that leaves
    /// now.
    #[inline]
    pub(crate) fn report_bytes(&self, cx: &Cx<'_>) -> u16 {
        let sack = self.rx.sack_bytes(self.marks, cx.ranges);
        if self.snd.ecn.is_accurate() {
            self.with_option_bytes(cx, sack)
        } else {
            sack
        }
    }

    fn with_option_bytes(&self, cx: &Cx<'_>, sack: u16) -> u16 {
        if !self
            .ecn
            .wants_option(self.tx.rtt.srtt_ns() / 1000, cx.now_ns, cx.config)
        {
            return sack;
        }
        let stamp = timestamp_bytes(self.marks.has(Marks::TIMESTAMPS));
        let room = wire::accecn::Room {
            bytes: wire::limits::TCP_OPTION_BYTES_MAX - usize::from(stamp + sack),
            sack_blocks: usize::from(sack.saturating_sub(4) / 8),
            padding: if sack > 0 { 2 } else { 0 },
        };
        let growth = room
            .fit(usize::from(self.ecn.accurate.fields_min))
            .map_or(0, |fit| fit.growth);
        // 40 bytes of options at most, none of them negative in sum.
        sack.saturating_add_signed(growth as i16)
    }

    /// Duplicate text arrived. If the last ACK with an option reported the same duplicate, that ACK
    /// seems to be lost, and its option may be the reason (RFC 9768 3.2.3.2.2).
    pub(crate) fn suspect_option(&mut self, seg: &crate::segment::Segment) {
        if self.snd.ecn.is_accurate()
            && self.ecn.accurate.option_with_dsack
            && seg.seq == self.rx.duplicate().left
        {
            self.ecn.accurate.failed |= fail::OPTION_SEND;
        }
    }
}
