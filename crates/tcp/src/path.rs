//! A connection's path: the segment sizes that the peer, our link and routers allow.
//!
//! With ICMP (RFC 1191, RFC 8201) the path's MTU falls as soon as a router reports a smaller one
//! and the message quotes data in flight. After ten minutes the link's MTU is tried again. With
//! probing (RFC 4821, `probing`) the MTU is found where such messages are lost.
//!
//! All sizes are MSS in bytes: MTU less IP and TCP headers, options included. `Path::path_mss` is
//! the result.

use wire::SeqNumber;

use crate::conn_flags::ConnFlags;
use crate::context::Cx;
use crate::limits::{SEND_MSS_MIN, TIMESTAMP_OPTION_LEN, coarse, timestamp_bytes};
use crate::pack::Packing;
use crate::send::Sender;
use crate::variables::Snd;

mod probing;

/// Largest window of a peer that is small by nature, so that one segment may fill its window.
const SMALL_WINDOW_MAX: u32 = 536;

/// Linux's default MSS, which most connections have.
const USUAL_MSS: u16 = 1_460;

/// A connection's knowledge of its path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    /// MSS that the peer announced.
    peer_mss: u16,
    /// MSS that our link, or the path, allows.
    path_mss: u16,
    /// The link's limit, or the application's (TCP_MAXSEG): the upper bound.
    mss_max: u16,
    /// MSS that a router reported; valid while `ConnFlags::PATH_NARROWED` is set.
    narrow_mss: u16,
    /// Time at which the report becomes outdated, in coarse time.
    narrow_until: u32,
    /// Lower bound of the search: segments of this size pass, or are believed to
    /// (`ConnFlags::PATH_PROBING`).
    low: u16,
    /// Upper bound of the search: larger segments do not pass.
    high: u16,
    /// Size of the probe in flight; 0: none is.
    probe: u16,
    /// First sequence number and length of the probe's payload.
    probe_start: SeqNumber,
    probe_len: u16,
    /// Time at which the search began, in coarse time.
    probed_at: u32,
    /// The search ends when `low` and `high` are less than this apart.
    threshold: u16,
}

impl Path {
    pub fn new(mss: u16) -> Path {
        Path {
            peer_mss: mss,
            path_mss: mss,
            mss_max: mss,
            narrow_mss: mss,
            narrow_until: 0,
            low: mss,
            high: mss,
            probe: 0,
            probe_start: SeqNumber(0),
            probe_len: 0,
            probed_at: 0,
            threshold: 1,
        }
    }
}

impl Path {
    pub fn pack(&mut self, p: &mut impl Packing) {
        let Path {
            peer_mss,
            path_mss,
            mss_max,
            narrow_mss,
            narrow_until,
            low,
            high,
            probe,
            probe_start,
            probe_len,
            probed_at,
            threshold,
        } = self;
        p.u16(peer_mss, USUAL_MSS);
        p.u16(path_mss, *peer_mss);
        p.u16(mss_max, *path_mss);
        p.u16(narrow_mss, *mss_max);
        p.u32(narrow_until, 0);
        p.u16(low, *mss_max);
        p.u16(high, *mss_max);
        p.u16(probe, 0);
        p.seq(probe_start, SeqNumber(0));
        p.u16(probe_len, 0);
        p.u32(probed_at, 0);
        p.u16(threshold, 1);
    }
}

impl Path {
    /// The segment size before the peer's window is considered.
    pub fn base_mss(&self, option_bytes: u16) -> u16 {
        let mss = self.peer_mss.min(self.path_mss).max(SEND_MSS_MIN);
        mss - option_bytes
    }

    /// The peer's MSS, or the assumed one before its SYN, less the options that we use.
    pub(crate) fn mss_of_peer(&self, conn_flags: ConnFlags) -> u32 {
        let options = timestamp_bytes(conn_flags.has(ConnFlags::TIMESTAMPS));
        u32::from(self.peer_mss.saturating_sub(options))
    }

