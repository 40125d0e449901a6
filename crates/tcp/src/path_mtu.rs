//! Settings of path MTU discovery, by ICMP (RFC 1191, RFC 8201) and by probing (RFC 4821).

use crate::SECOND_NS;

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
