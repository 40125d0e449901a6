//! rtnetlink messages: bytes ⇄ values.
//!
//! Only messages that the mirror needs are covered. The kernel writes them, but every length is
//! checked; the reader is fuzzed. `netlink` and `host` use the module.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::io::Errno;

use crate::MacAddr;

/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_CREATE: u16 = 0x400;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_BROADCAST: u16 = 4;
const IFA_FLAGS: u16 = 8;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTAX_MTU: u16 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_FLAGS_EXT: u16 = 15;
const NTF_EXT_MANAGED: u32 = 1;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 0x40;
/// Flags of an address whose duplicate detection has failed (0x08) or is under way (0x40).
const IFA_F_UNUSABLE: u32 = 0x08 | 0x40;
const RTN_UNICAST: u8 = 1;
/// States of a neighbour whose MAC address is usable: `NUD_REACHABLE | NUD_STALE | NUD_DELAY |
/// NUD_PROBE | NUD_NOARP | NUD_PERMANENT`.
const NUD_VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Index of the interface.
    pub index: u32,
    /// Name of the interface.
    pub name: String,
    /// MAC address, if the interface has one of six bytes.
    pub mac: Option<MacAddr>,
    /// MTU in bytes.
    pub mtu: u32,
    /// True if the interface is up and has a carrier.
    pub is_up: bool,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Index of the interface.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// Prefix length, bits.
    pub prefix: u8,
    /// Broadcast address of the network; IPv4 only.
    pub broadcast: Option<IpAddr>,
    /// True if the address is usable. An IPv6 address is not while its uniqueness is being checked.
    pub is_usable: bool,
}

impl Address {
    /// Sets the default broadcast address, with all host bits set, if none was set.
    pub fn with_broadcast(mut self) -> Self {
        if let (IpAddr::V4(address), None, 0..=30) = (self.address, self.broadcast, self.prefix) {
            let host_bits = u32::MAX >> self.prefix;
            let broadcast = Ipv4Addr::from_bits(address.to_bits() | host_bits);
            self.broadcast = Some(IpAddr::V4(broadcast));
        }
        self
    }
}

/// A unicast route through one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Index of the interface.
    pub index: u32,
    /// Number of the routing table; 254 is the main one.
    pub table: u32,
    /// The route's destination.
    pub destination: IpAddr,
    /// Prefix length of `destination`, bits.
    pub prefix: u8,
    /// The next hop; `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The preferred source address.
    pub source: Option<IpAddr>,
    /// MTU in bytes; 0: the interface's.
    pub mtu: u32,
    /// Metric of the route; the lower one wins.
    pub metric: u32,
}

/// An entry of the neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Index of the interface.
    pub index: u32,
    /// The IP address.
    pub address: IpAddr,
    /// MAC address, if it is usable at present.
    pub mac: Option<MacAddr>,
}

/// One rtnetlink message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An interface appeared or changed.
    Link(Link),
    /// An interface with this index went away.
    LinkGone(u32),
    /// An address appeared or changed.
    Address(Address),
    /// An address went away.
    AddressGone(Address),
    /// A route appeared.
    Route(Route),
    /// A route went away.
    RouteGone(Route),
    /// A neighbour appeared or changed.
    Neighbour(Neighbour),
    /// A neighbour went away.
    NeighbourGone(Neighbour),
    /// The list is complete.
    Done,
    /// The answer to a request: success, or an error.
    Answer(Result<(), Errno>),
    /// Any other message.
    Other,
}

/// The messages in `bytes`, up to one with an invalid length.
pub fn notices(bytes: &[u8]) -> impl Iterator<Item = Notice> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = u32_at(rest, 0)? as usize;
        let kind = u16_at(rest, 4)?;
        let body = rest.get(HEADER_BYTES..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(notice(kind, body).unwrap_or(Notice::Other))
    })
}

