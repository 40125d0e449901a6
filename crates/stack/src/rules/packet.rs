//! The fields of a packet that rules compare.

use wire::{Addr, FlowKey, ipv4, ipv6, protocol};

/// Bytes of a UDP header that hold the ports.
const PORT_BYTES: usize = 4;

/// A packet without a known flow, as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RulePacket {
    pub source: Addr,
    pub destination: Addr,
    /// Number of the protocol behind the IP header and its extensions.
    pub protocol: u8,
    /// Ports of sender and receiver; `None` without TCP or UDP.
    pub ports: Option<(u16, u16)>,
    /// Index of the stack's port on which the packet arrived.
    pub port: u8,
    /// Bytes of the packet from the IP header on.
    pub bytes: u32,
    /// True if the packet counts against rate limits: a SYN without ACK, or not TCP.
    pub is_counted: bool,
}

impl RulePacket {
    /// A TCP segment of flow `key`. `bytes`: length of the packet from the IP header on.
    pub fn tcp(key: &FlowKey, port: u8, bytes: u32, is_syn: bool) -> Self {
        Self {
            source: key.remote,
            destination: key.local,
            protocol: protocol::TCP,
            ports: Some((key.remote_port, key.local_port)),
            port,
            bytes,
            is_counted: is_syn,
        }
    }

    /// An IPv4 packet that is not TCP. `None`: rules do not judge it, because it is malformed or an
    /// ICMP error.
    pub fn other_v4(packet: &[u8], port: u8) -> Option<Self> {
        let header = ipv4::Header::parse(packet, packet.len()).ok()?;
        let body = packet.get(usize::from(header.header_len)..)?;
        if header.protocol == protocol::ICMP && is_error_v4(*body.first()?) {
            return None;
        }
        Some(Self {
            source: Addr::v4(header.src),
            destination: Addr::v4(header.dst),
            protocol: header.protocol,
            ports: ports(header.protocol, body),
            port,
            bytes: u32::from(header.total_len),
            is_counted: true,
        })
    }

    /// An IPv6 packet that is not TCP. `None`: rules do not judge it, because it is malformed, an
    /// ICMP error or neighbour discovery.
    pub fn other_v6(packet: &[u8], port: u8) -> Option<Self> {
        let header = ipv6::Header::parse(packet, packet.len()).ok()?;
        let (upper, at) = ipv6::upper_layer(&header, packet).ok()?;
        let body = packet.get(at..)?;
        if upper == protocol::ICMPV6 && is_exempt_v6(*body.first()?) {
            return None;
        }
        Some(Self {
            source: Addr::v6(header.src),
            destination: Addr::v6(header.dst),
            protocol: upper,
            ports: ports(upper, body),
            port,
            bytes: ipv6::HEADER_LEN as u32 + u32::from(header.payload_len),
            is_counted: true,
        })
    }
}

/// True for destination unreachable, time exceeded and parameter problem (RFC 792).
fn is_error_v4(kind: u8) -> bool {
    matches!(kind, 3 | 11 | 12)
}

/// True for errors, with types below 128 (RFC 4443 section 2.1), and neighbour discovery, types 133
/// to 137 (RFC 4861 section 4).
fn is_exempt_v6(kind: u8) -> bool {
    kind < 128 || (133..=137).contains(&kind)
}

fn ports(upper: u8, body: &[u8]) -> Option<(u16, u16)> {
    if upper != protocol::UDP {
        return None;
    }
    let bytes = body.get(..PORT_BYTES)?;
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    Some((word(0), word(2)))
}
