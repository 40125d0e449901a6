//! Changes that the network and its liars make to the bytes of a frame.

use std::net::IpAddr;

use wire::ethernet::{self, EtherType};
use wire::{Addr, Ecn, MacAddr, arp, checksum, icmpv4, icmpv6, ipv4, ipv6, protocol, tcp};

const IP: usize = ethernet::HEADER_LEN;
const V4_TTL: usize = IP + 8;
const V4_CHECKSUM: usize = IP + ipv4::CHECKSUM_OFFSET;
const V6_HOP_LIMIT: usize = IP + 7;
/// The two ECN bits. Both set: congestion experienced.
const ECN_MASK: u8 = 3;

/// The parts of a frame that routers and observers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// An ARP request or neighbour solicitation.
    Question {
        /// The address whose owner is sought.
        asked: IpAddr,
    },
    /// An IP packet with a complete header.
    Ip {
        /// Address of the sender.
        src: IpAddr,
        /// Address of the destination.
        dst: IpAddr,
        /// Number of the transport protocol.
        protocol: u8,
        /// Offset of the payload in the frame.
        payload_at: usize,
        /// Length of the packet in bytes, its header included.
        len: usize,
    },
}

/// A router's decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forward {
    Onward,
    OutOfHops,
}

/// The destination MAC address of a frame.
pub(super) fn destination(frame: &[u8]) -> Option<MacAddr> {
    Some(ethernet::Header::parse(frame).ok()?.0.dst)
}

/// Whether the frame is ARP. Like Ethernet, ARP has no checksum that could reveal a flipped bit.
pub(super) fn is_arp(frame: &[u8]) -> bool {
    ethernet::Header::parse(frame).is_ok_and(|(header, _)| header.ethertype == EtherType::ARP)
}

/// Flips one bit behind the first `from` bytes.
pub(super) fn flip_bit(frame: &mut [u8], from: usize, dice: u64) {
    if frame.len() > from {
        let bit = dice as usize % ((frame.len() - from) * 8);
        frame[from + bit / 8] ^= 1 << (bit % 8);
    }
}

/// The view of a frame; `None` for one that is dropped.
#[must_use]
pub fn view(frame: &[u8]) -> Option<View> {
    let (header, at) = ethernet::Header::parse(frame).ok()?;
    let rest = &frame[at..];
    match header.ethertype {
        EtherType::ARP => {
            let arp = arp::Repr::parse(rest).ok()?;
            (arp.op == arp::Operation::Request).then_some(View::Question {
                asked: arp.tpa.into(),
            })
        }
        EtherType::IPV4 => {
            let ip = ipv4::Header::parse(rest, rest.len()).ok()?;
            Some(View::Ip {
                src: ip.src.into(),
                dst: ip.dst.into(),
                protocol: ip.protocol,
                payload_at: at + usize::from(ip.header_len),
                len: usize::from(ip.total_len),
            })
        }
        EtherType::IPV6 => view_v6(rest, at),
        _ => None,
    }
}

fn view_v6(rest: &[u8], at: usize) -> Option<View> {
    let ip = ipv6::Header::parse(rest, rest.len()).ok()?;
    let len = ipv6::HEADER_LEN + usize::from(ip.payload_len);
    if ip.next_header == protocol::ICMPV6
        && let Some(asked) = solicited(&ip, &rest[..len])
    {
        return Some(View::Question { asked });
    }
    Some(View::Ip {
        src: ip.src.into(),
        dst: ip.dst.into(),
        protocol: ip.next_header,
        payload_at: at + ipv6::HEADER_LEN,
        len,
    })
}

fn solicited(ip: &ipv6::Header, packet: &[u8]) -> Option<IpAddr> {
    let body = &packet[ipv6::HEADER_LEN..];
    match icmpv6::Message::parse(body, ip.src, ip.dst, ip.hop_limit).ok()? {
        icmpv6::Message::NeighborSolicitation { target, .. } => Some(target.into()),
        _ => None,
    }
}

/// The ECN codepoint of a frame in which [`view`] found an IP packet.
#[must_use]
pub fn codepoint(frame: &[u8]) -> Ecn {
    match (frame.get(IP), frame.get(IP + 1)) {
        (Some(first), Some(second)) if first >> 4 == 6 => Ecn::of(second >> 4),
        (Some(_), Some(second)) => Ecn::of(*second),
        _ => Ecn::NotEct,
    }
}