/// Decodes a message; `None` if it is too short or of no interest.
fn notice(kind: u16, body: &[u8]) -> Option<Notice> {
    Some(match kind {
        NLMSG_DONE => Notice::Done,
        NLMSG_ERROR => Notice::Answer(match u32_at(body, 0)?.cast_signed() {
            0 => Ok(()),
            code => Err(Errno::from_raw_os_error(
                code.checked_neg().filter(|code| (1..4096).contains(code))?,
            )),
        }),
        RTM_NEWLINK => Notice::Link(link(body)?),
        RTM_DELLINK => Notice::LinkGone(u32_at(body, 4)?),
        RTM_NEWADDR => Notice::Address(address(body)?),
        RTM_DELADDR => Notice::AddressGone(address(body)?),
        RTM_NEWROUTE => Notice::Route(route(body)?),
        RTM_DELROUTE => Notice::RouteGone(route(body)?),
        RTM_NEWNEIGH => Notice::Neighbour(neighbour(body)?),
        RTM_DELNEIGH => Notice::NeighbourGone(neighbour(body)?),
        _ => return None,
    })
}

/// Decodes `struct ifinfomsg` with its attributes.
fn link(body: &[u8]) -> Option<Link> {
    let flags = u32_at(body, 8)?;
    let mut link = Link {
        index: u32_at(body, 4)?,
        name: String::new(),
        mac: None,
        mtu: 0,
        is_up: flags & IFF_UP != 0 && flags & IFF_RUNNING != 0,
    };
    for (kind, value) in attributes(body.get(16..)?) {
        match kind {
            IFLA_ADDRESS => link.mac = value.try_into().ok().map(MacAddr),
            IFLA_IFNAME => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_MTU => link.mtu = u32_at(value, 0)?,
            _ => {}
        }
    }
    Some(link)
}

/// Decodes `struct ifaddrmsg` with its attributes.
fn address(body: &[u8]) -> Option<Address> {
    let &[family, prefix, flags, _, ..] = body else {
        return None;
    };
    let mut flags = u32::from(flags);
    let (mut local, mut other, mut broadcast) = (None, None, None);
    for (kind, value) in attributes(body.get(8..)?) {
        match kind {
            IFA_LOCAL => local = ip(family, value),
            IFA_ADDRESS => other = ip(family, value),
            IFA_BROADCAST => broadcast = ip(family, value),
            IFA_FLAGS => flags = u32_at(value, 0)?,
            _ => {}
        }
    }
    Some(Address {
        index: u32_at(body, 4)?,
        // On a point-to-point link, IFA_ADDRESS is the other end's address.
        address: local.or(other)?,
        prefix,
        broadcast,
        is_usable: flags & IFA_F_UNUSABLE == 0,
    })
}

