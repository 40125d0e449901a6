//! ARP for IPv4 over Ethernet, RFC 826. Called by the neighbour cache of `stack`.

use crate::error::WireError;
use crate::ethernet::{EtherType, MacAddr};
use crate::field::{be16, be32, bytes, put, put16, put32};
use core::net::Ipv4Addr;

/// Bytes of an ARP packet.
pub const PACKET_LEN: usize = 28;

const HARDWARE_ETHERNET: u16 = 1;
const MAC_LEN: u8 = 6;
const IPV4_LEN: u8 = 4;

/// The operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// A request: who has `tpa`, tell `spa`. With `spa == tpa` it is an announcement.
    Request,
    /// `spa` is at `sha`.
    Reply,
}

/// An ARP packet, with RFC 826's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Request or reply.
    pub op: Operation,
    /// Sender's hardware address.
    pub sha: MacAddr,
    /// Sender's protocol address.
    pub spa: Ipv4Addr,
    /// Target's hardware address; without meaning in a request.
    pub tha: MacAddr,
    /// Target's protocol address.
    pub tpa: Ipv4Addr,
}

impl Repr {
    /// Parses a packet; what follows it (Ethernet's padding) is ignored.
    ///
    /// # Errors
    /// [`WireError::Truncated`]; [`WireError::Unsupported`] for other hardware, protocols or
    /// operations; [`WireError::BadAddress`] when the sender claims a group's hardware address.
    pub fn parse(packet: &[u8]) -> Result<Repr, WireError> {
        let Some(packet) = packet.first_chunk::<PACKET_LEN>() else {
            return Err(WireError::Truncated);
        };
        let is_ethernet = be16(packet, 0) == HARDWARE_ETHERNET && packet[4] == MAC_LEN;
        let is_ipv4 = be16(packet, 2) == EtherType::IPV4 && packet[5] == IPV4_LEN;
        if !is_ethernet || !is_ipv4 {
            return Err(WireError::Unsupported);
        }
        let op = match be16(packet, 6) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(WireError::Unsupported),
        };
        let sha = MacAddr(bytes(packet, 8));
        if sha.is_multicast() {
            return Err(WireError::BadAddress);
        }
        Ok(Repr {
            op,
            sha,
            spa: Ipv4Addr::from_bits(be32(packet, 14)),
            tha: MacAddr(bytes(packet, 18)),
            tpa: Ipv4Addr::from_bits(be32(packet, 24)),
        })
    }

    /// Writes the packet; returns its length, or 0 if `out` is too short.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let Some(packet) = out.first_chunk_mut::<PACKET_LEN>() else {
            return 0;
        };
        put16(packet, 0, HARDWARE_ETHERNET);
        put16(packet, 2, EtherType::IPV4);
        packet[4] = MAC_LEN;
        packet[5] = IPV4_LEN;
        put16(
            packet,
            6,
            match self.op {
                Operation::Request => 1,
                Operation::Reply => 2,
            },
        );
        put(packet, 8, &self.sha.0);
        put32(packet, 14, self.spa.to_bits());
        put(packet, 18, &self.tha.0);
        put32(packet, 24, self.tpa.to_bits());
        PACKET_LEN
    }
}

#[cfg(test)]
mod tests;
