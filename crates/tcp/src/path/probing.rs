//! Packetization-layer path MTU discovery (RFC 4821), as in Linux. It searches between a size that
//! passes and one that does not. A probe has the size in the middle and consists of data that is
//! due anyway.
//!
//! A probe leaves only if no segment is lost and if enough data and window follow it, so that
//! duplicate ACKs would show its loss. A lost probe is no sign of congestion: the upper bound
//! falls, and the data is sent again in segments that fit. After several timeouts in a row a black
//! hole is suspected, and the lower bound is halved.

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::limits::{SEND_MSS_MIN, coarse, timestamp_bytes};
use crate::opening::Opening;
use crate::path::Path;
use crate::path_mtu::MtuProbing;
use crate::send::Sender;
use crate::variables::Snd;

impl Path {
    /// Begins the search on a new connection, if probing is always on. As in Linux the active
    /// opener reserves room for the timestamps that it offered, and the passive side sends segments
    /// of full size until the first probe has passed.
    pub(crate) fn begin_probing(
        &mut self,
        cx: &Cx<'_>,
        conn_flags: &mut ConnFlags,
        snd: &mut Snd,
        tx: &mut Sender,
        opening: &Opening,
    ) {
        if cx.config.path_mtu.probing != MtuProbing::Always {
            return;
        }
        let base = cx.config.path_mtu.probe_mss_base;
        if opening.is_syn_sent() {
            let offered = timestamp_bytes(cx.config.timestamps);
            self.begin_search(cx, base.saturating_add(offered), conn_flags);
            self.refresh_path(*conn_flags, snd, tx);
        } else {
            self.begin_search(
                cx,
                base.saturating_add(conn_flags.option_bytes()),
                conn_flags,
            );
        }
    }

    /// Begins the search, but leaves the segment size as it is.
    fn begin_search(&mut self, cx: &Cx<'_>, low: u16, conn_flags: &mut ConnFlags) {
        conn_flags.set(ConnFlags::PATH_PROBING);
        self.high = self.size_max(*conn_flags);
        self.low = low.clamp(SEND_MSS_MIN, self.high);
        self.probe = 0;
        self.probed_at = coarse(cx.now_ns);
        self.threshold = cx.config.path_mtu.probe_threshold;
    }

    /// Restarts a search that has ended, after some time, because the path may have become wider.
    pub(crate) fn review_search(
        &mut self,
        cx: &Cx<'_>,
        conn_flags: &mut ConnFlags,
        snd: &mut Snd,
        tx: &mut Sender,
    ) {
        let interval_ns = cx.config.path_mtu.probe_interval_ns;
        let age = coarse(cx.now_ns).wrapping_sub(self.probed_at);
        if self.probe == 0 && self.search_is_over() && age > coarse(interval_ns) {
            self.begin_search(cx, self.low, conn_flags);
            self.refresh_path(*conn_flags, snd, tx);
        }
    }

    /// Takes timeouts in a row: the path may swallow long segments. The search begins, or goes on
    /// from half of the lower bound.
    #[cold]
    pub(crate) fn suspect_black_hole(
        &mut self,
        cx: &mut Cx<'_>,
        conn_flags: &mut ConnFlags,
        snd: &mut Snd,
        tx: &mut Sender,
    ) {
        let settings = cx.config.path_mtu;
        self.probe = 0;
        if settings.probing == MtuProbing::Never {
            return;
        }
        let options = conn_flags.option_bytes();
        if conn_flags.has(ConnFlags::PATH_PROBING) {
            let half = self.low.saturating_sub(options) / 2;
            let low = half
                .min(settings.probe_mss_base)
                .max(settings.probe_mss_min)
                .saturating_add(options);
            self.low = low.min(self.high).max(SEND_MSS_MIN);
        } else {
            self.begin_search(
                cx,
                settings.probe_mss_base.saturating_add(options),
                conn_flags,
            );
        }
        self.refresh_path(*conn_flags, snd, tx);
    }
}
