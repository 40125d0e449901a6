//! Packetization-layer path MTU discovery (RFC 4821), as Linux does it: a search between a size
//! that passes and one that does not, by segments of the size in the middle, made of data that is
//! due anyway.
//!
//! A probe leaves only when there is no loss and when enough data and window follow it for
//! duplicate ACKs to show its loss. A lost probe is no sign of congestion: the upper bound falls,
//! and its data is sent again in segments that fit. After several timeouts in a row a black hole is
//! suspected, and the lower bound is halved.

use crate::congestion::CaState;
use crate::connection::Connection;
use crate::context::Cx;
use crate::limits::{SEND_MSS_MIN, coarse, timestamp_bytes};
use crate::marks::Marks;
use crate::path_mtu::MtuProbing;

/// The congestion window below which no probe leaves. A probe takes the place of two segments, and
/// five more must follow it.
const PROBE_CWND_MIN: u32 = 11;
/// Segments that must be able to follow a probe, beyond the reordering that is tolerated.
const FOLLOWERS: u32 = 1;

impl Connection {
    /// Begins the search on a new connection, if probing is always on. As in Linux, the active
    /// opener keeps room for the timestamps that it offered, and the passive one sends segments of
    /// the full size until the first probe has passed.
    pub(crate) fn begin_probing(&mut self, cx: &Cx<'_>) {
        if cx.config.path_mtu.probing != MtuProbing::Always {
            return;
        }
        let base = cx.config.path_mtu.probe_mss_base;
        if self.cold.is_syn_sent {
            let offered = timestamp_bytes(cx.config.timestamps);
            self.begin_search(cx, base.saturating_add(offered));
            self.refresh_path();
        } else {
            self.begin_search(cx, base.saturating_add(self.option_bytes()));
        }
    }

    /// Begins the search without an effect on the segments' size yet.
    fn begin_search(&mut self, cx: &Cx<'_>, low: u16) {
        self.marks.set(Marks::PATH_PROBING);
        self.path.high = self.path.size_max(self.marks, self.tx.peer_mss);
        self.path.low = low.clamp(SEND_MSS_MIN, self.path.high);
        self.path.probe = 0;
        self.path.probed_at = coarse(cx.now_ns);
        self.path.threshold = cx.config.path_mtu.probe_threshold;
    }

    /// A search that has ended begins anew after a while: the path may have become wider.
    pub(super) fn review_search(&mut self, cx: &Cx<'_>) {
        let interval_ns = cx.config.path_mtu.probe_interval_ns;
        let age = coarse(cx.now_ns).wrapping_sub(self.path.probed_at);
        if self.path.probe == 0 && self.path.search_is_over() && age > coarse(interval_ns) {
            self.begin_search(cx, self.path.low);
            self.refresh_path();
        }
    }

    /// Payload of the probe that may leave now.
    #[inline]
    pub(crate) fn path_probe(&self, cx: &Cx<'_>, unsent: u32, usable: u32) -> Option<u32> {
        if !self.marks.has(Marks::PATH_PROBING) || self.path.probe != 0 {
            return None;
        }
        self.next_path_probe(cx, unsent, usable)
    }

    #[cold]
    fn next_path_probe(&self, cx: &Cx<'_>, unsent: u32, usable: u32) -> Option<u32> {
        let cwnd = self.congestion.cwnd();
        let calm = self.recovery.ca_state() == CaState::Open
            && cwnd >= PROBE_CWND_MIN
            && !self.marks.any(Marks::OUT_OF_ORDER | Marks::RECOVERING);
        if !calm || self.path.search_is_over() {
            return None;
        }
        let len = u32::from(
            self.path
                .probe_size()
                .checked_sub(self.option_bytes() + self.report_bytes(cx))?,
        );
        let mss = u32::from(self.snd.mss);
        let followers = u32::from(self.recovery.reordering()) + FOLLOWERS;
        let needed = len + followers * mss;
        let fits =
            unsent >= needed && usable >= needed && self.recovery.segments_in_flight() + 2 <= cwnd;
        fits.then_some(len)
    }

    fn option_bytes(&self) -> u16 {
        timestamp_bytes(self.marks.has(Marks::TIMESTAMPS))
    }

    /// Records that a probe of `len` bytes is about to leave from SND.NXT. It stands for two
    /// segments, so the window has one segment less until the probe's fate is known.
    #[cold]
    pub(crate) fn note_path_probe(&mut self, cx: &mut Cx<'_>, len: u32) {
        cx.counters.path_probes_out += 1;
        self.path.probe = self.path.probe_size();
        self.path.probe_start = self.snd.nxt;
        self.path.probe_len = len as u16;
        self.congestion.lend_segment();
    }

    /// SND.UNA moved: if the probe is behind it, its size passes. The window stays as many bytes as
    /// it was.
    #[cold]
    pub(crate) fn path_probe_acked(&mut self, cx: &mut Cx<'_>) {
        let end = self.path.probe_start + u32::from(self.path.probe_len);
        if self.snd.una.lt(end) {
            return;
        }
        cx.counters.path_probes_acked += 1;
        let before = self.snd.mss;
        // A router may have named a smaller size since, and its word counts.
        self.path.low = self.path.probe.min(self.path.high);
        self.path.probe = 0;
        self.refresh_path();
        self.congestion.resize_segments(before, self.snd.mss);
    }

    /// Loss was found, and the first segment in flight is the probe: it was too long, no more.
    /// True: that is all there is to it.
    pub(crate) fn path_probe_lost(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.path.probe == 0 || self.snd.una != self.path.probe_start {
            return false;
        }
        cx.counters.path_probes_lost += 1;
        let below = (self.path.probe - 1).min(self.path.high);
        self.path.high = below.max(self.path.low);
        self.path.probe = 0;
        self.congestion.return_segment();
        self.resend_path_probe(cx);
        true
    }

    /// Timeouts in a row: long segments may fall into a black hole. The search begins, or goes on
    /// from half the size.
    #[cold]
    pub(crate) fn suspect_black_hole(&mut self, cx: &mut Cx<'_>) {
        let settings = cx.config.path_mtu;
        self.path.probe = 0;
        if settings.probing == MtuProbing::Never {
            return;
        }
        let options = self.option_bytes();
        if self.marks.has(Marks::PATH_PROBING) {
            let half = self.path.low.saturating_sub(options) / 2;
            let low = half
                .min(settings.probe_mss_base)
                .max(settings.probe_mss_min)
                .saturating_add(options);
            self.path.low = low.min(self.path.high).max(SEND_MSS_MIN);
        } else {
            self.begin_search(cx, settings.probe_mss_base.saturating_add(options));
        }
        self.refresh_path();
    }
}
