//! One address type for both families: 16 bytes, IPv4 in its mapped form (RFC 4291 section
//! 2.5.5.2).
//!
//! Flow keys, neighbour and route tables use this type, so that a table has one kind of entry and a
//! comparison has no branch.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4 or IPv6 address. The default is `::`.
///
/// ```
/// use std::net::{IpAddr, Ipv4Addr};
/// use wire::Addr;
/// let a = Addr::from(Ipv4Addr::new(10, 0, 0, 1));
/// assert!(a.is_v4());
/// assert_eq!(a.to_ip(), "10.0.0.1".parse::<IpAddr>().unwrap());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Addr([u8; 16]);

/// The upper 96 bits before the four bytes of a mapped IPv4 address.
const V4_PREFIX: u128 = 0xffff;
/// The prefix as it lies in memory, so that a comparison needs no byte swap. `V4_MASK_RAW` selects
/// its bytes.
const V4_PREFIX_RAW: u128 = (V4_PREFIX << 32).to_be();
const V4_MASK_RAW: u128 = (u128::MAX << 32).to_be();

impl Addr {
    /// The unspecified IPv6 address, `::`.
    pub const UNSPECIFIED_V6: Addr = Addr([0; 16]);
    /// The unspecified IPv4 address, `0.0.0.0`, in mapped form. It is not equal to `::`.
    pub const UNSPECIFIED_V4: Addr = Addr::v4(Ipv4Addr::UNSPECIFIED);

    /// From its 16 bytes; IPv4 in mapped form.
    #[inline]
    pub const fn from_octets(octets: [u8; 16]) -> Addr {
        Addr(octets)
    }

    /// From an IPv4 address.
    #[inline]
    pub const fn v4(addr: Ipv4Addr) -> Addr {
        Addr(((V4_PREFIX << 32) | addr.to_bits() as u128).to_be_bytes())
    }

    /// From an IPv6 address. A mapped one becomes an IPv4 address.
    #[inline]
    pub const fn v6(addr: Ipv6Addr) -> Addr {
        Addr(addr.octets())
    }

    /// The 16 bytes.
    #[inline]
    pub const fn octets(&self) -> &[u8; 16] {
        &self.0
    }

    /// The address as a standard library type.
    #[inline]
    pub const fn to_ip(self) -> IpAddr {
        match self.to_v4() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(self.to_v6()),
        }
    }

    /// The IPv4 address, or `None` for an IPv6 address.
    #[inline]
    pub const fn to_v4(self) -> Option<Ipv4Addr> {
        if self.is_v4() {
            Some(Ipv4Addr::from_bits(self.bits() as u32))
        } else {
            None
        }
    }

    /// The address in IPv6 form: mapped (RFC 4291) if it is an IPv4 address.
    #[inline]
    pub const fn to_v6(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.bits())
    }

    /// The address as two words in the machine's byte order, for hashing.
    #[inline]
    pub(crate) const fn words(&self) -> [u64; 2] {
        let bits = u128::from_ne_bytes(self.0);
        [bits as u64, (bits >> 64) as u64]
    }

    /// True if it is an IPv4 address.
    #[inline]
    pub const fn is_v4(self) -> bool {
        u128::from_ne_bytes(self.0) & V4_MASK_RAW == V4_PREFIX_RAW
    }

    /// True if it is `0.0.0.0` or `::`.
    #[inline]
    pub const fn is_unspecified(self) -> bool {
        let bits = self.bits();
        bits == 0 || bits == V4_PREFIX << 32
    }

    /// True if it is a multicast address: `224.0.0.0/4` or `ff00::/8`.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        match self.to_v4() {
            Some(v4) => v4.is_multicast(),
            None => self.0[0] == 0xff,
        }
    }

    /// True if it is `127.0.0.0/8` or `::1`.
    #[inline]
    pub const fn is_loopback(self) -> bool {
        match self.to_v4() {
            Some(v4) => v4.is_loopback(),
            None => self.bits() == 1,
        }
    }

    /// The address as a number, first byte most significant. A prefix match shifts it.
    #[inline]
    pub const fn bits(self) -> u128 {
        u128::from_be_bytes(self.0)
    }
}

impl From<Ipv4Addr> for Addr {
    #[inline]
    fn from(addr: Ipv4Addr) -> Addr {
        Addr::v4(addr)
    }
}

impl From<Ipv6Addr> for Addr {
    #[inline]
    fn from(addr: Ipv6Addr) -> Addr {
        Addr::v6(addr)
    }
}

impl From<IpAddr> for Addr {
    #[inline]
    fn from(addr: IpAddr) -> Addr {
        match addr {
            IpAddr::V4(v4) => Addr::v4(v4),
            IpAddr::V6(v6) => Addr::v6(v6),
        }
    }
}

impl From<Addr> for IpAddr {
    #[inline]
    fn from(addr: Addr) -> IpAddr {
        addr.to_ip()
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_ip(), f)
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_ip(), f)
    }
}

#[cfg(test)]
mod tests;
