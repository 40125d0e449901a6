//! The stack's own IP addresses and the `address/length` notation.
//!
//! [`IpCidr`] is an address with the length of its on-link prefix. [`LocalAddresses`] holds our
//! addresses with their ports, and chooses a source for a destination. Configuration fills it;
//! `demux`, `arp_nd` and `connect` ask it. Nothing here allocates after set-up.

use core::cell::Cell;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use thiserror::Error;
use wire::Addr;

use crate::limits::LOCAL_ADDRESSES_MAX;

#[cfg(test)]
mod tests;

/// An IP address with a prefix length, as in `10.0.0.1/24`. For a local address this is the on-link
/// prefix; in a route the host bits are ignored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IpCidr {
    address: IpAddr,
    prefix_len: u8,
}

/// The reason why a text is not a valid [`IpCidr`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum CidrError {
    /// The part before `/` is not an IPv4 or IPv6 address.
    #[error("not an IP address")]
    Address,
    /// The part after `/` is not a decimal number.
    #[error("not a prefix length")]
    Length,
    /// The prefix is longer than the address (32 bits for IPv4, 128 for IPv6).
    #[error("prefix longer than the address")]
    TooLong,
}

impl IpCidr {
    /// Makes `address/prefix_len`.
    ///
    /// # Errors
    /// [`CidrError::TooLong`](crate::CidrError::TooLong) when the prefix is longer than the
    /// address.
    pub fn new(address: IpAddr, prefix_len: u8) -> Result<IpCidr, CidrError> {
        if prefix_len > width(address) {
            return Err(CidrError::TooLong);
        }
        Ok(IpCidr {
            address,
            prefix_len,
        })
    }

    /// Makes the host prefix `address/32` or `address/128`.
    pub fn host(address: IpAddr) -> IpCidr {
        IpCidr {
            address,
            prefix_len: width(address),
        }
    }

    /// The address as it was given, host bits included.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Length of the prefix in bits.
    pub fn prefix_len(&self) -> u8 {
        self.prefix_len
    }

    /// The prefix itself: the address with its host bits zero.
    pub fn network(&self) -> IpCidr {
        let address = match self.address {
            IpAddr::V4(v4) => {
                IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask_v4(self.prefix_len)))
            }
            IpAddr::V6(v6) => {
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask_v6(self.prefix_len)))
            }
        };
        IpCidr {
            address,
            prefix_len: self.prefix_len,
        }
    }

    /// True if `address` lies within the prefix. IPv4 and IPv6 never match each other.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()) & mask_v4(self.prefix_len) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()) & mask_v6(self.prefix_len) == 0
            }
            _ => false,
        }
    }

    /// The directed broadcast address of an IPv4 prefix; none for IPv6 and for /31 and /32 (RFC
    /// 3021).
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(v4) if self.prefix_len < 31 => Some(Ipv4Addr::from_bits(
                v4.to_bits() | !mask_v4(self.prefix_len),
            )),
            _ => None,
        }
    }
}

impl FromStr for IpCidr {
    type Err = CidrError;

    /// Parses `address/length`; an address alone is a host prefix.
    fn from_str(text: &str) -> Result<IpCidr, CidrError> {
        let Some((address, length)) = text.split_once('/') else {
            return text
                .parse()
                .map(IpCidr::host)
                .map_err(|_| CidrError::Address);
        };
        let address = address.parse().map_err(|_| CidrError::Address)?;
        // `u8::from_str` accepts a leading plus sign, which is surely a mistake here.
        if length.starts_with('+') {
            return Err(CidrError::Length);
        }
        IpCidr::new(address, length.parse().map_err(|_| CidrError::Length)?)
    }
}

impl fmt::Display for IpCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_len)
    }
}

/// The reason why an address cannot become one of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AddressError {
    /// [`LOCAL_ADDRESSES_MAX`] addresses are configured already.
    #[error("too many local addresses (LOCAL_ADDRESSES_MAX)")]
    Full,
    /// The address is already ours.
    #[error("address already configured")]
    Duplicate,
    /// The address is unspecified, multicast or broadcast, so no host can have it.
    #[error("not a unicast host address")]
    NotUnicast,
}

