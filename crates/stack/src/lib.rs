//! Placeholder.

pub mod addresses;
pub mod arp_nd;
pub mod icmp;
pub mod limits;
pub mod neighbours;
pub mod routes;
