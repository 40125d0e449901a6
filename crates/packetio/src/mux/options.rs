//! The options of a `mux` wire.

use crate::limits::XDP_SOCKETS_DEFAULT;

/// The options of `mux:[PATH][,ring=N][,ports=N][,bulk=auto|off]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MuxOptions {
    /// Path of the service's socket; empty: [`SOCKET_PATH_DEFAULT`](super::SOCKET_PATH_DEFAULT).
    pub path: String,
    /// Slots of the RX and fill rings, a power of two; `None`: derived from `sockets`.
    pub ring_slots: Option<u32>,
    /// Local ports that each context leases for active opens; `None`: the default number.
    pub ports: Option<u16>,
    /// True to send large packets by a bulk lane, if the service has one.
    pub has_bulk: bool,
    /// Most sockets of one context, as the runtime knows it; `None`: that of a context's default
    /// limits.
    pub sockets: Option<usize>,
    /// Most compact entries of one context (FIN_WAIT_2, TIME_WAIT) and handshakes in progress, as
    /// the runtime knows it. `None`: they are not in the ledger.
    pub waiting: Option<usize>,
    /// Contexts of this process on the wire, as the runtime knows it; 0 counts as 1.
    pub contexts: usize,
}

impl Default for MuxOptions {
    fn default() -> Self {
        Self {
            path: String::new(),
            ring_slots: None,
            ports: None,
            has_bulk: true,
            sockets: None,
            waiting: None,
            contexts: 0,
        }
    }
}

impl MuxOptions {
    /// Number of connections of one context that the service resets if this process dies, at most
    /// `most`.
    pub(super) fn ledger_entries(&self, most: u32) -> u32 {
        let sockets = self.sockets.unwrap_or(XDP_SOCKETS_DEFAULT);
        let entries = sockets.saturating_add(self.waiting.unwrap_or(0));
        u32::try_from(entries).unwrap_or(u32::MAX).min(most)
    }

    /// Path of the service's socket.
    pub fn socket(&self) -> &str {
        match self.path.as_str() {
            "" => super::SOCKET_PATH_DEFAULT,
            path => path,
        }
    }
}
