//! The host behind a port: the kernel's addresses, routes and next hops, as a port that shares its
//! NIC with the kernel tells them to the stack.
//!
//! Owns nothing but the queues in `doors`. Called by stacks, through
//! [`Port::host`](crate::port::Port::host).

pub(crate) mod doors;

use std::net::{IpAddr, SocketAddr};

use wire::ethernet::MacAddr;

use crate::ledger::LedgerFile;

/// A host that does ARP, neighbour discovery and routing for the ports of its NIC
/// ([`mux`](crate::mux), [`mirror`](crate::mirror)).
pub trait Host {
    /// Asks for something. False: too much was asked already, and the stack asks again.
    fn ask(&mut self, wish: Wish) -> bool;

    /// Something that changed, in order; `None`: nothing more. Costs no system call.
    fn next_change(&mut self) -> Option<Change>;

    /// The answer to [`Wish::LocalPorts`]: first and last port, or `Err` if there are none.
    fn next_lease(&mut self) -> Option<Result<(u16, u16), NoPorts>>;

    /// The list in which the stack keeps its connections, so that the host can reset their peers if
    /// the process dies. The stack takes it once; `None` afterwards, and where nobody looks.
    fn take_ledger(&mut self) -> Option<LedgerFile>;

    /// True if other processes of this application listen at `local`, or may. Connections that were
    /// not accepted here can be handed over to them.
    fn is_shared(&self, _local: SocketAddr) -> bool {
        false
    }

    /// Sends a connection to another process, or the answer to one that came from there.
    fn transfer(&mut self, _transfer: Transfer) {}

    /// A connection that another process hands over, or the answer to one that this stack has sent.
    fn next_transfer(&mut self) -> Option<Transfer> {
        None
    }
}

/// A connection that no application has accepted, on its way from the stack of one process to that
/// of another one, or the answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// The connection. It is answered once.
    Connection {
        /// The sender's number for it.
        number: u32,
        /// The place at which its listener was.
        local: SocketAddr,
        /// Both ends of the connection, this host's first.
        ends: (SocketAddr, SocketAddr),
        /// The connection, as stacks encode it.
        bytes: Vec<u8>,
    },
    /// The other stack has the connection with this number and has told the peer.
    Taken {
        /// The number.
        number: u32,
    },
    /// The other stack has no room or no listener; an answer to the sender says that nobody took
    /// the connection, and that the sender has to end it.
    Refused {
        /// The number.
        number: u32,
    },
}

/// A stack's question to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The link address of a next hop. The answer comes as [`Change::NextHop`].
    NextHop(IpAddr),
    /// More local ports for connections of this side. The answer is [`Host::next_lease`].
    LocalPorts,
    /// These local ports, first and last of what [`Host::next_lease`] gave, are of no more use.
    ReturnPorts(u16, u16),
    /// A socket that had claimed this place is gone, and may have left connections.
    Leave(SocketAddr),
    /// The connections at the place of a socket that left are gone.
    Release(SocketAddr),
    /// This side knows no flow between these ends, its own first, and listens there no more:
    /// another process may.
    Forget(SocketAddr, SocketAddr),
}

/// The host has no more local ports for this stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPorts;

/// A route of the kernel's main table through the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Where it leads.
    pub destination: IpAddr,
    /// Bits of `destination` that count.
    pub prefix: u8,
    /// The next hop; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The source address that the route prefers.
    pub source: Option<IpAddr>,
    /// The route's MTU in bytes, 0 for the NIC's.
    pub mtu: u32,
    /// Its metric: the lower one is used.
    pub metric: u32,
}

/// The host kernel's state of the NIC.
#[derive(Clone, Debug, Default)]
pub struct HostView {
    /// Addresses of the NIC, each with the bits of its network.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Routes through the NIC.
    pub routes: Vec<Route>,
    /// Its MAC address, once that was told.
    pub mac: Option<MacAddr>,
    /// Its MTU in bytes, once that was told.
    pub mtu: Option<u32>,
    /// The MAC address behind which the NIC's own addresses are; `None`: they cannot be reached.
    pub own_hop: Option<MacAddr>,
}

impl HostView {
    /// Takes a change in. Changes of the link and of next hops change nothing.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::AddressAdded { address, prefix } => {
                let mut known = self.addresses.iter_mut();
                match known.find(|(one, _)| *one == address) {
                    Some((_, old)) => *old = prefix,
                    None => self.addresses.push((address, prefix)),
                }
            }
            Change::AddressRemoved { address, .. } => {
                self.addresses.retain(|(one, _)| *one != address);
            }
            Change::RouteAdded(route) => {
                if !self.routes.contains(&route) {
                    self.routes.push(route);
                }
            }
            Change::RouteRemoved(route) => self.routes.retain(|one| *one != route),
            Change::Mac(mac) => self.mac = Some(mac),
            Change::Mtu(mtu) => self.mtu = Some(mtu),
            Change::OwnHop(mac) => self.own_hop = mac,
            Change::Complete | Change::Link { .. } | Change::NextHop { .. } | Change::Gone => {}
        }
    }
}

/// A change of what the kernel knows about the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The list that follows [`Welcome`](crate::mux::message::Welcome) is complete.
    Complete,
    /// The link went up or down.
    Link {
        /// Whether it is up now.
        is_up: bool,
    },
    /// The NIC has another MAC address.
    Mac(MacAddr),
    /// The NIC has another MTU, bytes.
    Mtu(u32),
    /// The NIC has an address, or has it with another prefix now.
    AddressAdded {
        /// The address.
        address: IpAddr,
        /// Bits of its network.
        prefix: u8,
    },
    /// The NIC lost an address; its connections end with ENETDOWN.
    AddressRemoved {
        /// The address.
        address: IpAddr,
        /// Bits of its network.
        prefix: u8,
    },
    /// A route appeared.
    RouteAdded(Route),
    /// A route went away.
    RouteRemoved(Route),
    /// A next hop that was resolved has another MAC address, or none.
    NextHop {
        /// The next hop.
        address: IpAddr,
        /// Its MAC address; `None` if it does not answer.
        mac: Option<MacAddr>,
    },
    /// The NIC was removed. It may come back: then the list is sent again.
    Gone,
    /// Packets between the NIC's own addresses go through the host, which takes those for this MAC
    /// address. Peers at our own addresses are real from now on. `None`: there are no such peers.
    OwnHop(Option<MacAddr>),
}
