//! The host behind a port that shares its NIC with the kernel: the kernel's addresses, routes and
//! next hops for the stack.
//!
//! Stacks call the host through [`Port::host`](crate::port::Port::host). The queues are in
//! `host_queues`.

pub(crate) mod host_queues;

use std::net::{IpAddr, SocketAddr};

use wire::ethernet::MacAddr;

use crate::ledger::LedgerFile;

/// A host that does ARP, neighbour discovery and routing for the ports of its NIC
/// ([`mux`](crate::mux), [`mirror`](crate::mirror)).
pub trait Host {
    /// Sends a wish to the host. False: too many are open, and the stack must ask again.
    fn ask(&mut self, wish: Wish) -> bool;

    /// The next change, in order; `None`: there is none. It costs no system call.
    fn next_change(&mut self) -> Option<Change>;

    /// The answer to [`Wish::LocalPorts`]: first and last port, or `Err` if there are none.
    fn next_lease(&mut self) -> Option<Result<(u16, u16), NoPorts>>;

    /// The list in which the stack keeps its connections, so that the host can reset their peers if
    /// the process dies. The stack takes it once. `None` afterwards, and if the host keeps no such
    /// list.
    fn take_ledger(&mut self) -> Option<LedgerFile>;

    /// True if other processes of this application listen at `local`, or may. Unaccepted
    /// connections can then be handed over to them.
    fn is_shared(&self, _local: SocketAddr) -> bool {
        false
    }

    /// Sends a connection to another process, or the answer to a connection from another process.
    fn transfer(&mut self, _transfer: Transfer) {}

    /// The next connection that another process hands over, or the next answer to one that this
    /// stack has sent.
    fn next_transfer(&mut self) -> Option<Transfer> {
        None
    }
}

/// An unaccepted connection on its way between the stacks of two processes, or the answer to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// A connection, to be answered once.
    Connection {
        /// The sender's number for the connection.
        number: u32,
        /// The address at which the connection's listener was.
        local: SocketAddr,
        /// Both ends of the connection, this host's first.
        ends: (SocketAddr, SocketAddr),
        /// The connection in the stacks' own encoding.
        bytes: Vec<u8>,
        /// The sender's listener stays, and takes the connection back if no process takes it now.
        comes_back: bool,
    },
    /// Question: does a call of another process wait for a connection at this address? It is
    /// answered once. [`Transfer::Taken`] means yes, and that the process expects a connection.
    Seek {
        /// The sender's number for the question.
        number: u32,
        /// The address at which connections wait too long.
        local: SocketAddr,
        /// The sender's process has accepted connections there.
        accepts: bool,
        /// The connections have waited for so long that a process may answer yes that accepts and
        /// is busy.
        is_urgent: bool,
    },
    /// Answer: the other stack has the connection and has told the peer.
    Taken {
        /// The sender's number for the connection.
        number: u32,
    },
    /// Answer: the other stack has no room or no listener, or no stack took the connection. The
    /// sender must end it.
    Refused {
        /// The sender's number for the connection.
        number: u32,
    },
}

/// A stack's request to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Resolve the MAC address of a next hop. The answer is [`Change::NextHop`].
    NextHop(IpAddr),
    /// Lend more local ports for active opens. The answer comes by [`Host::next_lease`].
    LocalPorts,
    /// Take back these local ports, first and last of a range from [`Host::next_lease`].
    ReturnPorts(u16, u16),
    /// A socket that had claimed this address is gone; connections may remain.
    Leave(SocketAddr),
    /// The last connection at the address of a socket that left is gone.
    Release(SocketAddr),
    /// This stack has no flow between these ends (its own first) and no longer listens there, so
    /// another process may take them.
    Forget(SocketAddr, SocketAddr),
    /// This process has accepted its first connection at this address, after the host has found
    /// another process for a connection there.
    Accepts(SocketAddr),
}

/// The host has no more local ports for this stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPorts;

/// A route of the kernel's main table through the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// The route's destination.
    pub destination: IpAddr,
    /// Prefix length of `destination`, bits.
    pub prefix: u8,
    /// The next hop; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The source address that the route prefers.
    pub source: Option<IpAddr>,
    /// The route's MTU in bytes; 0: the NIC's.
    pub mtu: u32,
    /// The route's metric; the lower one wins.
    pub metric: u32,
}

/// The NIC's state as the host's kernel knows it.
#[derive(Clone, Debug, Default)]
pub struct HostView {
    /// Addresses of the NIC, each with its prefix length in bits.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Routes through the NIC.
    pub routes: Vec<Route>,
    /// MAC address of the NIC; `None` until it is known.
    pub mac: Option<MacAddr>,
    /// MTU of the NIC in bytes; `None` until it is known.
    pub mtu: Option<u32>,
    /// MAC address for packets to the NIC's own addresses; `None`: they cannot be reached.
    pub own_hop: Option<MacAddr>,
}

impl HostView {
    /// Applies a change. Changes of the link and of next hops have no effect on the view.
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
        /// True if the link is up now.
        is_up: bool,
    },
    /// The NIC has a new MAC address.
    Mac(MacAddr),
    /// The NIC has a new MTU, bytes.
    Mtu(u32),
    /// The NIC has an address, or has it with another prefix now.
    AddressAdded {
        /// The address.
        address: IpAddr,
        /// Prefix length of the address, bits.
        prefix: u8,
    },
    /// The NIC lost an address, whose connections end with ENETDOWN.
    AddressRemoved {
        /// The address.
        address: IpAddr,
        /// Prefix length of the address, bits.
        prefix: u8,
    },
    /// A route appeared.
    RouteAdded(Route),
    /// A route went away.
    RouteRemoved(Route),
    /// A resolved next hop has a new MAC address, or none.
    NextHop {
        /// The next hop.
        address: IpAddr,
        /// Its MAC address; `None` if it does not answer.
        mac: Option<MacAddr>,
    },
    /// The NIC was removed. If it comes back, the list is sent again.
    Gone,
    /// The host delivers packets between the NIC's own addresses that have this destination MAC
    /// address, so peers at our own addresses are real. `None`: it delivers none.
    OwnHop(Option<MacAddr>),
}
