//! Addresses of a stream's two ends.

use std::net::{IpAddr, SocketAddr};

use ring::socket_block::Name;

/// The address that a socket's block holds. IPv4 addresses are mapped there.
pub fn socket_addr(name: Name) -> SocketAddr {
    let address = IpAddr::from(name.address);
    SocketAddr::new(address.to_canonical(), name.port)
}

/// The local address. A link-local one has the scope of the remote address, as in Linux.
pub fn with_scope_of(remote: Option<SocketAddr>, mut local: SocketAddr) -> SocketAddr {
    if let (SocketAddr::V6(local), Some(SocketAddr::V6(remote))) = (&mut local, remote)
        && local.ip().is_unicast_link_local()
    {
        local.set_scope_id(remote.scope_id());
    }
    local
}
