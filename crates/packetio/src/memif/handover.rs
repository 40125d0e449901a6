//! Control channels that are handed over as connected sockets, in place of a path.
//!
//! `mill mux` makes both ends of a channel and gives one of them to an application, so there is
//! no name in a file system to guard. Owns the next socket until the interface's client takes it.
//! Written by the thread that talks to the service, read by the port's when it has no connection.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The next control channel of a client's interface. Clones are handles on the same place.
///
/// ```
/// use packetio::memif::Handover;
///
/// let handover = Handover::default();
/// let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
/// handover.put(socket.into());
/// assert!(handover.take().is_some());
/// assert!(handover.take().is_none());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Handover(Arc<Mutex<Option<OwnedFd>>>);

impl Handover {
    /// The client connects by this SOCK_SEQPACKET socket next; one that still waits is closed.
    pub fn put(&self, socket: OwnedFd) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
    }

    /// The socket that waits.
    pub fn take(&self) -> Option<OwnedFd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
