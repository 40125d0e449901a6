//! The list of live connections: if this process dies, the host resets their peers by it.
//!
//! The list exists where the port's host reads one. A connection's entry is written when it begins
//! and freed when it leaves the flow table. The file has three parts: sockets, compact entries
//! (FIN_WAIT_2 and TIME_WAIT), handshakes in progress. Handshakes count because the peer may
//! already be connected while its last ACK is under way or lost. Opens, `effects` and the end of
//! compact entries call the module.

use std::net::SocketAddr;

use packetio::ledger::{Entry, LedgerFile};
use wire::FlowKey;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Ledger {
    file: Option<LedgerFile>,
    /// Index of the first entry for compact entries.
    waits_from: u32,
    /// Index of the first entry for handshakes in progress.
    half_opens_from: u32,
    /// True if peers may have our addresses ([`set_own_peers`](Self::set_own_peers)).
    has_own_peers: bool,
}

impl Ledger {
    /// Makes the list for at most `sockets_max` sockets and `waits_max` compact entries.
    pub fn new(file: Option<LedgerFile>, sockets_max: usize, waits_max: usize) -> Self {
        let index = |entries: usize| u32::try_from(entries).unwrap_or(u32::MAX);
        Self {
            file,
            waits_from: index(sockets_max),
            half_opens_from: index(sockets_max.saturating_add(waits_max)),
            has_own_peers: false,
        }
    }

    /// Sets whether peers at our own addresses are other programs of the host, not this stack
    /// itself.
    pub fn set_own_peers(&mut self, on: bool) {
        self.has_own_peers = on;
    }

    /// Enters the connection of `socket`.
    #[inline]
    pub fn begin(&mut self, socket: u32, key: &FlowKey) {
        if let Some(file) = &mut self.file {
            file.set(socket, entry_of(key, self.has_own_peers).as_ref());
        }
    }

    /// Removes the connection of `socket`.
    #[inline]
    pub fn end(&mut self, socket: u32) {
        if let Some(file) = &mut self.file {
            file.set(socket, None);
        }
    }

    /// Enters compact entry `index`: the peer may not have closed yet, or may wait for our last
    /// ACK.
    #[inline]
    pub fn begin_wait(&mut self, index: u32, key: &FlowKey) {
        if let Some(file) = &mut self.file {
            let entry = entry_of(key, self.has_own_peers);
            file.set(self.waits_from.saturating_add(index), entry.as_ref());
        }
    }

    /// Enters handshake `index`, after its SYN was answered.
    #[inline]
    pub fn begin_half_open(&mut self, index: u32, key: &FlowKey) {
        if let Some(file) = &mut self.file {
            let entry = entry_of(key, self.has_own_peers);
            file.set(self.half_opens_from.saturating_add(index), entry.as_ref());
        }
    }

    /// Removes handshake `index`, which is complete or forgotten.
    #[inline]
    pub fn end_half_open(&mut self, index: u32) {
        if let Some(file) = &mut self.file {
            file.set(self.half_opens_from.saturating_add(index), None);
        }
    }

    /// Removes compact entry `index`.
    #[inline]
    pub fn end_wait(&mut self, index: u32) {
        if let Some(file) = &mut self.file {
            file.set(self.waits_from.saturating_add(index), None);
        }
    }
}

/// The file's entry for a connection. `None`: its peer is this stack itself, which nobody needs to
/// reset.
fn entry_of(key: &FlowKey, has_own_peers: bool) -> Option<Entry> {
    let is_foreign = !key.remote.is_loopback() && (has_own_peers || key.remote != key.local);
    is_foreign.then(|| Entry {
        local: SocketAddr::new(key.local.to_ip(), key.local_port),
        remote: SocketAddr::new(key.remote.to_ip(), key.remote_port),
    })
}
