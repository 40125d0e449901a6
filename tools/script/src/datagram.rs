//! IP packets as bytes: parsed when the stack sent them, built when a script injects them.
//!
//! Only the checksum is shared with `wire`. A mistake in a common parser would hide itself.

use std::fmt::Write as _;
use std::net::IpAddr;

use wire::{Addr, checksum, protocol};

use super::ast::flag;
use super::option;

/// An IP packet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Datagram {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub tos: u8,
    pub ttl: u8,
    pub flow_label: u32,
    pub body: Content,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Content {
    Tcp(Segment),
    /// ICMP or ICMPv6 by the packet's family, from the type byte on; the checksum bytes are zero.
    Icmp(Vec<u8>),
    Udp(Vec<u8>),
    Other(u8),
}

/// A TCP segment.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Segment {
    pub src_port: u16,
    pub dst_port: u16,
    pub seq: u32,
    pub ack: u32,
    /// Flag bits as in [`flag`].
    pub flags: u16,
    /// The three reserved bits between header length and flags.
    pub reserved: u8,
    pub window: u16,
    pub urgent: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Segment {
    pub(super) fn has(&self, flags: u16) -> bool {
        self.flags & flags == flags
    }

    /// The flags in the notation of scripts.
    pub(super) fn flag_names(&self, is_ace: bool) -> String {
        let names = |names: &[(u16, char)]| -> String {
            let set = names.iter().filter(|(bit, _)| self.has(*bit));
            set.map(|(_, name)| name).collect()
        };
        let mut out = names(&[
            (flag::FIN, 'F'),
            (flag::SYN, 'S'),
            (flag::RST, 'R'),
            (flag::PSH, 'P'),
            (flag::ACK, '.'),
            (flag::URG, 'U'),
        ]);
        match is_ace {
            true => out += &(self.flags >> 6 & 7).to_string(),
            false => out += &names(&[(flag::ECE, 'E'), (flag::CWR, 'W'), (flag::AE, 'A')]),
        }
        if out.is_empty() {
            out.push('-');
        }
        out
    }

    /// The segment in the notation of scripts, without its window if windows are not compared.
    pub(super) fn display(&self, is_ace: bool, with_window: bool) -> String {
        let mut out = self.flag_names(is_ace);
        let len = self.payload.len();
        let _ = write!(
            out,
            " {}:{}({len})",
            self.seq,
            self.seq.wrapping_add(len as u32)
        );
        if self.has(flag::ACK) {
            let _ = write!(out, " ack {}", self.ack);
        }
        if with_window {
            let _ = write!(out, " win {}", self.window);
        }
        if self.urgent != 0 {
            let _ = write!(out, " urg {}", self.urgent);
        }
        if !self.options.is_empty() {
            let _ = write!(out, " <{}>", option::display(&self.options));
        }
        out
    }
}

impl Datagram {
    pub(super) fn tcp(&self) -> Option<&Segment> {
        match &self.body {
            Content::Tcp(segment) => Some(segment),
            _ => None,
        }
    }

    pub(super) fn display(&self) -> String {
        match &self.body {
            Content::Tcp(segment) => segment.display(false, true),
            Content::Icmp(bytes) => {
                let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
                format!("icmp type_{} code_{}", byte(0), byte(1))
            }
            Content::Udp(bytes) => format!("udp ({})", bytes.len().saturating_sub(8)),
            Content::Other(protocol) => format!("protocol {protocol}"),
        }
    }

    /// Parses a packet that the stack sent, and checks all checksums.
    pub(super) fn parse(packet: &[u8]) -> Result<Datagram, String> {
        let (mut datagram, number, body) = match packet.first().map(|first| first >> 4) {
            Some(4) => parse_v4(packet)?,
            Some(6) => parse_v6(packet)?,
            _ => return Err("not an IP packet".to_owned()),
        };
        let is_summed = matches!(number, protocol::TCP | protocol::ICMPV6);
        if is_summed && !sum(&datagram, number, body).is_valid() {
            return Err(format!("bad outbound checksum of protocol {number}"));
        }
        if number == protocol::ICMP && !checksum::of(body).is_valid() {
            return Err("bad outbound ICMP checksum".to_owned());
        }
        datagram.body = match number {
            protocol::TCP => Content::Tcp(parse_tcp(body)?),
            protocol::ICMP | protocol::ICMPV6 => Content::Icmp(body.to_vec()),
            protocol::UDP => Content::Udp(body.to_vec()),
            other => Content::Other(other),
        };
        Ok(datagram)
    }

    /// The same IP header with another body.
    pub(super) fn with(&self, body: Content) -> Datagram {
        Datagram { body, ..*self }
    }

    /// Number of bytes that [`Datagram::emit`] makes.
    pub(super) fn byte_len(&self) -> usize {
        let header = if self.src.is_ipv6() { 40 } else { 20 };
        header
            + match &self.body {
                Content::Tcp(segment) => {
                    20 + segment.options.len().next_multiple_of(4) + segment.payload.len()
                }
                Content::Icmp(bytes) | Content::Udp(bytes) => bytes.len(),
                Content::Other(_) => 0,
            }
    }

