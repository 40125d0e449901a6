//! Segment sizes on the way to a remote host: what the link takes, what routers said of the path,
//! and what the application asked for.

use wire::Addr;

use crate::core::Core;

impl Core {
    /// The largest segment on the way to `remote`: what the link takes, less what a router said of the path and the application asked for
    /// (`TCP_MAXSEG`; 0: nothing).
    pub(crate) fn mss_for(&mut self, remote: Addr, mss_max: u16) -> u16 {
        let link_mss = self.network.mss_for(remote);
        let path_mss = self
            .destinations
            .path(remote, self.now_ns)
            .map_or(link_mss, |word| word.mtu.saturating_sub(headers_of(remote)));
        let asked = if mss_max == 0 { u16::MAX } else { mss_max };
        link_mss.min(path_mss).min(asked)
    }

    /// A connection that begins while a router's word of its path counts learns how long it does, and what our link takes beyond.
    #[inline]
    pub(crate) fn tell_path(&mut self, socket: u32) {
        if self.destinations.heeds_routers(self.now_ns) {
            self.tell_word(socket);
        }
    }

    #[cold]
    fn tell_word(&mut self, socket: u32) {
        let slot = self.sockets.slot(socket);
        let remote = slot.key.remote;
        let word = self.destinations.path(remote, self.now_ns);
        let (Some(conn), Some(word)) = (slot.conn.as_mut(), word) else {
            return;
        };
        let mss = word.mtu.saturating_sub(headers_of(remote));
        conn.know_path(self.network.mss_for(remote), mss, word.until_ns);
        if word.too_narrow {
            slot.header.narrow_too_far(word.until_ns);
        }
    }
}

/// Bytes of IP and TCP header on the way to `remote`, options apart.
pub(crate) fn headers_of(remote: Addr) -> u16 {
    if remote.is_v4() { 40 } else { 60 }
}
