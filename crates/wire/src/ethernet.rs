//! Ethernet II frames with at most one 802.1Q tag.
//!
//! `stack` parses and builds the Ethernet header of every frame here, and `packetio` takes its MAC
//! addresses from here.

use crate::error::WireError;
use crate::field::{be16, bytes, put, put16};
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// Bytes of a header without a VLAN tag.
pub const HEADER_LEN: usize = 14;
/// Bytes of a header with a VLAN tag.
pub const VLAN_HEADER_LEN: usize = 18;

/// A hardware address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
    /// `00:00:00:00:00:00`, which no station has.
    pub const UNSPECIFIED: MacAddr = MacAddr([0; 6]);

    /// True if the address names a group, broadcast included.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// True if the address is [`MacAddr::BROADCAST`].
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        matches!(self.0, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }

    /// True if the address can be that of one station.
    #[inline]
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast() && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }

    /// The group address of an IPv4 multicast address, RFC 1112 section 6.4.
    #[inline]
    pub const fn multicast_v4(group: Ipv4Addr) -> MacAddr {
        let [_, b, c, d] = group.octets();
        MacAddr([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// The group address of an IPv6 multicast address, RFC 2464 section 7.
    #[inline]
    pub const fn multicast_v6(group: Ipv6Addr) -> MacAddr {
        let o = group.octets();
        MacAddr([0x33, 0x33, o[12], o[13], o[14], o[15]])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error for text that is not six pairs of hexadecimal digits with colons between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseMacAddrError;

impl fmt::Display for ParseMacAddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a MAC address has the form 02:00:00:00:00:01")
    }
}

impl core::error::Error for ParseMacAddrError {}

impl FromStr for MacAddr {
    type Err = ParseMacAddrError;

    fn from_str(text: &str) -> Result<MacAddr, ParseMacAddrError> {
        let mut mac = [0u8; 6];
        let mut pairs = text.split(':');
        for byte in &mut mac {
            let pair = pairs.next().ok_or(ParseMacAddrError)?;
            if pair.len() != 2 || !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(ParseMacAddrError);
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| ParseMacAddrError)?;
        }
        match pairs.next() {
            None => Ok(MacAddr(mac)),
            Some(_) => Err(ParseMacAddrError),
        }
    }
}

/// Values of [`Header::ethertype`] that this crate knows.
pub enum EtherType {}

impl EtherType {
    /// IPv4, RFC 894.
    pub const IPV4: u16 = 0x0800;
    /// ARP, RFC 826.
    pub const ARP: u16 = 0x0806;
    /// 802.1Q: a VLAN tag follows.
    pub const VLAN: u16 = 0x8100;
    /// IPv6, RFC 2464.
    pub const IPV6: u16 = 0x86dd;
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Header {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// The tag control information of an 802.1Q tag: priority (3 bits), drop eligible (1), VLAN
    /// (12).
    pub vlan: Option<u16>,
    /// Type of the payload: one of [`EtherType`], or an unknown value. A value below 0x600 is an
    /// 802.3 length; such payload is not parsed further.
    pub ethertype: u16,
}

impl Header {
    /// Parses the header; the second value is its length in bytes. Only one tag is removed: if a
    /// second one follows, `ethertype` is [`EtherType::VLAN`].
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(Header, usize), WireError> {
        let Some(header) = frame.first_chunk::<HEADER_LEN>() else {
            return Err(WireError::Truncated);
        };
        let untagged = Header {
            dst: MacAddr(bytes(header, 0)),
            src: MacAddr(bytes(header, 6)),
            vlan: None,
            ethertype: be16(header, 12),
        };
        if untagged.ethertype != EtherType::VLAN {
            return Ok((untagged, HEADER_LEN));
        }
        let Some(header) = frame.first_chunk::<VLAN_HEADER_LEN>() else {
            return Err(WireError::Truncated);
        };
        let tagged = Header {
            vlan: Some(be16(header, 14)),
            ethertype: be16(header, 16),
            ..untagged
        };
        Ok((tagged, VLAN_HEADER_LEN))
    }

    /// Writes the header; returns its length, or 0 if `out` is too short.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        match self.vlan {
            None => {
                let Some(header) = out.first_chunk_mut::<HEADER_LEN>() else {
                    return 0;
                };
                put(header, 0, &self.dst.0);
                put(header, 6, &self.src.0);
                put16(header, 12, self.ethertype);
                HEADER_LEN
            }
            Some(tci) => {
                let Some(header) = out.first_chunk_mut::<VLAN_HEADER_LEN>() else {
                    return 0;
                };
                put(header, 0, &self.dst.0);
                put(header, 6, &self.src.0);
                put16(header, 12, EtherType::VLAN);
                put16(header, 14, tci);
                put16(header, 16, self.ethertype);
                VLAN_HEADER_LEN
            }
        }
    }

    /// Bytes that [`Header::emit`] writes.
    #[inline]
    pub const fn header_len(&self) -> usize {
        match self.vlan {
            None => HEADER_LEN,
            Some(_) => VLAN_HEADER_LEN,
        }
    }
}

#[cfg(test)]
mod tests;