    /// The packet's bytes, with all checksums.
    pub(super) fn emit(&self) -> Vec<u8> {
        let is_v6 = self.src.is_ipv6();
        let (number, mut body) = match &self.body {
            Content::Tcp(segment) => (protocol::TCP, emit_tcp(segment)),
            Content::Icmp(bytes) if is_v6 => (protocol::ICMPV6, bytes.clone()),
            Content::Icmp(bytes) => (protocol::ICMP, bytes.clone()),
            Content::Udp(bytes) => (protocol::UDP, bytes.clone()),
            Content::Other(number) => (*number, Vec::new()),
        };
        let (place, sum) = match number {
            protocol::TCP => (16, sum(self, number, &body)),
            protocol::ICMPV6 => (2, sum(self, number, &body)),
            protocol::ICMP => (2, checksum::of(&body)),
            _ => (usize::MAX, checksum::of(&[])),
        };
        if let Some(field) = place
            .checked_add(2)
            .and_then(|end| body.get_mut(place..end))
        {
            field.copy_from_slice(&sum.finish().to_be_bytes());
        }
        let mut packet = header(self, number, body.len());
        packet.extend(body);
        packet
    }
}

fn sum(datagram: &Datagram, number: u8, body: &[u8]) -> checksum::Sum {
    let addr = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => Addr::v4(ip),
        IpAddr::V6(ip) => Addr::v6(ip),
    };
    let mut sum = checksum::pseudo_header(
        addr(datagram.src),
        addr(datagram.dst),
        number,
        body.len() as u32,
    );
    sum.add_bytes(body);
    sum
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn parse_v4(packet: &[u8]) -> Result<(Datagram, u8, &[u8]), String> {
    let len = packet
        .first()
        .map_or(0, |first| usize::from(first & 0xf) * 4);
    if len < 20 || packet.len() < len || usize::from(be16(packet, 2)) != packet.len() {
        return Err("bad lengths in an IPv4 header".to_owned());
    }
    if !checksum::of(&packet[..len]).is_valid() {
        return Err("bad outbound IP checksum".to_owned());
    }
    if be16(packet, 6) & 0x3fff != 0 {
        return Err("an IP fragment".to_owned());
    }
    let addr = |at: usize| [packet[at], packet[at + 1], packet[at + 2], packet[at + 3]].into();
    let datagram = Datagram {
        src: addr(12),
        dst: addr(16),
        tos: packet[1],
        ttl: packet[8],
        flow_label: 0,
        body: Content::Other(packet[9]),
    };
    Ok((datagram, packet[9], &packet[len..]))
}

fn parse_v6(packet: &[u8]) -> Result<(Datagram, u8, &[u8]), String> {
    if packet.len() < 40 || usize::from(be16(packet, 4)) + 40 != packet.len() {
        return Err("bad length in an IPv6 header".to_owned());
    }
    let addr = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&packet[at..at + 16]);
        octets.into()
    };
    let first = option::word(packet, 0);
    let datagram = Datagram {
        src: addr(8),
        dst: addr(24),
        tos: (first >> 20) as u8,
        ttl: packet[7],
        flow_label: first & 0xf_ffff,
        body: Content::Other(packet[6]),
    };
    Ok((datagram, packet[6], &packet[40..]))
}

fn parse_tcp(bytes: &[u8]) -> Result<Segment, String> {
    let len = bytes.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4);
    if len < 20 || bytes.len() < len {
        return Err("bad TCP header length".to_owned());
    }
    Ok(Segment {
        src_port: be16(bytes, 0),
        dst_port: be16(bytes, 2),
        seq: option::word(bytes, 4),
        ack: option::word(bytes, 8),
        flags: be16(bytes, 12) & 0x1ff,
        reserved: bytes[12] >> 1 & 7,
        window: be16(bytes, 14),
        urgent: be16(bytes, 18),
        options: bytes[20..len].to_vec(),
        payload: bytes[len..].to_vec(),
    })
}

fn emit_tcp(segment: &Segment) -> Vec<u8> {
    let words = (20 + segment.options.len()).div_ceil(4) as u16;
    let mut bytes = Vec::with_capacity(usize::from(words) * 4 + segment.payload.len());
    bytes.extend(segment.src_port.to_be_bytes());
    bytes.extend(segment.dst_port.to_be_bytes());
    bytes.extend(segment.seq.to_be_bytes());
    bytes.extend(segment.ack.to_be_bytes());
    let middle = words << 12 | u16::from(segment.reserved) << 9 | segment.flags;
    bytes.extend(middle.to_be_bytes());
    bytes.extend(segment.window.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(segment.urgent.to_be_bytes());
    bytes.extend(&segment.options);
    bytes.resize(usize::from(words) * 4, 0);
    bytes.extend(&segment.payload);
    bytes
}

/// The IP header that goes before `body_len` bytes.
pub(super) fn header(datagram: &Datagram, number: u8, body_len: usize) -> Vec<u8> {
    let mut bytes;
    match (datagram.src, datagram.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            bytes = vec![0x45, datagram.tos];
            bytes.extend(((body_len + 20) as u16).to_be_bytes());
            bytes.extend([0, 0, 0, 0, datagram.ttl, number, 0, 0]);
            bytes.extend(src.octets());
            bytes.extend(dst.octets());
            let sum = checksum::of(&bytes).finish();
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (src, dst) => {
            let first = 6 << 28 | u32::from(datagram.tos) << 20 | datagram.flow_label;
            bytes = first.to_be_bytes().to_vec();
            bytes.extend((body_len as u16).to_be_bytes());
            bytes.extend([number, datagram.ttl]);
            for addr in [src, dst] {
                if let IpAddr::V6(addr) = addr {
                    bytes.extend(addr.octets());
                }
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
