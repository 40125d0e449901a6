//! A context's part of a `mux` wire: what it has claimed, and what the host says of addresses and
//! routes.
//!
//! Owns the claims until the context goes. They outlive their listeners, since accepted connections
//! go on using the port. Called when a context is opened, and by sockets that listen or bind.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use packetio::OpenError;
use packetio::limits::MUX_LEASE_PORTS;
use packetio::mux::{MuxHost, MuxOptions};
use rustix::io::Errno;
use stack::{IpCidr, StackConfig};

/// See the module's documentation.
pub(crate) struct MuxContext {
    host: Arc<MuxHost>,
    context: usize,
    claims: Mutex<Vec<SocketAddr>>,
}

impl MuxContext {
    pub fn new(host: Arc<MuxHost>, context: usize) -> Self {
        Self {
            host,
            context,
            claims: Mutex::default(),
        }
    }

    /// From now on what arrives for `local` comes to this context. One round trip to the service,
    /// the first time.
    pub fn claim(&self, local: SocketAddr) -> Result<(), Errno> {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if !claims.contains(&local) {
            self.host.claim(self.context, local)?;
            claims.push(local);
        }
        Ok(())
    }
}

impl Drop for MuxContext {
    fn drop(&mut self) {
        let claims = self
            .claims
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for local in claims.drain(..) {
            self.host.release(self.context, local);
        }
    }
}

/// Puts what the host knows into the settings of a context's stack: addresses, routes, and local
/// ports of its own. Addresses that the user gave only narrow the set.
pub(crate) fn complete(
    stack: &mut StackConfig,
    host: &MuxHost,
    options: &MuxOptions,
    context: usize,
) -> Result<(), OpenError> {
    let view = host.view();
    let wanted: Vec<IpAddr> = stack.addresses.iter().map(IpCidr::address).collect();
    stack.addresses = view
        .addresses
        .iter()
        .filter(|(address, _)| wanted.is_empty() || wanted.contains(address))
        .filter_map(|(address, prefix)| IpCidr::new(*address, *prefix).ok())
        .collect();
    let mut routes = view.routes;
    routes.sort_by_key(|route| route.metric);
    for route in &routes {
        if let (Ok(prefix), None) = (IpCidr::new(route.destination, route.prefix), route.gateway) {
            stack.on_link.push(prefix);
        }
    }
    for route in &routes {
        let prefix = IpCidr::new(route.destination, route.prefix);
        let (Ok(prefix), Some(gateway)) = (prefix, route.gateway) else {
            continue;
        };
        let subnets = stack.addresses.iter().chain(&stack.on_link);
        let is_near = subnets.into_iter().any(|subnet| subnet.contains(gateway));
        let is_first = !stack.routes.iter().any(|(known, _)| *known == prefix);
        if is_near && is_first {
            stack.routes.push((prefix, gateway));
        }
    }
    let ports = options.ports.unwrap_or(MUX_LEASE_PORTS);
    let wire = format!("mux:{}", options.socket());
    stack.local_ports = host
        .lease(context, ports)
        .map_err(|errno| OpenError::io(wire, "lease of local ports", errno))?;
    Ok(())
}
