//! The list of connections from which a host resets their peers if this process dies.
//!
//! The module owns the file, where the port has a host that reads one. An entry is written when a
//! connection begins and freed when it leaves the flow table. Opens and `settle` call it.

use std::net::SocketAddr;

use packetio::ledger::{Entry, LedgerFile};
use wire::FlowKey;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Ledger(Option<LedgerFile>);

impl Ledger {
    pub fn new(file: Option<LedgerFile>) -> Self {
        Self(file)
    }

    /// `socket` has a connection from now on. The host does not reset this stack itself.
    #[inline]
    pub fn begin(&mut self, socket: u32, key: &FlowKey) {
        if let Some(file) = &mut self.0
            && !key.remote.is_loopback()
            && key.remote != key.local
        {
            let entry = Entry {
                local: SocketAddr::new(key.local.to_ip(), key.local_port),
                remote: SocketAddr::new(key.remote.to_ip(), key.remote_port),
            };
            file.set(socket, Some(&entry));
        }
    }

    /// The connection of `socket` has ended.
    #[inline]
    pub fn end(&mut self, socket: u32) {
        if let Some(file) = &mut self.0 {
            file.set(socket, None);
        }
    }
}
