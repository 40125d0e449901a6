//! Settings of path MTU discovery, by ICMP (RFC 1191, RFC 8201) and by probing (RFC 4821).

use crate::SECOND_NS;

#[cfg(test)]
mod tests;

/// Settings of path MTU discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtuSettings {
    /// Least MTU that is believed of an IPv4 path, bytes of IP packet.
    pub mtu_min_v4: u16,
    /// Time for which a router's report is valid. Afterwards the link's MTU is tried again (RFC
    /// 1191 6.3).
    pub age_ns_max: u64,
    /// When paths are probed.
    pub probing: MtuProbing,
    /// The MSS with which probing begins.
    pub probe_mss_base: u16,
    /// Least MSS to which a black hole can drive probing.
    pub probe_mss_min: u16,
    /// Probing ends when the bounds are less than this many bytes apart.
    pub probe_threshold: u16,
    /// Time after which probing that has ended begins again.
    pub probe_interval_ns: u64,
}

/// When paths are probed for a larger or a smaller MTU: Linux's `tcp_mtu_probing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MtuProbing {
    /// Never probed.
    #[default]
    Never,
    /// Probed once a black hole is suspected.
    AfterBlackHole,
    /// Always probed, from `probe_mss_base` on.
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
