//! The lease that a context holds while it is in use.

use std::net::SocketAddr;
use std::sync::Arc;

use packetio::mirror::Follower;

use crate::mux_context::MuxContext;
use crate::sharing::Membership;

/// Held by a context that is in use. The runtime may open the context again when it is gone.
pub(crate) struct Lease {
    /// Where the other contexts learn at which ports this one listens.
    pub member: Membership,
    /// Claims of the context on a service.
    pub mux: Option<MuxContext>,
    /// Follows the kernel for the context's stack as long as the context is in use.
    pub _mirror: Option<Arc<Follower>>,
}

impl Lease {
    /// Reserves a local address and port at the service that shares the host, on a wire that has
    /// one; `dual`: an unspecified IPv6 address stands for IPv4 as well. The loopback address is
    /// each stack's own.
    ///
    /// # Errors
    /// The service's: `AddrInUse`, `PermissionDenied`.
    pub fn reserve(&self, local: SocketAddr, dual: bool) -> std::io::Result<()> {
        match self.mux_of(local) {
            Some(mux) => Ok(mux.reserve(local, dual)?),
            None => Ok(()),
        }
    }

    /// The stack listens at a place that is reserved. The service hears of it only then: a SYN that
    /// came before would be reset, although another context may listen.
    ///
    /// # Errors
    /// Those of [`reserve`](Self::reserve).
    pub fn joins_listeners(&self, local: SocketAddr, dual: bool) -> std::io::Result<()> {
        match self.mux_of(local) {
            Some(mux) => Ok(mux.listens(local, dual)?),
            None => Ok(()),
        }
    }

    /// The socket that has reserved `local` could not be made.
    pub fn release(&self, local: SocketAddr, dual: bool) {
        if let Some(mux) = self.mux_of(local) {
            mux.release(local, dual);
        }
    }

    /// The service, for a place that it knows.
    fn mux_of(&self, local: SocketAddr) -> Option<&MuxContext> {
        let is_known = local.port() != 0 && !local.ip().is_loopback();
        self.mux.as_ref().filter(|_| is_known)
    }

    /// A socket of the context listens at `port`, or does so no more.
    pub fn listens(&self, port: u16, on: bool) {
        self.member.listens(port, on);
    }
}
