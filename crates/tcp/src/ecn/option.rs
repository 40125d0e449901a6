//! The AccECN option (RFC 9768 3.2.3): when to send it, its length, and loss of ACKs that carry it.

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

/// Value of `tcp_ecn_option`: an option in every segment that has room.
pub(crate) const OPTION_ALWAYS: u8 = 2;
/// Value of `tcp_ecn_option`: also when ACKs with an option seem to be lost.
pub(crate) const OPTION_PERSISTS: u8 = 3;

impl EcnState {
    /// True if the next segment is to carry an option. In Linux's reading of RFC 9768 3.2.3.3 it
    /// never does if the peer sent none.
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

    /// True if an option is due because the minimum number per round trip is not reached, even
    /// without news.
    pub(crate) fn beacon_is_due(&self, srtt_us: u64, now_ns: u64, config: &Config) -> bool {
        let beacons = u64::from(config.accecn_option_beacon);
        let since_us = micros(now_ns).wrapping_sub(self.accurate.option_sent_us);
        beacons > 0 && u64::from(since_us) * beacons >= srtt_us
    }

    /// Adds an option to a segment that is complete otherwise.
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
    /// Bytes by which SACK blocks and an AccECN option shorten the payload of a segment that leaves
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
        // Options have at most 40 bytes, and the sum is never negative.
        sack.saturating_add_signed(growth as i16)
    }

    /// Takes duplicate text. If the last ACK with an option reported the same duplicate, that ACK
    /// seems to be lost, perhaps because of its option (RFC 9768 3.2.3.2.2).
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

    /// Largest payload of a segment that leaves now, after the room for SACK blocks and the AccECN
    /// option.
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
