//! Segment sizes on the way to a remote host: the link's limit, the routers' reports, and the
//! application's wish.

use wire::Addr;

use crate::network::layer::Network;

impl Network {
    /// The largest segment on the way from `local` to `remote`: the link's limit, reduced by
    /// routers' reports and by the application (`TCP_MAXSEG`; 0: no wish).
    pub fn path_mss(&mut self, local: Addr, remote: Addr, mss_max: u16, now_ns: u64) -> u16 {
        let link_mss = self.mss_for(local);
        let path_mss = self
            .destinations
            .path(remote, now_ns)
            .map_or(link_mss, |word| word.mtu.saturating_sub(headers_of(remote)));
        let asked = if mss_max == 0 { u16::MAX } else { mss_max };
        link_mss.min(path_mss).min(asked)
    }
}

/// Bytes of IP and TCP header on the way to `remote`, options aside.
pub(crate) fn headers_of(remote: Addr) -> u16 {
    if remote.is_v4() { 40 } else { 60 }
}
