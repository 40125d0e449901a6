//! The AccECN option (RFC 9768 3.2.3): when to send one, its length, and the state kept of received
//! ones.

use crate::config::Config;
use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::ecn::EcnState;
use crate::ecn::fail;
use crate::ecn::option_values::{OptionSeen, micros};
use crate::limits::timestamp_bytes;
use crate::receive::Receiver;
use crate::segment::SegmentOut;
use crate::timers::Timers;
use crate::variables::Snd;

/// `tcp_ecn_option`: an option in every segment that has room.
pub(crate) const OPTION_ALWAYS: u8 = 2;
/// `tcp_ecn_option`: also when ACKs with one seem to be lost.
pub(crate) const OPTION_PERSISTS: u8 = 3;

impl EcnState {
    /// True if the next segment is to carry an option. Linux's reading of RFC 9768 3.2.3.3: never
    /// to a peer that sent none.
    pub(crate) fn wants_option(&self, srtt_us: u64, now_ns: u64, config: &Config) -> bool {
        let accurate = &self.accurate;
        let setting = config.accecn_option;
        if setting == 0 || accurate.option_seen == OptionSeen::None {
            return false;
        }
        if accurate.has_failed(fail::OPTION_SEND) && setting < OPTION_PERSISTS {
            return false;
        }
        setting >= OPTION_ALWAYS
            || accurate.demand > 0
            || self.beacon_is_due(srtt_us, now_ns, config)
    }

    /// An option is due so many times in a round trip, whatever has changed.
    pub(crate) fn beacon_is_due(&self, srtt_us: u64, now_ns: u64, config: &Config) -> bool {
        let beacons = u64::from(config.accecn_option_beacon);
        let since_us = micros(now_ns).wrapping_sub(self.accurate.option_sent_us);
        beacons > 0 && u64::from(since_us) * beacons >= srtt_us
    }

    /// Puts an option into a segment that is complete but for it.
    pub(crate) fn add_option(
        &mut self,
        srtt_us: u64,
        now_ns: u64,
        config: &Config,
        out: &mut SegmentOut,
        dsack: bool,
    ) {
        let fit = if self.wants_option(srtt_us, now_ns, config) {
            let required = usize::from(self.accurate.fields_min);
            out.options.accecn_room().fit(required)
        } else {
            None
        };
        let accurate = &mut self.accurate;
        let Some(fit) = fit else {
            accurate.option_with_dsack = false;
            return;
        };
        out.options.sack.truncate(fit.sack_blocks);
        out.options.accecn = accurate.received.option().truncated(fit.fields);
        accurate.fields_min = 0;
        accurate.option_sent_us = micros(now_ns);
        accurate.option_with_dsack = dsack;
        accurate.demand = accurate.demand.saturating_sub(1);
    }
}

impl EcnState {
    /// Bytes that SACK blocks and an AccECN option take from the payload of a segment that leaves
    /// now.
    #[inline]
    pub(crate) fn report_bytes(
        &self,
        cx: &Cx<'_>,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
        rx: &Receiver,
    ) -> u16 {
        let sack = rx.sack_bytes(conn_flags, cx.ranges);
        if snd.ecn().is_accurate() {
            self.with_option_bytes(cx, sack, conn_flags, timers)
        } else {
            sack
        }
    }

    fn with_option_bytes(
        &self,
        cx: &Cx<'_>,
        sack: u16,
        conn_flags: ConnFlags,
        timers: &Timers,
    ) -> u16 {
        if !self.wants_option(timers.rtt().srtt_ns() / 1000, cx.now_ns, cx.config) {
            return sack;
        }
        let stamp = timestamp_bytes(conn_flags.has(ConnFlags::TIMESTAMPS));
        let room = wire::accecn::Room {
            bytes: wire::limits::TCP_OPTION_BYTES_MAX - usize::from(stamp + sack),
            sack_blocks: usize::from(sack.saturating_sub(4) / 8),
            padding: if sack > 0 { 2 } else { 0 },
        };
        let growth = room
            .fit(usize::from(self.accurate.fields_min))
            .map_or(0, |fit| fit.growth);
        // 40 bytes of options at most, none of them negative in sum.
        sack.saturating_add_signed(growth as i16)
    }

    /// Duplicate text arrived. If the last ACK with an option reported the same duplicate, that ACK
    /// seems to be lost, and its option may be the reason (RFC 9768 3.2.3.2.2).
    pub(crate) fn suspect_option(
        &mut self,
        seg: &crate::segment::Segment,
        snd: &Snd,
        rx: &Receiver,
    ) {
        if snd.ecn().is_accurate()
            && self.accurate.option_with_dsack
            && seg.seq == rx.duplicate().left
        {
            self.accurate.failed |= fail::OPTION_SEND;
        }
    }

    /// The largest payload of a segment that leaves now: SACK blocks take their room from it.
    #[inline]
    pub(crate) fn current_mss(
        &self,
        cx: &Cx<'_>,
        conn_flags: ConnFlags,
        snd: &Snd,
        timers: &Timers,
        rx: &Receiver,
    ) -> u32 {
        u32::from(
            snd.mss()
                - self
                    .report_bytes(cx, conn_flags, snd, timers, rx)
                    .min(snd.mss() / 2),
        )
    }
}
