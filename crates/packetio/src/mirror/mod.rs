//! A mirror of the kernel's control plane for one interface: MAC address, MTU, link state,
//! addresses, routes of the main table, and requested neighbours.
//!
//! | module | what it is |
//! |---|---|
//! | `message` | rtnetlink messages, bytes ⇄ values |
//! | `netlink` | the sockets |
//! | `host` | one interface's state, and the difference between two |
//! | `leaving` | addresses that the interface has lost a moment ago |
//! | `announcement` | frames that tell the link of a new MAC address |
//! | `follower` | a thread that tells the stacks of this process: `xdp:IFACE,mirror` |
//! | `port` | a port with the kernel behind it |
//!
//! The kernel keeps doing ARP and ND. A requested next hop becomes a managed neighbour: the kernel
//! resolves it without traffic and keeps it reachable. The service `mill mux` and the runtime use
//! the mirror.

mod announcement;
mod follower;
mod host;
mod leaving;
pub mod message;
mod netlink;
mod port;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::{self, Errno};

pub use self::follower::Follower;
pub use self::host::Host;
pub use self::leaving::Leaving;
use self::message::{List, Notice};
use self::netlink::Netlink;
pub use self::port::MirrorPort;
use crate::MacAddr;
use crate::limits::{MIRROR_NEIGHBOURS_MAX, MIRROR_ROUTES_MAX};
use crate::mux::message::Change;
use crate::packet_unsafe::{raw_socket, send_by};

/// Number of the main routing table.
const TABLE_MAIN: u32 = 254;

/// The mirror of one interface.
#[derive(Debug)]
pub struct Mirror {
    name: String,
    netlink: Netlink,
    /// Sends announcements. Opened at the start, since the process may give up its capabilities
    /// later; `Err` without the capability.
    announcer: Result<OwnedFd, Errno>,
    host: Host,
    /// Requested next hops, with the MAC address that the kernel knows of each.
    neighbours: BTreeMap<IpAddr, Option<MacAddr>>,
}

impl Mirror {
    /// Makes a mirror of the interface `name` in the caller's network namespace.
    ///
    /// # Errors
    /// `NODEV` if there is no such interface; else the errors of the sockets.
    pub fn open(name: &str) -> io::Result<Self> {
        let mut mirror = Self {
            name: name.to_owned(),
            netlink: Netlink::open()?,
            announcer: raw_socket(),
            host: Host::default(),
            neighbours: BTreeMap::new(),
        };
        mirror.host = mirror.read()?;
        match mirror.host.link {
            Some(_) => Ok(mirror),
            None => Err(Errno::NODEV),
        }
    }

