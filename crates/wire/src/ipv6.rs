//! The IPv6 header and the extension headers that a host walks to find TCP, RFC 8200.
//!
//! `stack` parses the fixed header of each IPv6 frame. It tests `next_header` first, so the fast
//! path walks no extension headers.

use crate::error::WireError;
use crate::field::{be16, be32, bytes, put, put16, put32};
use crate::limits::{EXTENSION_HEADERS_MAX, EXTENSION_OPTIONS_MAX};
use core::net::Ipv6Addr;

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

const OPTION_PAD1: u8 = 0;
/// The bits of an option's type that tell a node what to do if it does not know the option; zero is
/// "skip" (RFC 8200 section 4.2).
const OPTION_ACTION: u8 = 0xc0;

/// An IPv6 header. The default is for an empty packet without addresses; callers set the fields
/// that differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// DSCP (upper six bits) and ECN (lower two).
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes behind the fixed header, extension headers included.
    pub payload_len: u16,
    /// Next header: a protocol (see [`crate::protocol`]) or an extension header.
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

impl Default for Header {
    fn default() -> Header {
        Header {
            traffic_class: 0,
            flow_label: 0,
            payload_len: 0,
            next_header: crate::protocol::IPV6_NO_NEXT_HEADER,
            hop_limit: 64,
            src: Ipv6Addr::UNSPECIFIED,
            dst: Ipv6Addr::UNSPECIFIED,
        }
    }
}

impl Header {
    /// Parses the fixed header. `packet` holds at least the header. `frame_payload_len` is the
    /// number of bytes in the frame from the header on, padding included.
    ///
    /// # Errors
    /// [`WireError::Truncated`], [`WireError::BadVersion`], [`WireError::BadLength`] when the
    /// packet is longer than its frame.
    #[inline]
    pub fn parse(packet: &[u8], frame_payload_len: usize) -> Result<Header, WireError> {
        let Some(fixed) = packet.first_chunk::<HEADER_LEN>() else {
            return Err(WireError::Truncated);
        };
        let first = be32(fixed, 0);
        if first >> 28 != 6 {
            return Err(WireError::BadVersion);
        }
        let payload_len = be16(fixed, 4);
        if HEADER_LEN + usize::from(payload_len) > frame_payload_len {
            return Err(WireError::BadLength);
        }
        Ok(Header {
            traffic_class: (first >> 20) as u8,
            flow_label: first & 0xf_ffff,
            payload_len,
            next_header: fixed[6],
            hop_limit: fixed[7],
            src: Ipv6Addr::from_octets(bytes(fixed, 8)),
            dst: Ipv6Addr::from_octets(bytes(fixed, 24)),
        })
    }

    /// Writes the fixed header; returns 40, or 0 if `out` is too short.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let Some(fixed) = out.first_chunk_mut::<HEADER_LEN>() else {
            return 0;
        };
        let first =
            (6 << 28) | (u32::from(self.traffic_class) << 20) | (self.flow_label & 0xf_ffff);
        put32(fixed, 0, first);
        put16(fixed, 4, self.payload_len);
        fixed[6] = self.next_header;
        fixed[7] = self.hop_limit;
        put(fixed, 8, &self.src.octets());
        put(fixed, 24, &self.dst.octets());
        HEADER_LEN
    }
}

/// Finds the upper layer of a packet: its protocol, and its offset from the start of the fixed
/// header. `packet` starts with the fixed header that `header` was parsed from, and holds at least
/// the extension headers. The upper layer has `HEADER_LEN + payload_len - offset` bytes.
///
/// Walks over hop-by-hop options, destination options, and routing headers without segments left.
/// An unknown protocol ends the walk and is returned like a known one.
///
/// # Errors
/// [`WireError::Fragment`], [`WireError::BadOption`], [`WireError::TooManyHeaders`].
/// [`WireError::Unsupported`] for routing headers of type 0 (RFC 5095) or with segments left, and
/// for an unknown option that asks to be dropped (RFC 8200 section 4.2). [`WireError::BadLength`]
/// when a header runs past the packet, [`WireError::Truncated`] when it runs past the bytes given.
#[inline]
pub fn upper_layer(header: &Header, packet: &[u8]) -> Result<(u8, usize), WireError> {
    if !is_extension(header.next_header) {
        return Ok((header.next_header, HEADER_LEN));
    }
    walk(header, packet)
}

#[inline]
const fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS
    )
}

#[cold]
fn walk(header: &Header, packet: &[u8]) -> Result<(u8, usize), WireError> {
    let packet_len = HEADER_LEN + usize::from(header.payload_len);
    let (mut kind, mut at) = (header.next_header, HEADER_LEN);
    for place in 0..EXTENSION_HEADERS_MAX {
        if !is_extension(kind) {
            return Ok((kind, at));
        }
        if kind == FRAGMENT {
            return Err(WireError::Fragment);
        }
        // RFC 8200 section 4.1: hop-by-hop options stand first or not at all.
        if kind == HOP_BY_HOP && place != 0 {
            return Err(WireError::Unsupported);
        }
        if at + 8 > packet_len {
            return Err(WireError::BadLength);
        }
        let (&[next, len8], _) = packet
            .get(at..)
            .and_then(<[u8]>::split_first_chunk)
            .ok_or(WireError::Truncated)?;
        let end = at + 8 + usize::from(len8) * 8;
        if end > packet_len {
            return Err(WireError::BadLength);
        }
        let body = packet.get(at + 2..end).ok_or(WireError::Truncated)?;
        match kind {
            ROUTING => refuse_route(body)?,
            _ => walk_options(body)?,
        }
        (kind, at) = (next, end);
    }
    if is_extension(kind) {
        return Err(WireError::TooManyHeaders);
    }
    Ok((kind, at))
}

/// Refuses a routing header of type 0 or with segments left. `body`: the header from its type on.
fn refuse_route(body: &[u8]) -> Result<(), WireError> {
    match body {
        [0, ..] => Err(WireError::Unsupported),
        [_, 0, ..] => Ok(()),
        _ => Err(WireError::Unsupported),
    }
}

/// Walks the options of a hop-by-hop or destination options header, which `body` holds.
fn walk_options(mut body: &[u8]) -> Result<(), WireError> {
    let mut options = 0;
    while let Some((&kind, rest)) = body.split_first() {
        if kind == OPTION_PAD1 {
            body = rest;
            continue;
        }
        if kind & OPTION_ACTION != 0 {
            return Err(WireError::Unsupported);
        }
        options += 1;
        if options > EXTENSION_OPTIONS_MAX {
            return Err(WireError::TooManyHeaders);
        }
        let (&len, data) = rest.split_first().ok_or(WireError::BadOption)?;
        body = data.get(usize::from(len)..).ok_or(WireError::BadOption)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
