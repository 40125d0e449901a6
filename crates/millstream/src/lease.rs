//! The lease that a context holds while it is in use.

use std::net::SocketAddr;
use std::sync::Arc;

use packetio::mirror::Follower;

use crate::mux_context::MuxContext;
use crate::sharing::Membership;

/// Lives as long as its context. The runtime may open the context again once the lease is dropped.
pub(crate) struct Lease {
    /// Tells the other contexts at which ports this one listens.
    pub member: Membership,
    /// The context's claims on local ports, on a `mux` wire.
    pub mux: Option<MuxContext>,
    /// Copies the kernel's addresses and routes into the context's stack while the lease lives.
    pub _mirror: Option<Arc<Follower>>,
}

impl Lease {
    /// Reserves a local address and port at the service that shares the host, on a `mux` wire.
    /// `dual`: `::` stands for IPv4 as well. Loopback addresses need no reservation, since each
    /// stack has its own.
    ///
    /// # Errors
    /// The service's error: `AddrInUse`, `PermissionDenied`.
    pub fn reserve(&self, local: SocketAddr, dual: bool) -> std::io::Result<()> {
        match self.mux_of(local) {
            Some(mux) => Ok(mux.reserve(local, dual)?),
            None => Ok(()),
        }
    }

    /// Tells the service that the stack listens at a reserved place. This must not happen earlier:
    /// the stack would reset a SYN that another listening context could have accepted.
    ///
    /// # Errors
    /// The errors of [`reserve`](Self::reserve).
    pub fn joins_listeners(&self, local: SocketAddr, dual: bool) -> std::io::Result<()> {
        match self.mux_of(local) {
            Some(mux) => Ok(mux.listens(local, dual)?),
            None => Ok(()),
        }
    }

    /// Releases the reservation of a socket that could not be made.
    pub fn release(&self, local: SocketAddr, dual: bool) {
        if let Some(mux) = self.mux_of(local) {
            mux.release(local, dual);
        }
    }

    /// The service, unless `local` is a place that it does not know.
    fn mux_of(&self, local: SocketAddr) -> Option<&MuxContext> {
        let is_known = local.port() != 0 && !local.ip().is_loopback();
        self.mux.as_ref().filter(|_| is_known)
    }

    /// Notes that a socket of the context begins or ends listening at `port`.
    pub fn listens(&self, port: u16, on: bool) {
        self.member.listens(port, on);
    }
}