    pub(crate) fn narrow_mss(&self, conn_flags: ConnFlags) -> u32 {
        match conn_flags.has(ConnFlags::PATH_NARROWED) {
            true => u32::from(self.narrow_mss),
            false => 0,
        }
    }
}

impl Path {
    /// The largest size that link, application, peer and routers allow.
    pub(crate) fn size_max(&self, conn_flags: ConnFlags) -> u16 {
        let routers = match conn_flags.has(ConnFlags::PATH_NARROWED) {
            true => self.narrow_mss,
            false => u16::MAX,
        };
        let ends = self.mss_max.min(self.peer_mss);
        ends.min(routers).max(SEND_MSS_MIN)
    }

    /// True if the bounds are so close that another probe is not worthwhile.
    pub(crate) fn search_is_over(&self) -> bool {
        self.high.saturating_sub(self.low) < self.threshold.max(1)
    }

    /// The middle of the unknown range.
    pub(crate) fn probe_size(&self) -> u16 {
        self.low + self.high.saturating_sub(self.low) / 2
    }
}

impl Path {
    /// Computes Eff.snd.MSS (RFC 9293 3.7.1): the least of the peer's limit and the path's, less
    /// options. It is at most half of the largest window, so that two segments fit.
    pub(crate) fn refresh_mss(&self, conn_flags: ConnFlags, snd: &mut Snd, tx: &mut Sender) {
        self.find_mss(conn_flags, snd);
        tx.refresh_runs(snd);
    }

    /// Computes the segment size alone. The caller refreshes the values that depend on it.
    pub(crate) fn find_mss(&self, conn_flags: ConnFlags, snd: &mut Snd) {
        let options = if conn_flags.has(ConnFlags::TIMESTAMPS) {
            TIMESTAMP_OPTION_LEN
        } else {
            0
        };
        let base = self.base_mss(options);
        let cutoff = if snd.max_wnd() > SMALL_WINDOW_MAX {
            snd.max_wnd() / 2
        } else {
            snd.max_wnd()
        };
        let mss = if cutoff == 0 || cutoff >= u32::from(base) {
            base
        } else {
            // Below `base`, so it fits a u16.
            (cutoff as u16).max(SEND_MSS_MIN.min(base))
        };
        snd.set_mss(mss);
    }

    /// Takes a router's report: at most `mss` until the report is outdated.
    pub(crate) fn narrow_path(
        &mut self,
        cx: &Cx<'_>,
        mss: u16,
        conn_flags: &mut ConnFlags,
        snd: &mut Snd,
        tx: &mut Sender,
    ) {
        let mss = mss.max(SEND_MSS_MIN);
        // A report never raises the size: no message says that more fits than was assumed (RFC 1191
        // 3, RFC 8201 4).
        if mss >= self.path_mss {
            return;
        }
        let until_ns = cx.now_ns.saturating_add(cx.config.path_mtu.age_ns_max);
        self.take_word(mss, until_ns, conn_flags, snd, tx);
    }

    pub(crate) fn take_word(
        &mut self,
        mss: u16,
        until_ns: u64,
        conn_flags: &mut ConnFlags,
        snd: &mut Snd,
        tx: &mut Sender,
    ) {
        self.narrow_mss = mss;
        self.narrow_until = coarse(until_ns) + 1;
        self.high = self.high.min(mss);
        self.low = self.low.min(mss);
        conn_flags.set(ConnFlags::PATH_NARROWED);
        self.refresh_path(*conn_flags, snd, tx);
    }

