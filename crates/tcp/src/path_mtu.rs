//! Path MTU discovery: its settings, what a connection knows of its path, and how that changes.
//!
//! By ICMP (RFC 1191, RFC 8201) the path's MTU falls at once when a router says so and the message quotes what is in flight; after
//! ten minutes the link's is tried again. By probing (RFC 4821, `probing`) it is found where such messages are swallowed.
//!
//! All is counted in MSS: MTU less IP and TCP headers, options included. `Sender::path_mss` is the outcome.

use wire::SeqNumber;

use crate::SECOND_NS;
use crate::connection::{Connection, Cx};
use crate::limits::{SEND_MSS_MIN, coarse};
use crate::marks::Marks;
use crate::pack::Packing;

mod probing;
#[cfg(test)]
mod tests;

/// Settings of path MTU discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtuSettings {
    /// An IPv4 path is never believed to be narrower than this, bytes of IP packet.
    pub mtu_min_v4: u16,
    /// How long a router's word counts; after that the link's MTU is tried again (RFC 1191 6.3).
    pub age_ns_max: u64,
    /// When paths are probed.
    pub probing: MtuProbing,
    /// The MSS with which probing begins.
    pub probe_mss_base: u16,
    /// The least MSS that a black hole drives probing down to.
    pub probe_mss_min: u16,
    /// Probing ends when the unknown lies within this many bytes.
    pub probe_threshold: u16,
    /// When probing has ended, the path is looked at again after this time.
    pub probe_interval_ns: u64,
}

/// When paths are probed for a larger or a smaller MTU: Linux's `tcp_mtu_probing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuProbing {
    /// Never.
    #[default]
    Never,
    /// Once a black hole is suspected.
    AfterBlackHole,
    /// Always, from `probe_mss_base` on.
    Always,
}

impl Default for PathMtuSettings {
    fn default() -> Self {
        PathMtuSettings {
            mtu_min_v4: 552,
            age_ns_max: 600 * SECOND_NS,
            probing: MtuProbing::default(),
            probe_mss_base: 1024,
            probe_mss_min: 48,
            probe_threshold: 8,
            probe_interval_ns: 600 * SECOND_NS,
        }
    }
}

/// What a connection knows of its path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    /// What the link takes, or the application set (TCP_MAXSEG): the bound of everything.
    pub mss_max: u16,
    /// A router's word (`Marks::PATH_NARROWED`) ...
    pub narrow_mss: u16,
    /// ... and when it ceases to count, in coarse time.
    pub narrow_until: u32,
    /// Segments of this size have passed, or are believed to (`Marks::PATH_PROBING`).
    pub low: u16,
    /// None larger than this will.
    pub high: u16,
    /// Size of the probe in flight; 0: none is.
    pub probe: u16,
    /// Where the probe's payload begins, and how long it is.
    pub probe_start: SeqNumber,
    pub probe_len: u16,
    /// When the search began, in coarse time.
    pub probed_at: u32,
    /// The search is over when `low` and `high` are less than this apart.
    pub threshold: u16,
}

impl Path {
    pub fn new(mss: u16) -> Path {
        Path {
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
    pub fn pack(&mut self, p: &mut impl Packing, mss: u16) {
        let Path {
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
        p.u16(mss_max, mss);
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

impl Connection {
    /// A router's word: `mss` and no more, until it is old.
    pub(crate) fn narrow_path(&mut self, cx: &Cx<'_>, mss: u16) {
        let mss = mss.max(SEND_MSS_MIN);
        // Never up: no message says that more fits than was thought (RFC 1191 3, RFC 8201 4).
        if mss >= self.tx.path_mss {
            return;
        }
        let until_ns = cx.now_ns.saturating_add(cx.config.path_mtu.age_ns_max);
        self.take_word(mss, until_ns);
    }

    /// The connection has just begun, with the MSS that a router named to another one to the same host: `mss`, until `until_ns`. Our link takes `link_mss`,
    /// and that is tried when the word is old.
    pub fn know_path(&mut self, link_mss: u16, mss: u16, until_ns: u64) {
        self.path.mss_max = self.path.mss_max.max(link_mss);
        self.take_word(mss.max(SEND_MSS_MIN), until_ns);
    }

    fn take_word(&mut self, mss: u16, until_ns: u64) {
        self.path.narrow_mss = mss;
        self.path.narrow_until = coarse(until_ns) + 1;
        self.path.high = self.path.high.min(mss);
        self.path.low = self.path.low.min(mss);
        self.marks.set(Marks::PATH_NARROWED);
        self.refresh_path();
    }

    /// Before output, if the path is narrowed or probed: what has aged is looked at again.
    #[cold]
    pub(crate) fn review_path(&mut self, cx: &Cx<'_>) {
        let now = coarse(cx.now_ns);
        if self.marks.has(Marks::PATH_NARROWED) && now >= self.path.narrow_until {
            // RFC 1191 6.3: routes change; a router will say so again if this one has not.
            self.marks.clear(Marks::PATH_NARROWED);
            self.path.narrow_mss = self.path.mss_max;
            self.path.high = self.size_max();
            self.refresh_path();
        }
        if self.marks.has(Marks::PATH_PROBING) {
            self.review_search(cx);
        }
    }

    /// The application allows no more than `mss` (TCP_MAXSEG).
    pub(crate) fn bound_path(&mut self, mss: u16) {
        let mss = mss.max(SEND_MSS_MIN);
        self.path.mss_max = self.path.mss_max.min(mss);
        self.path.high = self.path.high.min(mss);
        self.path.low = self.path.low.min(mss);
        self.refresh_path();
    }

    /// The largest size that is worth a try: link, application, peer and routers allow it.
    fn size_max(&self) -> u16 {
        let routers = match self.marks.has(Marks::PATH_NARROWED) {
            true => self.path.narrow_mss,
            false => u16::MAX,
        };
        let ends = self.path.mss_max.min(self.tx.peer_mss);
        ends.min(routers).max(SEND_MSS_MIN)
    }

    /// The segment size that follows from what is known.
    pub(crate) fn refresh_path(&mut self) {
        let mut mss = self.path.mss_max;
        if self.marks.has(Marks::PATH_NARROWED) {
            mss = mss.min(self.path.narrow_mss);
        }
        if self.marks.has(Marks::PATH_PROBING) {
            mss = mss.min(self.path.low);
        }
        self.tx.path_mss = mss.max(SEND_MSS_MIN);
        self.refresh_mss();
    }
}
