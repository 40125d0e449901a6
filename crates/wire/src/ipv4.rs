//! The IPv4 header, RFC 791. On the data path: `stack` parses it in each frame that arrives and
//! emits it for each packet that leaves.

use crate::checksum;
use crate::error::WireError;
use crate::field::{be16, be32, bytes, put, put16, put32};
use core::net::Ipv4Addr;

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Offset of the checksum in the header.
pub const CHECKSUM_OFFSET: usize = 10;

const VERSION_AND_IHL_PLAIN: u8 = 0x45;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_LOOSE_SOURCE_ROUTE: u8 = 131;
const OPTION_STRICT_SOURCE_ROUTE: u8 = 137;

/// An IPv4 header. The default is for an empty packet without addresses; callers set the fields
/// that differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// DSCP (upper six bits) and ECN (lower two), RFC 2474 and RFC 3168.
    pub dscp_ecn: u8,
    /// Bytes of header and payload.
    pub total_len: u16,
    /// Identification; only fragments need it (RFC 6864).
    pub ident: u16,
    /// The packet may not be fragmented.
    pub dont_fragment: bool,
    /// Further fragments follow.
    pub more_fragments: bool,
    /// Offset of this fragment in the packet, in units of 8 bytes; at most 0x1fff.
    pub fragment_offset: u16,
    /// Hops left.
    pub ttl: u8,
    /// Protocol of the payload, see [`crate::protocol`].
    pub protocol: u8,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Bytes of header, 20 to 60. [`Header::emit`] always writes 20.
    pub header_len: u8,
}

impl Default for Header {
    fn default() -> Header {
        Header {
            dscp_ecn: 0,
            total_len: HEADER_LEN as u16,
            ident: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: 0,
            src: Ipv4Addr::UNSPECIFIED,
            dst: Ipv4Addr::UNSPECIFIED,
            header_len: HEADER_LEN as u8,
        }
    }
}

impl Header {
    /// Parses and verifies a header: version, lengths, header checksum. `packet` holds at least the
    /// header; a local copy of the frame's start is enough. `frame_payload_len` is the number of
    /// bytes in the frame from the header on, padding included. The packet's length is checked
    /// against it.
    ///
    /// Options are skipped, see [`Header::has_options`]. The caller decides whether a fragment is
    /// acceptable, see [`Header::is_fragment`].
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::BadVersion`], [`WireError::BadLength`],
    /// [`WireError::BadChecksum`]; [`WireError::BadOption`] for malformed options,
    /// [`WireError::Unsupported`] for source routing.
    #[inline]
    pub fn parse(packet: &[u8], frame_payload_len: usize) -> Result<Header, WireError> {
        let Some(fixed) = packet.first_chunk::<HEADER_LEN>() else {
            return Err(WireError::Truncated);
        };
        if fixed[0] != VERSION_AND_IHL_PLAIN {
            return parse_with_options(packet, fixed, frame_payload_len);
        }
        // Valid sum: all ones, which is the same in either byte order.
        if sum_fixed(fixed) != 0xffff {
            return Err(WireError::BadChecksum);
        }
        Header::fields(fixed).checked(frame_payload_len)
    }

    /// Parses the header that an ICMP error quotes. The quote may end behind the header, and some
    /// routers leave its checksum wrong, so neither length nor checksum is verified.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::BadVersion`], [`WireError::BadLength`].
    pub fn parse_quoted(packet: &[u8]) -> Result<Header, WireError> {
        let Some(fixed) = packet.first_chunk::<HEADER_LEN>() else {
            return Err(WireError::Truncated);
        };
        header_len(fixed)?;
        Header::fields(fixed).checked(usize::MAX)
    }

    /// Writes a header of 20 bytes with its checksum; returns 20, or 0 if `out` is too short.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let Some(fixed) = out.first_chunk_mut::<HEADER_LEN>() else {
            return 0;
        };
        let flags_and_offset = (u16::from(self.dont_fragment) * DONT_FRAGMENT)
            | (u16::from(self.more_fragments) * MORE_FRAGMENTS)
            | (self.fragment_offset & OFFSET_MASK);
        fixed[0] = VERSION_AND_IHL_PLAIN;
        fixed[1] = self.dscp_ecn;
        put16(fixed, 2, self.total_len);
        put16(fixed, 4, self.ident);
        put16(fixed, 6, flags_and_offset);
        fixed[8] = self.ttl;
        fixed[9] = self.protocol;
        put16(fixed, CHECKSUM_OFFSET, 0);
        put32(fixed, 12, self.src.to_bits());
        put32(fixed, 16, self.dst.to_bits());
        let checksum = !sum_fixed(fixed);
        put(fixed, CHECKSUM_OFFSET, &checksum.to_ne_bytes());
        HEADER_LEN
    }

    /// Bytes behind the header.
    #[inline]
    pub const fn payload_len(&self) -> usize {
        (self.total_len as usize).saturating_sub(self.header_len as usize)
    }

    /// True if the header carries options, which [`Header::parse`] skipped.
    #[inline]
    pub const fn has_options(&self) -> bool {
        self.header_len as usize > HEADER_LEN
    }

    /// True if this is a fragment of a packet.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    #[inline(always)]
    fn fields(fixed: &[u8; HEADER_LEN]) -> Header {
        let flags_and_offset = be16(fixed, 6);
        Header {
            dscp_ecn: fixed[1],
            total_len: be16(fixed, 2),
            ident: be16(fixed, 4),
            dont_fragment: flags_and_offset & DONT_FRAGMENT != 0,
            more_fragments: flags_and_offset & MORE_FRAGMENTS != 0,
            fragment_offset: flags_and_offset & OFFSET_MASK,
            ttl: fixed[8],
            protocol: fixed[9],
            src: Ipv4Addr::from_bits(be32(fixed, 12)),
            dst: Ipv4Addr::from_bits(be32(fixed, 16)),
            header_len: (fixed[0] & 0x0f) * 4,
        }
    }

    #[inline(always)]
    fn checked(self, frame_payload_len: usize) -> Result<Header, WireError> {
        let total_len = usize::from(self.total_len);
        if total_len < usize::from(self.header_len) || total_len > frame_payload_len {
            return Err(WireError::BadLength);
        }
        Ok(self)
    }
}

