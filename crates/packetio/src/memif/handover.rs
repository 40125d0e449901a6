//! Control channels that are handed over as connected sockets instead of by a path.
//!
//! `mill mux` makes both ends of a channel and gives one to an application, so no name in a file
//! system needs protection. A [`Handover`] holds the next socket until the interface's client takes
//! it. The thread that talks to the service writes it; the port's thread reads it when it has no
//! connection.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The next control channel of a client's interface. Clones refer to the same place.
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
    /// Sets the SOCK_SEQPACKET socket for the client's next connection. A socket that still waits
    /// is closed.
    pub fn put(&self, socket: OwnedFd) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
    }

    /// Takes the waiting socket.
    pub fn take(&self) -> Option<OwnedFd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
