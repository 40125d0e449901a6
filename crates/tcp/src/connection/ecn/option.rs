//! See [`crate::ecn`].

use crate::connection::Connection;
use crate::context::Cx;
use crate::ecn::option::{OPTION_ALWAYS, OPTION_PERSISTS, OptionSeen, micros};
use crate::ecn::received::fail;
use crate::limits::timestamp_bytes;
use crate::marks::Marks;
use crate::segment::SegmentOut;

impl Connection {
    /// Whether the next segment is to carry an option. Linux's reading of RFC 9768 3.2.3.3: never to a peer that sent none.
    fn wants_option(&self, cx: &Cx<'_>) -> bool {
        let accurate = &self.ecn.accurate;
        let setting = cx.config.accecn_option;
        if setting == 0 || accurate.option_seen == OptionSeen::None {
            return false;
        }
        if accurate.has_failed(fail::OPTION_SEND) && setting < OPTION_PERSISTS {
            return false;
        }
        setting >= OPTION_ALWAYS || accurate.demand > 0 || self.beacon_is_due(cx)
    }

    /// An option is due so many times in a round trip, whatever has changed.
    fn beacon_is_due(&self, cx: &Cx<'_>) -> bool {
        let beacons = u64::from(cx.config.accecn_option_beacon);
        let since_us = micros(cx.now_ns).wrapping_sub(self.ecn.accurate.option_sent_us);
        beacons > 0 && u64::from(since_us) * beacons >= self.tx.rtt.srtt_ns() / 1000
    }

    /// Puts an option into a segment that is complete but for it.
    pub(super) fn add_option(&mut self, cx: &Cx<'_>, out: &mut SegmentOut, dsack: bool) {
        let fit = if self.wants_option(cx) {
            let required = usize::from(self.ecn.accurate.fields_min);
            out.options.accecn_room().fit(required)
        } else {
            None
        };
        let accurate = &mut self.ecn.accurate;
        let Some(fit) = fit else {
            accurate.option_with_dsack = false;
            return;
        };
        out.options.sack.truncate(fit.sack_blocks);
        out.options.accecn = accurate.received.option().truncated(fit.fields);
        accurate.fields_min = 0;
        accurate.option_sent_us = micros(cx.now_ns);
        accurate.option_with_dsack = dsack;
        accurate.demand = accurate.demand.saturating_sub(1);
    }

    /// Bytes that SACK blocks and an AccECN option take from the payload of a segment that leaves now.
    #[inline]
    pub(crate) fn report_bytes(&self, cx: &Cx<'_>) -> u16 {
        let sack = self.sack_bytes(cx);
        if self.snd.ecn.is_accurate() {
            self.with_option_bytes(cx, sack)
        } else {
            sack
        }
    }

    fn with_option_bytes(&self, cx: &Cx<'_>, sack: u16) -> u16 {
        if !self.wants_option(cx) {
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

    /// Text arrived that was here before. If it is what the last ACK with an option reported as a duplicate, that ACK seems to be
    /// lost, and its option may be why (RFC 9768 3.2.3.2.2).
    pub(crate) fn suspect_option(&mut self, seg: &crate::segment::Segment) {
        if self.snd.ecn.is_accurate()
            && self.ecn.accurate.option_with_dsack
            && seg.seq == self.rx.duplicate.left
        {
            self.ecn.accurate.failed |= fail::OPTION_SEND;
        }
    }
}