/// Marks a packet as having experienced congestion, if its ends know ECN.
pub(super) fn mark_congestion(frame: &mut [u8]) {
    let Ok((header, _)) = ethernet::Header::parse(frame) else {
        return;
    };
    match header.ethertype {
        EtherType::IPV4 if frame.len() >= IP + ipv4::HEADER_LEN => {
            let old = u16::from_be_bytes([frame[IP], frame[IP + 1]]);
            if frame[IP + 1] & ECN_MASK != 0 {
                frame[IP + 1] |= ECN_MASK;
                let new = u16::from_be_bytes([frame[IP], frame[IP + 1]]);
                adjust_v4(frame, old, new);
            }
        }
        // The traffic class ends in the upper half of byte 1, so the ECN bits are bits 4 and 5.
        EtherType::IPV6
            if frame.len() >= IP + ipv6::HEADER_LEN && frame[IP + 1] & ECN_MASK << 4 != 0 =>
        {
            frame[IP + 1] |= ECN_MASK << 4;
        }
        _ => {}
    }
}

fn adjust_v4(frame: &mut [u8], old: u16, new: u16) {
    let sum = u16::from_be_bytes([frame[V4_CHECKSUM], frame[V4_CHECKSUM + 1]]);
    let sum = checksum::adjust_u16(sum, old, new);
    frame[V4_CHECKSUM..V4_CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Decrements the hop count and sets new MAC addresses. [`view`] must have found an IP packet.
pub(super) fn forward(frame: &mut [u8], from: MacAddr, to: MacAddr) -> Forward {
    let is_v4 = frame[IP] >> 4 == 4;
    let hops = if is_v4 { V4_TTL } else { V6_HOP_LIMIT };
    if frame[hops] <= 1 {
        return Forward::OutOfHops;
    }
    let old = u16::from_be_bytes([frame[V4_TTL], frame[V4_TTL + 1]]);
    frame[hops] -= 1;
    if is_v4 {
        let new = u16::from_be_bytes([frame[V4_TTL], frame[V4_TTL + 1]]);
        adjust_v4(frame, old, new);
    }
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&from.0);
    Forward::Onward
}

/// The answer that gives `mac` to the sender of an ARP request or neighbour solicitation.
pub(super) fn answer_question(frame: &[u8], mac: MacAddr) -> Option<Vec<u8>> {
    let (header, at) = ethernet::Header::parse(frame).ok()?;
    let rest = &frame[at..];
    if header.ethertype == EtherType::ARP {
        let asked = arp::Repr::parse(rest).ok()?;
        let reply = arp::Repr {
            op: arp::Operation::Reply,
            sha: mac,
            spa: asked.tpa,
            tha: asked.sha,
            tpa: asked.spa,
        };
        let mut out = ethernet_frame(mac, header.src, EtherType::ARP, arp::PACKET_LEN);
        reply.emit(&mut out[IP..]);
        return Some(out);
    }
    let ip = ipv6::Header::parse(rest, rest.len()).ok()?;
    let IpAddr::V6(target) = solicited(&ip, rest)? else {
        return None;
    };
    let flags = icmpv6::NeighborFlags {
        router: true,
        solicited: true,
        overrides: true,
    };
    let message = icmpv6::Message::NeighborAdvertisement {
        flags,
        target,
        target_lladdr: Some(mac),
    };
    let packet = icmp_v6(&message, target, ip.src, 255);
    Some(framed(mac, header.src, EtherType::IPV6, &packet))
}

/// The ICMP error for a packet that is too big. It goes back on the link on which the packet came.
pub(super) fn too_big(frame: &[u8], source: IpAddr, mtu: usize) -> Option<Vec<u8>> {
    let (header, at) = ethernet::Header::parse(frame).ok()?;
    let View::Ip { src, .. } = view(frame)? else {
        return None;
    };
    let packet = icmp_error(source, src, &frame[at..], Lament::TooBig(mtu as u32))?;
    Some(framed(header.dst, header.src, header.ethertype, &packet))
}

/// The reason that an ICMP error gives.
#[derive(Clone, Copy, Debug)]
pub enum Lament {
    /// The packet exceeds the MTU, which is given in bytes.
    TooBig(u32),
    /// The port is unreachable.
    PortUnreachable,
    /// The host is unreachable.
    HostUnreachable,
}

/// An IP packet with an ICMP error about the packet `quote`. `None` if the addresses are of
/// different families.
#[must_use]
pub fn icmp_error(from: IpAddr, to: IpAddr, quote: &[u8], lament: Lament) -> Option<Vec<u8>> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let quote = &quote[..quote.len().min(icmpv4::QUOTE_LEN_MAX)];
            let (code, next_hop_mtu) = match lament {
                Lament::TooBig(mtu) => (icmpv4::unreachable::FRAGMENTATION_NEEDED, mtu as u16),
                Lament::PortUnreachable => (icmpv4::unreachable::PORT, 0),
                Lament::HostUnreachable => (icmpv4::unreachable::HOST, 0),
            };
            let message = icmpv4::Message::DestinationUnreachable {
                code,
                next_hop_mtu,
                quote,
            };
            let len = ipv4::HEADER_LEN + message.emit_len();
            let mut out = vec![0; len];
            let ip = ipv4::Header {
                total_len: len as u16,
                protocol: protocol::ICMP,
                src: from,
                dst: to,
                ..ipv4::Header::default()
            };
            let at = ip.emit(&mut out);
            message.emit(&mut out[at..]);
            Some(out)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let quote = &quote[..quote.len().min(icmpv6::QUOTE_LEN_MAX)];
            let message = match lament {
                Lament::TooBig(mtu) => icmpv6::Message::PacketTooBig { mtu, quote },
                Lament::PortUnreachable => icmpv6::Message::DestinationUnreachable {
                    code: icmpv6::unreachable::PORT,
                    quote,
                },
                Lament::HostUnreachable => icmpv6::Message::DestinationUnreachable {
                    code: icmpv6::unreachable::ADDRESS,
                    quote,
                },
            };
            Some(icmp_v6(&message, from, to, 64))
        }
        _ => None,
    }
}

