//! Segment sizes on the way to a remote host: what the link takes, what routers said of the path,
//! and what the application asked for.

use wire::Addr;

use crate::network::layer::Network;

impl Network {
    /// The largest segment on the way to `remote`: what the link takes, less what a router said of
    /// the path and the application asked for (`TCP_MAXSEG`; 0: nothing).
    pub fn path_mss(&mut self, remote: Addr, mss_max: u16, now_ns: u64) -> u16 {
        let link_mss = self.mss_for(remote);
        let path_mss = self
            .destinations
            .path(remote, now_ns)
            .map_or(link_mss, |word| word.mtu.saturating_sub(headers_of(remote)));
        let asked = if mss_max == 0 { u16::MAX } else { mss_max };
        link_mss.min(path_mss).min(asked)
    }
}

/// Bytes of IP and TCP header on the way to `remote`, options apart.
pub(crate) fn headers_of(remote: Addr) -> u16 {
    if remote.is_v4() { 40 } else { 60 }
}
