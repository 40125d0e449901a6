//! The network below TCP: local addresses, routes, neighbours, ICMP, and what is known of remote
//! hosts.

pub(crate) mod addresses;
pub(crate) mod arp_nd;
pub(crate) mod destinations;
pub(crate) mod frame_queue;
pub(crate) mod icmp;
pub(crate) mod layer;
pub(crate) mod neighbours;
pub(crate) mod path;
pub(crate) mod routes;
