//! The list of connections from which a host resets their peers if this process dies.
//!
//! The module owns the list, where the port has a host that reads one. An entry is written when a
//! connection begins and freed when it leaves the flow table. A connection that becomes a compact
//! entry, in FIN_WAIT_2 or TIME_WAIT, moves to the entries behind those of the sockets. Opens,
//! `settle` and the end of a compact entry call it.

use std::net::SocketAddr;

use packetio::ledger::{Entry, LedgerFile};
use wire::FlowKey;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Ledger {
    file: Option<LedgerFile>,
    /// The entry of the first compact entry.
    waits_from: u32,
}

impl Ledger {
    /// For at most `sockets_max` sockets.
    pub fn new(file: Option<LedgerFile>, sockets_max: usize) -> Self {
        Self {
            file,
            waits_from: u32::try_from(sockets_max).unwrap_or(u32::MAX),
        }
    }

    /// `socket` has a connection from now on.
    #[inline]
    pub fn begin(&mut self, socket: u32, key: &FlowKey) {
        if let Some(file) = &mut self.file {
            file.set(socket, entry_of(key).as_ref());
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
            file.set(
                self.waits_from.saturating_add(index),
                entry_of(key).as_ref(),
            );
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
fn entry_of(key: &FlowKey) -> Option<Entry> {
    let is_foreign = !key.remote.is_loopback() && key.remote != key.local;
    is_foreign.then(|| Entry {
        local: SocketAddr::new(key.local.to_ip(), key.local_port),
        remote: SocketAddr::new(key.remote.to_ip(), key.remote_port),
    })
}
