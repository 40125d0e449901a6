//! A context's part of a `mux` wire: its claims, and the host's addresses and routes.
//!
//! Claims outlive their listeners, since accepted connections go on using the port. The stack
//! releases a claim when the last connection is gone. The end of the context releases all claims.
//! Called when a context is opened, and by sockets that listen or bind.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use packetio::OpenError;
use packetio::limits::MUX_LEASE_PORTS;
use packetio::mux::{MuxHost, MuxOptions};
use rustix::io::Errno;
use stack::StackConfig;

use crate::host_view;

/// See the module's documentation.
pub(crate) struct MuxContext {
    host: Arc<MuxHost>,
    context: usize,
}

impl MuxContext {
    pub fn new(host: Arc<MuxHost>, context: usize) -> Self {
        Self { host, context }
    }

    /// Reserves `local`; with `dual`, the same port over IPv4 as well. The stack releases the claim
    /// when the socket and its connections are gone.
    pub fn reserve(&self, local: SocketAddr, dual: bool) -> Result<(), Errno> {
        self.host.reserve(self.context, local)?;
        let Some(other) = other_family(local).filter(|_| dual) else {
            return Ok(());
        };
        self.host
            .reserve(self.context, other)
            .inspect_err(|_| self.host.release(self.context, local))
    }

    /// Tells the service that the stack listens at `local`, which is reserved. SYNs arrive from now
    /// on.
    pub fn listens(&self, local: SocketAddr, dual: bool) -> Result<(), Errno> {
        self.host.listens(self.context, local)?;
        match other_family(local).filter(|_| dual) {
            Some(other) => self.host.listens(self.context, other),
            None => Ok(()),
        }
    }

    /// Releases the reservation of a socket that could not be made.
    pub fn release(&self, local: SocketAddr, dual: bool) {
        self.host.release(self.context, local);
        if let Some(other) = other_family(local).filter(|_| dual) {
            self.host.release(self.context, other);
        }
    }
}

/// The IPv4 counterpart of `local`, if `local` is `::`.
fn other_family(local: SocketAddr) -> Option<SocketAddr> {
    let is_any = local.is_ipv6() && local.ip().is_unspecified();
    is_any.then(|| (Ipv4Addr::UNSPECIFIED, local.port()).into())
}

impl Drop for MuxContext {
    fn drop(&mut self) {
        self.host.release_all(self.context);
    }
}

/// Puts the host's values into the settings of a context's stack: addresses, routes, and its own
/// local ports.
pub(crate) fn complete(
    stack: &mut StackConfig,
    host: &MuxHost,
    options: &MuxOptions,
    context: usize,
) -> Result<(), OpenError> {
    host_view::take(stack, host.view());
    let ports = options.ports.unwrap_or(MUX_LEASE_PORTS);
    let wire = format!("mux:{}", options.socket());
    stack.local_ports = host
        .lease(context, ports)
        .map_err(|errno| OpenError::io(wire, "lease of local ports", errno))?;
    Ok(())
}