/// The meaning of a destination address to this host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// A unicast address of ours.
    Local,
    /// Limited or directed broadcast. TCP drops such segments silently (RFC 9293 MUST-57).
    Broadcast,
    /// A multicast group. TCP drops such segments silently (RFC 9293 MUST-57).
    Multicast,
    /// A unicast address of another host.
    Foreign,
}

/// One local address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalAddress {
    /// The address and the length of its on-link prefix.
    pub cidr: IpCidr,
    /// Index of the port that has the address.
    pub port: u8,
}

/// The local addresses in order of configuration, [`LOCAL_ADDRESSES_MAX`] at most.
#[derive(Debug)]
pub struct LocalAddresses {
    held: Vec<LocalAddress>,
    /// The same addresses in the form that `demux` compares, once per segment.
    own: Vec<Addr>,
    /// Broadcast addresses of the subnets, in the order of the addresses.
    broadcasts: Vec<Addr>,
    /// The ends of the last packet that [`may_exchange`](Self::may_exchange) accepted, ours first.
    /// Cleared when addresses change.
    last: Cell<Option<(Ipv4Addr, Ipv4Addr)>>,
    /// True if 127.0.0.0/8 and ::1 are ours too, for packets within the stack.
    /// [`is_own`](Self::is_own) and [`may_be_peer`](Self::may_be_peer) judge packets of a wire and
    /// exclude them.
    has_loopback: bool,
    /// True if peers may have our addresses, because the host behind the port shares them with
    /// other programs.
    has_own_peers: bool,
}

impl Default for LocalAddresses {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalAddresses {
    /// Makes an empty set with room for all addresses that it may hold.
    pub fn new() -> LocalAddresses {
        LocalAddresses {
            held: Vec::with_capacity(LOCAL_ADDRESSES_MAX),
            own: Vec::with_capacity(LOCAL_ADDRESSES_MAX),
            broadcasts: Vec::with_capacity(LOCAL_ADDRESSES_MAX),
            last: Cell::new(None),
            has_loopback: false,
            has_own_peers: false,
        }
    }

    /// Makes `cidr.address()` ours on `port`.
    ///
    /// # Errors
    /// [`AddressError`] if no host can have the address, it is ours already, or the set is full.
    pub fn add(&mut self, cidr: IpCidr, port: u8) -> Result<(), AddressError> {
        if !is_unicast(cidr.address)
            || cidr
                .broadcast()
                .is_some_and(|b| IpAddr::V4(b) == cidr.address)
        {
            return Err(AddressError::NotUnicast);
        }
        if self.is_local(cidr.address) {
            return Err(AddressError::Duplicate);
        }
        if self.held.len() == LOCAL_ADDRESSES_MAX {
            return Err(AddressError::Full);
        }
        self.held.push(LocalAddress { cidr, port });
        self.index();
        Ok(())
    }

    /// Makes 127.0.0.0/8 and ::1 ours, for packets that never leave the stack.
    pub fn add_loopback(&mut self) {
        self.has_loopback = true;
    }

    /// Sets whether peers may have our addresses; the host behind the port decides it.
    pub fn set_own_peers(&mut self, on: bool) {
        self.has_own_peers = on;
        self.last.set(None);
    }

    /// The loopback address of a family, if the stack has one.
    pub fn loopback(&self, is_v4: bool) -> Option<IpAddr> {
        let address = match is_v4 {
            true => IpAddr::from(Ipv4Addr::LOCALHOST),
            false => Ipv6Addr::LOCALHOST.into(),
        };
        self.has_loopback.then_some(address)
    }

    /// Removes `address`; false if it was not ours.
    pub fn remove(&mut self, address: IpAddr) -> bool {
        let before = self.held.len();
        self.held.retain(|own| own.cidr.address != address);
        self.index();
        self.held.len() != before
    }

