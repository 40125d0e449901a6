//! The options of a `mux` wire.

/// `mux:[PATH][,ring=N][,ports=N]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MuxOptions {
    /// The service's socket; empty: [`SOCKET_PATH_DEFAULT`](super::SOCKET_PATH_DEFAULT).
    pub path: String,
    /// Slots of the RX ring and of the fill ring, a power of two; `None`: as `sockets` asks for.
    pub ring_slots: Option<u32>,
    /// Local ports that each context leases for its outgoing connections; `None`: a few.
    pub ports: Option<u16>,
    /// Sockets that one context serves at most; the runtime knows the number. `None`: as for the
    /// default limits of a context.
    pub sockets: Option<usize>,
    /// Contexts of this process on the wire; the runtime knows the number. 0 stands for 1.
    pub contexts: usize,
}

impl MuxOptions {
    /// The service's socket.
    pub fn socket(&self) -> &str {
        match self.path.as_str() {
            "" => super::SOCKET_PATH_DEFAULT,
            path => path,
        }
    }
}
