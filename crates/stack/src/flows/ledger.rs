//! The list of connections from which a host resets their peers if this process dies.
//!
//! The module owns the list, where the port has a host that reads one. An entry is written when a
//! connection begins and freed when it leaves the flow table. A connection that becomes a compact
//! entry, in FIN_WAIT_2 or TIME_WAIT, moves to the entries behind those of the sockets. Handshakes
//! in progress stand behind these: the peer of one whose last ACK is under way or lost counts
//! itself connected. Opens, `effects` and the end of a compact entry call it.

use std::net::SocketAddr;

use packetio::ledger::{Entry, LedgerFile};
use wire::FlowKey;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Ledger {
    file: Option<LedgerFile>,
    /// The entry of the first compact entry.
    waits_from: u32,
    /// The entry of the first handshake in progress.
    half_opens_from: u32,
    /// Peers may have our addresses ([`set_own_peers`](Self::set_own_peers)).
    has_own_peers: bool,
}

impl Ledger {
    /// For at most `sockets_max` sockets, and `waits_max` compact entries in FIN_WAIT_2 and
    /// TIME_WAIT.
    pub fn new(file: Option<LedgerFile>, sockets_max: usize, waits_max: usize) -> Self {
        let index = |entries: usize| u32::try_from(entries).unwrap_or(u32::MAX);
        Self {
            file,
            waits_from: index(sockets_max),
            half_opens_from: index(sockets_max.saturating_add(waits_max)),
            has_own_peers: false,
        }
    }

    /// Peers at our own addresses are other programs from now on, or are this stack itself again.
    pub fn set_own_peers(&mut self, on: bool) {
        self.has_own_peers = on;
    }

    /// `socket` has a connection from now on.
    #[inline]
    pub fn begin(&mut self, socket: u32, key: &FlowKey) {
        if let Some(file) = &mut self.file {
            file.set(socket, entry_of(key, self.has_own_peers).as_ref());
        }
    }

    /// The connection of `socket` has ended.
    #[inline]
    pub fn end(&mut self, socket: u32) {
        if let Some(file) = &mut self.file {
            file.set(socket, None);
        }
    }

    /// A connection has become compact entry `index`: its peer may not have closed yet, or may wait
    /// for our last ACK.
    #[inline]
    pub fn begin_wait(&mut self, index: u32, key: &FlowKey) {
        if let Some(file) = &mut self.file {
            let entry = entry_of(key, self.has_own_peers);
            file.set(self.waits_from.saturating_add(index), entry.as_ref());
        }
    }

    /// Handshake `index` is in progress: we have answered a SYN.
    #[inline]
    pub fn begin_half_open(&mut self, index: u32, key: &FlowKey) {
        if let Some(file) = &mut self.file {
            let entry = entry_of(key, self.has_own_peers);
            file.set(self.half_opens_from.saturating_add(index), entry.as_ref());
        }
    }

    /// Handshake `index` is complete or forgotten.
    #[inline]
    pub fn end_half_open(&mut self, index: u32) {
        if let Some(file) = &mut self.file {
            file.set(self.half_opens_from.saturating_add(index), None);
        }
    }

    /// Compact entry `index` is gone.
    #[inline]
    pub fn end_wait(&mut self, index: u32) {
        if let Some(file) = &mut self.file {
            file.set(self.waits_from.saturating_add(index), None);
        }
    }
}

/// The entry of a connection. `None`: the stack itself is the peer, and the host does not reset it.
fn entry_of(key: &FlowKey, has_own_peers: bool) -> Option<Entry> {
    let is_foreign = !key.remote.is_loopback() && (has_own_peers || key.remote != key.local);
    is_foreign.then(|| Entry {
        local: SocketAddr::new(key.local.to_ip(), key.local_port),
        remote: SocketAddr::new(key.remote.to_ip(), key.remote_port),
    })
}
