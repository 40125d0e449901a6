//! Segment sizes on the path to a remote host: limits of the link, routers' reports and the
//! application.

use wire::Addr;

use crate::network::layer::Network;

impl Network {
    /// Largest segment on the path from `local` to `remote`: the link's limit, reduced by routers'
    /// reports and by `TCP_MAXSEG` (`mss_max`; 0: not set).
    pub fn path_mss(&mut self, local: Addr, remote: Addr, mss_max: u16, now_ns: u64) -> u16 {
        let link_mss = self.mss_for(local);
        let path_mss = self
            .destinations_mut()
            .path(remote, now_ns)
            .map_or(link_mss, |word| word.mtu.saturating_sub(headers_of(remote)));
        let asked = if mss_max == 0 { u16::MAX } else { mss_max };
        link_mss.min(path_mss).min(asked)
    }
}

/// Bytes of IP and TCP header to `remote`, without options.
pub(crate) fn headers_of(remote: Addr) -> u16 {
    if remote.is_v4() { 40 } else { 60 }
}
