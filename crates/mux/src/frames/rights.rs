//! Changes of senders' rights, as a frames' thread gets them.
//!
//! Owns nothing. Made by the data path, in the order of the service's decisions.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use packetio::MacAddr;

use crate::egress::{AddressKind, EgressTable, Owner};

/// A change of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Right {
    /// The owner of an address and port; `None`: the kernel.
    Claim(SocketAddr, Option<Owner>),
    /// The device that leases these local ports; `None`: none.
    Lease(RangeInclusive<u16>, Option<u16>),
    /// The kind of an address; `None`: neither the NIC's nor a broadcast address.
    Address(IpAddr, Option<AddressKind>),
    /// A MAC address, and whether frames may be sent to it.
    NextHop(MacAddr, bool),
    /// The NIC's MAC address and MTU.
    Host(MacAddr, usize),
}

impl Right {
    /// Applies the change to a table.
    pub(super) fn apply(self, table: &mut EgressTable) {
        match self {
            Self::Claim(endpoint, Some(owner)) => drop(table.claims.insert(endpoint, owner)),
            Self::Claim(endpoint, None) => drop(table.claims.remove(&endpoint)),
            Self::Lease(ports, device) => {
                for port in ports {
                    match device {
                        Some(device) => table.leases.insert(port, device),
                        None => table.leases.remove(&port),
                    };
                }
            }
            Self::Address(address, Some(kind)) => drop(table.addresses.insert(address, kind)),
            Self::Address(address, None) => drop(table.addresses.remove(&address)),
            Self::NextHop(mac, true) => drop(table.next_hops.insert(mac)),
            Self::NextHop(mac, false) => drop(table.next_hops.remove(&mac)),
            Self::Host(mac, mtu) => (table.mac, table.mtu) = (mac, mtu),
        }
    }
}