/// Decodes `struct rtmsg` with its attributes. With several next hops the first one counts.
fn route(body: &[u8]) -> Option<Route> {
    let &[family, prefix, _, _, table, _, _, kind, ..] = body else {
        return None;
    };
    if kind != RTN_UNICAST {
        return None;
    }
    let mut route = Route {
        index: 0,
        table: u32::from(table),
        destination: unspecified(family)?,
        prefix,
        gateway: None,
        source: None,
        mtu: 0,
        metric: 0,
    };
    for (kind, value) in attributes(body.get(12..)?) {
        match kind {
            RTA_DST => route.destination = ip(family, value)?,
            RTA_OIF => route.index = u32_at(value, 0)?,
            RTA_GATEWAY => route.gateway = ip(family, value),
            RTA_VIA => route.gateway = via(value),
            RTA_PREFSRC => route.source = ip(family, value),
            RTA_PRIORITY => route.metric = u32_at(value, 0)?,
            RTA_TABLE => route.table = u32_at(value, 0)?,
            RTA_METRICS => {
                let mtu = attributes(value).find(|(kind, _)| *kind == RTAX_MTU);
                route.mtu = mtu.and_then(|(_, value)| u32_at(value, 0)).unwrap_or(0);
            }
            RTA_MULTIPATH => {
                // struct rtnexthop: length, flags, weight, interface; then attributes
                let length = usize::from(u16_at(value, 0)?);
                route.index = u32_at(value, 4)?;
                for (kind, value) in attributes(value.get(8..length)?) {
                    match kind {
                        RTA_GATEWAY => route.gateway = ip(family, value),
                        RTA_VIA => route.gateway = via(value),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some(route)
}

/// Decodes `struct ndmsg` with its attributes.
fn neighbour(body: &[u8]) -> Option<Neighbour> {
    let family = *body.first()?;
    let state = u16_at(body, 8)?;
    let (mut address, mut mac) = (None, None);
    for (kind, value) in attributes(body.get(12..)?) {
        match kind {
            NDA_DST => address = ip(family, value),
            NDA_LLADDR => mac = value.try_into().ok().map(MacAddr),
            _ => {}
        }
    }
    Some(Neighbour {
        index: u32_at(body, 4)?,
        address: address?,
        mac: mac.filter(|_| state & NUD_VALID != 0),
    })
}

/// The attributes in `bytes`, up to one with an invalid length.
fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    const FLAGS: u16 = 0xc000; // nested, network byte order
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)? & !FLAGS;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Decodes `struct rtvia`: a next hop of another family than the destination.
fn via(value: &[u8]) -> Option<IpAddr> {
    let family = u8::try_from(u16_at(value, 0)?).ok()?;
    ip(family, value.get(2..)?)
}

fn ip(family: u8, value: &[u8]) -> Option<IpAddr> {
    match family {
        AF_INET => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?))),
        AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(
            <[u8; 16]>::try_from(value).ok()?,
        ))),
        _ => None,
    }
}

fn unspecified(family: u8) -> Option<IpAddr> {
    match family {
        AF_INET => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        AF_INET6 => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        _ => None,
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// A list that can be requested from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// All interfaces.
    Links,
    /// All addresses.
    Addresses,
    /// All routes.
    Routes,
}

/// The request for a list.
pub fn list_request(list: List) -> Vec<u8> {
    let (kind, header_bytes) = match list {
        List::Links => (RTM_GETLINK, 16),
        List::Addresses => (RTM_GETADDR, 8),
        List::Routes => (RTM_GETROUTE, 12),
    };
    finish(kind, NLM_F_REQUEST | NLM_F_DUMP, vec![0; header_bytes])
}

/// The request to keep `address` in the neighbour table and resolved: a managed entry
/// (`NTF_EXT_MANAGED`, kernel 5.16).
pub fn manage_neighbour(index: u32, address: IpAddr) -> Vec<u8> {
    let mut body = neighbour_header(index, address);
    attribute(&mut body, NDA_FLAGS_EXT, &NTF_EXT_MANAGED.to_ne_bytes());
    finish(RTM_NEWNEIGH, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, body)
}

/// The request to remove `address` from the neighbour table.
pub fn remove_neighbour(index: u32, address: IpAddr) -> Vec<u8> {
    let body = neighbour_header(index, address);
    finish(RTM_DELNEIGH, NLM_F_REQUEST | NLM_F_ACK, body)
}

/// The request for one entry of the neighbour table.
pub fn neighbour_request(index: u32, address: IpAddr) -> Vec<u8> {
    finish(
        RTM_GETNEIGH,
        NLM_F_REQUEST,
        neighbour_header(index, address),
    )
}

/// `struct ndmsg`, followed by the address.
fn neighbour_header(index: u32, address: IpAddr) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    };
    let mut body = vec![family, 0, 0, 0];
    body.extend(index.to_ne_bytes());
    body.extend([0; 4]); // state, flags, type
    attribute(&mut body, NDA_DST, &octets);
    body
}

fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

fn finish(kind: u16, flags: u16, body: Vec<u8>) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + body.len());
    out.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend(1u32.to_ne_bytes());
    out.extend(0u32.to_ne_bytes());
    out.extend(body);
    out
}

#[cfg(test)]
mod tests;