    fn index(&mut self) {
        self.last.set(None);
        self.own.clear();
        self.own
            .extend(self.held.iter().map(|own| Addr::from(own.cidr.address)));
        self.broadcasts.clear();
        self.broadcasts.extend(
            self.held
                .iter()
                .filter_map(|own| own.cidr.broadcast())
                .map(Addr::v4),
        );
    }

    /// [`is_local`](Self::is_local) in the form for the data path.
    #[inline]
    pub fn is_own(&self, address: Addr) -> bool {
        self.own.contains(&address)
    }

    /// [`is_valid_source`](Self::is_valid_source) in the form for the data path.
    #[inline]
    pub fn may_be_peer(&self, address: Addr) -> bool {
        let is_unicast = match address.to_v4() {
            // 0/8 is "this network", 127/8 loopback, 224/4 multicast, 240/4 reserved.
            Some(v4) => !matches!(v4.octets()[0], 0 | 127 | 224..=255),
            None => !address.is_multicast() && !address.is_unspecified() && !address.is_loopback(),
        };
        let is_forged = !self.has_own_peers && self.is_own(address);
        is_unicast && !self.broadcasts.contains(&address) && !is_forged
    }

    /// True if `own` [is ours](Self::is_own) and `peer` [may be a peer](Self::may_be_peer).
    /// Consecutive packets are often of the same two hosts, so the last positive answer is cached.
    #[inline]
    pub fn may_exchange(&self, own: Ipv4Addr, peer: Ipv4Addr) -> bool {
        if self.last.get() == Some((own, peer)) {
            return true;
        }
        let may = self.is_own(Addr::v4(own)) && self.may_be_peer(Addr::v4(peer));
        if may {
            self.last.set(Some((own, peer)));
        }
        may
    }

    /// All addresses, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &LocalAddress> {
        self.held.iter()
    }

    /// True if `address` is one of ours, on any port (the weak host model of RFC 1122 3.3.4.2, as
    /// in Linux).
    #[inline]
    pub fn is_local(&self, address: IpAddr) -> bool {
        let is_held = self.held.iter().any(|own| own.cidr.address == address);
        is_held || (self.has_loopback && address.is_loopback() && !is_loopback_broadcast(address))
    }

    /// True if `address` is on the link of one of our addresses on `port`.
    pub fn is_on_link(&self, address: IpAddr, port: u8) -> bool {
        self.held
            .iter()
            .any(|own| own.port == port && own.cidr.contains(address))
    }

    /// The port that has this address of ours.
    pub fn port_of(&self, address: Addr) -> Option<u8> {
        let at = self.own.iter().position(|&own| own == address)?;
        Some(self.held[at].port)
    }

    /// Removes the addresses of a port.
    pub fn remove_port(&mut self, port: u8) {
        self.held.retain(|own| own.port != port);
        self.index();
    }

    /// Classifies a destination address as ours, broadcast, multicast or foreign.
    #[inline]
    pub fn classify(&self, address: IpAddr) -> Destination {
        if self.is_local(address) {
            return Destination::Local;
        }
        if address.is_multicast() {
            return Destination::Multicast;
        }
        if self.is_broadcast(address) {
            return Destination::Broadcast;
        }
        Destination::Foreign
    }

    /// True if a packet may come from `address` (RFC 9293 MUST-63, RFC 1122 section 3.2.1.3).
    /// Multicast, broadcast, unspecified and loopback sources are refused. Our own addresses are
    /// refused too, unless the host shares them.
    #[inline]
    pub fn is_valid_source(&self, address: IpAddr) -> bool {
        is_unicast(address)
            && !address.is_loopback()
            && !self.is_broadcast(address)
            && (self.has_own_peers || !self.is_local(address))
    }

