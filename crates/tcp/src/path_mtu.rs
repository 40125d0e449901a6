//! Path MTU discovery: its settings, a connection's knowledge of its path, and how that changes.
//!
//! By ICMP (RFC 1191, RFC 8201) the path's MTU falls at once when a router reports it and the
//! message quotes data in flight; after ten minutes the link's MTU is tried again. By probing (RFC
//! 4821, `probing`) the MTU is found where such messages are swallowed.
//!
//! All is counted in MSS: MTU less IP and TCP headers, options included. `Sender::path_mss` is the
//! outcome.

use wire::SeqNumber;

use crate::SECOND_NS;
use crate::limits::SEND_MSS_MIN;
use crate::marks::Marks;
use crate::pack::Packing;

#[cfg(test)]
mod tests;

/// Settings of path MTU discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtuSettings {
    /// An IPv4 path is never believed to be narrower than this, bytes of IP packet.
    pub mtu_min_v4: u16,
    /// Time for which a router's report counts; after that the link's MTU is tried again (RFC 1191
    /// 6.3).
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

/// A connection's knowledge of its path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    /// The link's limit, or the application's (TCP_MAXSEG): the upper bound.
    pub mss_max: u16,
    /// A router's word (`Marks::PATH_NARROWED`) ...
    pub narrow_mss: u16,
    /// ... and when it ceases to count, in coarse time.
    pub narrow_until: u32,
    /// Segments of this size have passed, or are believed to (`Marks::PATH_PROBING`).
    pub low: u16,
    /// Every larger segment is known not to pass.
    pub high: u16,
    /// Size of the probe in flight; 0: none is.
    pub probe: u16,
    /// Start and length of the probe's payload.
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

impl Path {
    pub(crate) fn narrow_mss(&self, marks: Marks) -> u32 {
        match marks.has(Marks::PATH_NARROWED) {
            true => u32::from(self.narrow_mss),
            false => 0,
        }
    }
}

impl Path {
    /// The largest size that is worth a try: link, application, peer and routers allow it.
    pub(crate) fn size_max(&self, marks: Marks, peer_mss: u16) -> u16 {
        let routers = match marks.has(Marks::PATH_NARROWED) {
            true => self.narrow_mss,
            false => u16::MAX,
        };
        let ends = self.mss_max.min(peer_mss);
        ends.min(routers).max(SEND_MSS_MIN)
    }

    /// The bounds are so close that no further probe is worth its segment.
    pub(crate) fn search_is_over(&self) -> bool {
        self.high.saturating_sub(self.low) < self.threshold.max(1)
    }

    /// The middle of the unknown range.
    pub(crate) fn probe_size(&self) -> u16 {
        self.low + self.high.saturating_sub(self.low) / 2
    }
}