#[cold]
fn parse_with_options(
    packet: &[u8],
    fixed: &[u8; HEADER_LEN],
    frame_payload_len: usize,
) -> Result<Header, WireError> {
    let header_len = header_len(fixed)?;
    let header = packet.get(..header_len).ok_or(WireError::Truncated)?;
    if !checksum::of(header).is_valid() {
        return Err(WireError::BadChecksum);
    }
    let parsed = Header::fields(fixed).checked(frame_payload_len)?;
    refuse_source_route(&header[HEADER_LEN..])?;
    Ok(parsed)
}

fn header_len(fixed: &[u8; HEADER_LEN]) -> Result<usize, WireError> {
    if fixed[0] >> 4 != 4 {
        return Err(WireError::BadVersion);
    }
    let header_len = usize::from(fixed[0] & 0x0f) * 4;
    if header_len < HEADER_LEN {
        return Err(WireError::BadLength);
    }
    Ok(header_len)
}

/// Refuses source routes, as RFC 7126 sections 4.3 and 4.4 advise.
fn refuse_source_route(mut options: &[u8]) -> Result<(), WireError> {
    while let Some((&kind, rest)) = options.split_first() {
        if kind == OPTION_END {
            break;
        }
        if kind == OPTION_NOP {
            options = rest;
            continue;
        }
        if matches!(kind, OPTION_LOOSE_SOURCE_ROUTE | OPTION_STRICT_SOURCE_ROUTE) {
            return Err(WireError::Unsupported);
        }
        let len = usize::from(*rest.first().ok_or(WireError::BadOption)?);
        if len < 2 {
            return Err(WireError::BadOption);
        }
        options = options.get(len..).ok_or(WireError::BadOption)?;
    }
    Ok(())
}

/// The folded sum over a header without options, in the machine's byte order: five words, without a
/// loop.
#[inline(always)]
fn sum_fixed(fixed: &[u8; HEADER_LEN]) -> u16 {
    let word = |at| u64::from(u32::from_ne_bytes(bytes(fixed, at)));
    // The sum has at most 35 bits. A one's complement sum does not depend on how its words are
    // grouped.
    checksum::fold(word(0) + word(4) + word(8) + word(12) + word(16))
}

#[cfg(test)]
mod tests;