fn icmp_v6(
    message: &icmpv6::Message<'_>,
    src: std::net::Ipv6Addr,
    dst: std::net::Ipv6Addr,
    hop_limit: u8,
) -> Vec<u8> {
    let len = message.emit_len();
    let mut out = vec![0; ipv6::HEADER_LEN + len];
    let ip = ipv6::Header {
        payload_len: len as u16,
        next_header: protocol::ICMPV6,
        hop_limit,
        src,
        dst,
        ..ipv6::Header::default()
    };
    let at = ip.emit(&mut out);
    message.emit(&mut out[at..], src, dst);
    out
}

/// An IP packet with a TCP segment, and correct checksums.
#[must_use]
pub fn tcp_packet(from: IpAddr, to: IpAddr, header: &tcp::Header, payload: &[u8]) -> Vec<u8> {
    let segment_len = header.header_len() + payload.len();
    let mut out = match (from, to) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut out = vec![0; ipv4::HEADER_LEN];
            let ip = ipv4::Header {
                total_len: (ipv4::HEADER_LEN + segment_len) as u16,
                protocol: protocol::TCP,
                src,
                dst,
                ..ipv4::Header::default()
            };
            ip.emit(&mut out);
            out
        }
        (src, dst) => {
            let mut out = vec![0; ipv6::HEADER_LEN];
            let ip = ipv6::Header {
                payload_len: segment_len as u16,
                next_header: protocol::TCP,
                src: Addr::from(src).to_v6(),
                dst: Addr::from(dst).to_v6(),
                ..ipv6::Header::default()
            };
            ip.emit(&mut out);
            out
        }
    };
    let at = out.len();
    out.resize(at + header.header_len(), 0);
    header.emit(&mut out[at..]);
    out.extend_from_slice(payload);
    let mut sum =
        checksum::pseudo_header(from.into(), to.into(), protocol::TCP, segment_len as u32);
    let field = at + tcp::CHECKSUM_OFFSET;
    out[field..field + 2].fill(0);
    sum.add_bytes(&out[at..]);
    out[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
    out
}

/// An Ethernet frame with this packet.
#[must_use]
pub fn framed(src: MacAddr, dst: MacAddr, ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut out = ethernet_frame(src, dst, ethertype, 0);
    out.extend_from_slice(packet);
    out
}

fn ethernet_frame(src: MacAddr, dst: MacAddr, ethertype: u16, payload_len: usize) -> Vec<u8> {
    let mut out = vec![0; IP + payload_len];
    let header = ethernet::Header {
        dst,
        src,
        vlan: None,
        ethertype,
    };
    header.emit(&mut out);
    out
}
