//! Placeholder: the memif backend (engineer F's).

use crate::MacAddr;
use crate::open::OpenError;
use crate::port::Port;

/// Which side of the memif socket this end is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemifRole {
    /// Listens on the socket ("master" in the protocol).
    #[default]
    Server,
    /// Connects to it and owns the memory ("slave" in the protocol).
    Client,
}

/// `memif:PATH[,role=server|client][,id=N][,ring=1024][,buffer=2048][,queues=N][,secret=..][,mac=..]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifOptions {
    /// Path of the UNIX socket; `@name` for an abstract one.
    pub path: String,
    /// Which side this end is.
    pub role: MemifRole,
    /// Interface id; both ends agree on it.
    pub id: u32,
    /// Slots of each ring, a power of two.
    pub ring_slots: usize,
    /// Bytes of each buffer.
    pub buffer_bytes: usize,
    /// Queue pairs.
    pub queues: usize,
    /// Shared secret of the control channel, up to 24 bytes.
    pub secret: Option<String>,
    /// This end's MAC address; made up if absent.
    pub mac: Option<MacAddr>,
}

impl Default for MemifOptions {
    fn default() -> Self {
        Self {
            path: String::new(),
            role: MemifRole::Server,
            id: 0,
            ring_slots: 1024,
            buffer_bytes: 2048,
            queues: 1,
            secret: None,
            mac: None,
        }
    }
}

/// Opens queue `queue` of the interface.
///
/// # Errors
/// One line that says what and where.
pub fn open(options: &MemifOptions, queue: usize) -> Result<Box<dyn Port + Send>, OpenError> {
    let _ = queue;
    Err(OpenError::refused(
        format_args!("memif:{}", options.path),
        "memif is not built in yet",
    ))
}
