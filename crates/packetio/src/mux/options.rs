//! The options of a `mux` wire.

use crate::limits::XDP_SOCKETS_DEFAULT;

/// `mux:[PATH][,ring=N][,ports=N][,bulk=auto|off]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MuxOptions {
    /// The service's socket; empty: [`SOCKET_PATH_DEFAULT`](super::SOCKET_PATH_DEFAULT).
    pub path: String,
    /// Slots of the RX ring and of the fill ring, a power of two; `None`: as `sockets` asks for.
    pub ring_slots: Option<u32>,
    /// Local ports that each context leases for its outgoing connections; `None`: a few.
    pub ports: Option<u16>,
    /// Large packets leave by a lane of their own, where the service has one.
    pub has_bulk: bool,
    /// Sockets that one context serves at most; the runtime knows the number. `None`: as for the
    /// default limits of a context.
    pub sockets: Option<usize>,
    /// Compact entries of one context at most: connections in FIN_WAIT_2 and TIME_WAIT, and
    /// handshakes in progress. The runtime knows the number. `None`: they are not in the ledger.
    pub waiting: Option<usize>,
    /// Contexts of this process on the wire; the runtime knows the number. 0 stands for 1.
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
    /// Connections of one context that the service resets if this process dies, at most `most`.
    pub(super) fn ledger_entries(&self, most: u32) -> u32 {
        let sockets = self.sockets.unwrap_or(XDP_SOCKETS_DEFAULT);
        let entries = sockets.saturating_add(self.waiting.unwrap_or(0));
        u32::try_from(entries).unwrap_or(u32::MAX).min(most)
    }

    /// The service's socket.
    pub fn socket(&self) -> &str {
        match self.path.as_str() {
            "" => super::SOCKET_PATH_DEFAULT,
            path => path,
        }
    }
}