    /// Descriptor that is readable when [`Mirror::changes`] should be called.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.netlink.fd()
    }

    /// The state at the last call of [`Mirror::changes`].
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The requested next hops, and the MAC address of each that answers.
    pub fn neighbours(&self) -> impl Iterator<Item = (IpAddr, Option<MacAddr>)> + '_ {
        self.neighbours
            .iter()
            .map(|(address, mac)| (*address, *mac))
    }

    /// Reads notifications; returns what has changed since the last call.
    ///
    /// # Errors
    /// The errors of the sockets. The next call reads everything again.
    pub fn changes(&mut self) -> io::Result<Vec<Change>> {
        let mut is_dirty = false;
        let mut news = Vec::new();
        let index = self.host.link.as_ref().map(|link| link.index);
        let is_complete = self.netlink.notifications(|notice| match notice {
            Notice::Neighbour(one) if Some(one.index) == index => news.push((one.address, one.mac)),
            Notice::NeighbourGone(one) if Some(one.index) == index => {
                news.push((one.address, None));
            }
            Notice::Neighbour(_) | Notice::NeighbourGone(_) | Notice::Other => {}
            _ => is_dirty = true,
        });
        let mut changes = Vec::new();
        if is_dirty || !is_complete {
            let next = self.read()?;
            let next_index = next.link.as_ref().map(|link| link.index);
            if next_index != index {
                // The interface was removed, created, or both since the last call.
                changes = self.host.changes_to(&Host::default());
                self.host = Host::default();
            }
            changes.extend(self.host.changes_to(&next));
            self.host = next;
            if next_index != index && next_index.is_some() {
                changes.push(Change::Complete);
            }
        }
        for (address, mac) in news {
            self.learn(address, mac, &mut changes);
        }
        if !is_complete || !changes.is_empty() {
            self.ask_again(&mut changes);
        }
        Ok(changes)
    }

    /// The MAC address of a next hop, if the kernel knows it. Otherwise the kernel requests it, and
    /// [`Mirror::changes`] reports the answer.
    ///
    /// # Errors
    /// `NOBUFS` at [`MIRROR_NEIGHBOURS_MAX`] next hops; else the kernel's error.
    pub fn resolve(&mut self, address: IpAddr) -> io::Result<Option<MacAddr>> {
        let index = self.index()?;
        let is_new = !self.neighbours.contains_key(&address);
        if is_new && self.neighbours.len() >= MIRROR_NEIGHBOURS_MAX {
            return Err(Errno::NOBUFS);
        }
        if is_new || self.neighbours.get(&address) == Some(&None) {
            self.netlink.manage_neighbour(index, address)?;
        }
        let mac = match self.netlink.neighbour(index, address) {
            Ok(neighbour) => neighbour.mac,
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno),
        };
        self.neighbours.insert(address, mac);
        Ok(mac)
    }

    /// Announces on the link that the interface's addresses have its present MAC address.
    ///
    /// # Errors
    /// `PERM` if the mirror was opened without `CAP_NET_RAW`; `NODEV` without an interface with a
    /// MAC address; else the errors of sending.
    pub fn announce(&self) -> io::Result<()> {
        let link = self.host.link.as_ref().ok_or(Errno::NODEV)?;
        let (index, mac) = (link.index as i32, link.mac.ok_or(Errno::NODEV)?);
        let socket = self.announcer.as_ref().map_err(|errno| *errno)?;
        for own in &self.host.addresses {
            send_by(socket, index, &announcement::frame(own.address, mac))?;
        }
        Ok(())
    }

    /// Releases a next hop, so that the kernel need not keep it resolved.
    pub fn forget(&mut self, address: IpAddr) {
        if self.neighbours.remove(&address).is_some()
            && let Ok(index) = self.index()
        {
            // The entry may be gone already, which does not matter.
            let _ = self.netlink.remove_neighbour(index, address);
        }
    }

    fn index(&self) -> io::Result<u32> {
        let link = self.host.link.as_ref().ok_or(Errno::NODEV)?;
        Ok(link.index)
    }

    fn learn(&mut self, address: IpAddr, mac: Option<MacAddr>, changes: &mut Vec<Change>) {
        if let Some(known) = self.neighbours.get_mut(&address)
            && *known != mac
        {
            *known = mac;
            changes.push(Change::NextHop { address, mac });
        }
    }

    /// Has the kernel resolve the neighbours again that were lost when the interface went down or
    /// away.
    fn ask_again(&mut self, changes: &mut Vec<Change>) {
        let Ok(index) = self.index() else {
            return;
        };
        let addresses: Vec<IpAddr> = self.neighbours.keys().copied().collect();
        for address in addresses {
            let entry = self.netlink.neighbour(index, address);
            let mac = entry.map_or(None, |neighbour| neighbour.mac);
            if entry.is_err() {
                // The kernel refuses while the link is down; the notification of its return asks
                // again.
                let _ = self.netlink.manage_neighbour(index, address);
            }
            self.learn(address, mac, changes);
        }
    }

    /// Reads the whole present state from the kernel.
    fn read(&mut self) -> io::Result<Host> {
        let mut host = Host::default();
        self.netlink.list(List::Links, |notice| {
            if let Notice::Link(link) = notice
                && link.name == self.name
            {
                host.link = Some(link);
            }
        })?;
        let Some(index) = host.link.as_ref().map(|link| link.index) else {
            return Ok(host);
        };
        self.netlink.list(List::Addresses, |notice| {
            if let Notice::Address(address) = notice
                && address.index == index
                && address.is_usable
            {
                host.addresses.push(address.with_broadcast());
            }
        })?;
        self.netlink.list(List::Routes, |notice| {
            if let Notice::Route(route) = notice
                && route.index == index
                && route.table == TABLE_MAIN
                && host.routes.len() < MIRROR_ROUTES_MAX
            {
                host.routes.push(route);
            }
        })?;
        Ok(host)
    }
}