    /// The source address for packets to `destination` that leave on `port` (any port if `None`).
    /// The choice follows RFC 6724 section 5 with its rules 1 (same address), 2 (appropriate
    /// scope), 5 (outgoing interface) and 8 (longest matching prefix). Among equals the first
    /// configured wins.
    pub fn source_for(&self, destination: IpAddr, port: Option<u8>) -> Option<IpAddr> {
        if self.has_loopback && destination.is_loopback() {
            return self.loopback(destination.is_ipv4());
        }
        let mut best: Option<(SourceRank, IpAddr)> = None;
        for own in &self.held {
            if own.cidr.address.is_ipv4() != destination.is_ipv4() {
                continue;
            }
            let rank = SourceRank::of(own, destination, port);
            if best.is_none_or(|(best_rank, _)| rank > best_rank) {
                best = Some((rank, own.cidr.address));
            }
        }
        best.map(|(_, address)| address)
    }

    fn is_broadcast(&self, address: IpAddr) -> bool {
        let IpAddr::V4(v4) = address else {
            return false;
        };
        if self.has_loopback && is_loopback_broadcast(address) {
            return true;
        }
        v4.is_broadcast() || self.held.iter().any(|own| own.cidr.broadcast() == Some(v4))
    }
}

/// The fitness of a source address for a destination: compared field by field, the greatest wins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SourceRank {
    same_address: bool,
    scope: i8,
    on_port: bool,
    matching_bits: u8,
}

impl SourceRank {
    fn of(own: &LocalAddress, destination: IpAddr, port: Option<u8>) -> SourceRank {
        let (own_scope, wanted) = (scope(own.cidr.address), scope(destination));
        // Rule 2: the smallest scope that still covers the destination is best; too small a scope
        // is worst.
        let scope = if own_scope < wanted {
            own_scope - 64
        } else {
            -own_scope
        };
        SourceRank {
            same_address: own.cidr.address == destination,
            scope,
            on_port: port.is_none_or(|port| port == own.port),
            // Rule 8: at most the source's own prefix counts, so that host bits do not decide.
            matching_bits: common_bits(own.cidr.address, destination).min(own.cidr.prefix_len),
        }
    }
}

/// True if a host may have `address`: neither unspecified, multicast, limited broadcast nor class
/// E.
pub fn is_unicast(address: IpAddr) -> bool {
    match address {
        // 0/8 is "this network" (RFC 1122 3.2.1.3), 240/4 is reserved.
        IpAddr::V4(v4) => v4.octets()[0] != 0 && v4.octets()[0] < 224,
        IpAddr::V6(v6) => !v6.is_unspecified() && !v6.is_multicast(),
    }
}

/// True for a link-local IPv6 address, which is valid only on its own link.
#[inline]
pub fn is_link_local(address: Addr) -> bool {
    address.octets()[0] == 0xfe && address.octets()[1] & 0xc0 == 0x80
}

/// 127.255.255.255, the broadcast address of the loopback network.
fn is_loopback_broadcast(address: IpAddr) -> bool {
    address == IpAddr::from([127, 255, 255, 255])
}

/// Scopes of RFC 6724 section 3.1, as the multicast scope values: 1 interface, 2 link, 5 site, 14
/// global.
fn scope(address: IpAddr) -> i8 {
    match address {
        IpAddr::V4(v4) if v4.is_link_local() || v4.is_loopback() => 2,
        IpAddr::V4(_) => 14,
        IpAddr::V6(v6) if v6.is_multicast() => (v6.octets()[1] & 15) as i8,
        IpAddr::V6(v6) if v6.is_unicast_link_local() || v6.is_loopback() => 2,
        IpAddr::V6(_) => 14,
    }
}

fn common_bits(a: IpAddr, b: IpAddr) -> u8 {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() as u8,
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() as u8,
        _ => 0,
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn mask_v4(prefix_len: u8) -> u32 {
    u32::MAX
        .checked_shl(32 - u32::from(prefix_len))
        .unwrap_or(0)
}

fn mask_v6(prefix_len: u8) -> u128 {
    u128::MAX
        .checked_shl(128 - u32::from(prefix_len))
        .unwrap_or(0)
}