    /// Reviews outdated knowledge. Runs before output while the path is narrowed or probed.
    #[cold]
    pub(crate) fn review_path(
        &mut self,
        cx: &Cx<'_>,
        conn_flags: &mut ConnFlags,
        snd: &mut Snd,
        tx: &mut Sender,
    ) {
        let now = coarse(cx.now_ns);
        if conn_flags.has(ConnFlags::PATH_NARROWED) && now >= self.narrow_until {
            // Routes change (RFC 1191 6.3). If this one has not, a router reports the MTU again.
            conn_flags.clear(ConnFlags::PATH_NARROWED);
            self.narrow_mss = self.mss_max;
            self.high = self.size_max(*conn_flags);
            self.refresh_path(*conn_flags, snd, tx);
        }
        if conn_flags.has(ConnFlags::PATH_PROBING) {
            self.review_search(cx, conn_flags, snd, tx);
        }
    }

    /// Limits segments to `mss` bytes, as the application asks (TCP_MAXSEG).
    pub(crate) fn bound_path(
        &mut self,
        mss: u16,
        conn_flags: ConnFlags,
        snd: &mut Snd,
        tx: &mut Sender,
    ) {
        let mss = mss.max(SEND_MSS_MIN);
        self.mss_max = self.mss_max.min(mss);
        self.high = self.high.min(mss);
        self.low = self.low.min(mss);
        self.refresh_path(conn_flags, snd, tx);
    }

    /// Computes the segment size from what is known of the path.
    pub(crate) fn refresh_path(&mut self, conn_flags: ConnFlags, snd: &mut Snd, tx: &mut Sender) {
        let mut mss = self.mss_max;
        if conn_flags.has(ConnFlags::PATH_NARROWED) {
            mss = mss.min(self.narrow_mss);
        }
        if conn_flags.has(ConnFlags::PATH_PROBING) {
            mss = mss.min(self.low);
        }
        self.path_mss = mss.max(SEND_MSS_MIN);
        self.refresh_mss(conn_flags, snd, tx);
    }
}

/// Changes, each for one event.
impl Path {
    /// Sets the MSS that the peer's SYN names, or the default if it names none.
    pub(crate) fn set_peer_mss(&mut self, mss: u16) {
        self.peer_mss = mss;
    }

    /// Notes that our link takes `mss`, which is tried when a router's report is outdated.
    pub(crate) fn widen_link(&mut self, mss: u16) {
        self.mss_max = self.mss_max.max(mss);
    }

    /// Drops the probe because its result would be ambiguous.
    pub(crate) fn forget_probe(&mut self) {
        self.probe = 0;
    }

    /// Notes that a probe of `len` bytes leaves from `start` on.
    pub(crate) fn begin_probe(&mut self, start: SeqNumber, len: u32) {
        self.probe = self.probe_size();
        self.probe_start = start;
        self.probe_len = len as u16;
    }

    /// Takes SND.UNA. True if the probe in flight lies before it, so that its size passes.
    pub(crate) fn take_probe_ack(&mut self, una: SeqNumber) -> bool {
        let end = self.probe_start + u32::from(self.probe_len);
        if una.lt(end) {
            return false;
        }
        // A router may have reported a smaller size since; its report is kept.
        self.low = self.probe.min(self.high);
        self.probe = 0;
        true
    }

    /// Takes a loss at `una`. True if the first segment in flight is the probe, which was too long.
    pub(crate) fn take_probe_loss(&mut self, una: SeqNumber) -> bool {
        if self.probe == 0 || una != self.probe_start {
            return false;
        }
        let below = (self.probe - 1).min(self.high);
        self.high = below.max(self.low);
        self.probe = 0;
        true
    }

    /// True if a probe is in flight.
    #[inline(always)]
    pub(crate) fn is_probe_out(&self) -> bool {
        self.probe != 0
    }
}

/// Read access for other modules.
impl Path {
    /// MSS that the peer announced.
    #[inline(always)]
    pub fn peer_mss(&self) -> u16 {
        self.peer_mss
    }

    /// MSS that our link, or the path, allows.
    #[inline(always)]
    pub fn path_mss(&self) -> u16 {
        self.path_mss
    }

    /// Size of the probe in flight; 0: none is.
    #[inline(always)]
    pub fn probe(&self) -> u16 {
        self.probe
    }
}
