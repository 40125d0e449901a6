//! Kinds of frames, as far as they determine the owner.
//!
//! The parsers are those of `stack::arrivals::demux` and check as much. A frame that a stack takes
//! for a segment must be one here too, or all members would answer it.

use wire::ethernet::{self, EtherType};
use wire::tcp::{self, Flags};
use wire::{Addr, FlowKey, WireError, ipv4, ipv6, protocol};

use crate::frame_unsafe::RxFrame;

/// Header bytes that are examined: Ethernet with one tag, longest IPv4 header, longest TCP header.
const HEAD_BYTES: usize = 18 + 60 + 60;
/// Offset of the flags in a TCP header.
const FLAGS_AT: usize = 13;
const ICMP_ECHO: u8 = 8;
const ICMPV6_ECHO: u8 = 128;

/// The kind of a frame.
pub enum Kind {
    /// A TCP segment; `local` is its destination.
    Tcp(FlowKey, Flags),
    /// Frames that every stack learns from: ARP, neighbour discovery, ICMP errors.
    ForAll,
    /// A frame that one stack answers or drops for all: echo requests, UDP, fragments, unknown and
    /// invalid packets.
    ForOne,
}

/// Determines the kind of a frame.
pub fn kind(frame: &RxFrame) -> Kind {
    let head: [u8; HEAD_BYTES] = frame.head();
    let there = frame.len().min(HEAD_BYTES);
    read(&head[..there], frame.len()).unwrap_or(Kind::ForOne)
}

fn read(bytes: &[u8], frame_len: usize) -> Result<Kind, WireError> {
    let (ethernet, network_at) = ethernet::Header::parse(bytes)?;
    // The frame belongs to another VLAN: no member takes it.
    if ethernet.vlan.is_some_and(|tci| tci & 0x0fff != 0) {
        return Ok(Kind::ForOne);
    }
    let (packet, packet_len) = (&bytes[network_at..], frame_len - network_at);
    let (local, remote, upper, at) = match ethernet.ethertype {
        EtherType::ARP => return Ok(Kind::ForAll),
        EtherType::IPV4 => {
            let header = ipv4::Header::parse(packet, packet_len)?;
            if header.is_fragment() {
                return Err(WireError::Fragment);
            }
            let (local, remote) = (Addr::v4(header.dst), Addr::v4(header.src));
            (local, remote, header.protocol, header.header_len.into())
        }
        EtherType::IPV6 => {
            let header = ipv6::Header::parse(packet, packet_len)?;
            let (upper, at) = ipv6::upper_layer(&header, packet)?;
            (Addr::v6(header.dst), Addr::v6(header.src), upper, at)
        }
        _ => return Ok(Kind::ForOne),
    };
    let body = packet.get(at..).unwrap_or(&[]);
    Ok(match (upper, body) {
        (protocol::TCP, _) => segment(local, remote, body)?,
        (protocol::ICMP, [ICMP_ECHO, ..]) => Kind::ForOne,
        (protocol::ICMPV6, [ICMPV6_ECHO, ..]) => Kind::ForOne,
        (protocol::ICMP | protocol::ICMPV6, _) => Kind::ForAll,
        _ => Kind::ForOne,
    })
}

fn segment(local: Addr, remote: Addr, header: &[u8]) -> Result<Kind, WireError> {
    let (Some((remote_port, local_port)), Some(flags)) = (tcp::ports(header), header.get(FLAGS_AT))
    else {
        return Err(WireError::Truncated);
    };
    let flow = FlowKey {
        local,
        remote,
        local_port,
        remote_port,
    };
    Ok(Kind::Tcp(flow, Flags(u16::from(*flags))))
}
