//! ICMP messages by the names that scripts use.

use std::net::IpAddr;

use wire::protocol;

use super::ast::{Icmp, Quoted};
use super::datagram::{Content, Datagram, header};

const V4_TYPES: &[(&str, u8)] = &[
    ("echo_reply", 0),
    ("unreachable", 3),
    ("source_quench", 4),
    ("redirect", 5),
    ("echo_request", 8),
    ("time_exceeded", 11),
    ("parameter_problem", 12),
    ("timestamp_request", 13),
    ("timestamp_reply", 14),
    ("information_request", 15),
    ("information_reply", 16),
    ("address_mask_request", 17),
    ("address_mask_reply", 18),
];

const V4_UNREACHABLE: &[(&str, u8)] = &[
    ("net_unreachable", 0),
    ("host_unreachable", 1),
    ("protocol_unreachable", 2),
    ("port_unreachable", 3),
    ("frag_needed", 4),
    ("source_route_failed", 5),
    ("net_unknown", 6),
    ("host_unknown", 7),
    ("source_host_isolated", 8),
    ("net_prohibited", 9),
    ("host_prohibited", 10),
    ("net_unreachable_for_tos", 11),
    ("host_unreachable_for_tos", 12),
    ("packet_filtered", 13),
    ("precedence_violation", 14),
    ("precedence_cutoff", 15),
];

const V6_TYPES: &[(&str, u8)] = &[
    ("unreachable", 1),
    ("packet_too_big", 2),
    ("time_exceeded", 3),
    ("parameter_problem", 4),
    ("echo_request", 128),
    ("echo_reply", 129),
];

const V6_CODES: &[(&str, u8)] = &[
    ("no_route", 0),
    ("net_unreachable", 0),
    ("admin_prohibited", 1),
    ("not_neighbour", 2),
    ("address_unreachable", 3),
    ("port_unreachable", 4),
    ("exceeded_hop_limit", 0),
    ("exceeded_frag_time", 1),
    ("header_field", 0),
    ("unknown_next_header", 1),
    ("unknown_option", 2),
];

/// IPv4 code words that suites also use for IPv6, with the numbers that those mean there.
const V6_OF_V4: &[(&str, u8)] = &[("host_unreachable", 3), ("packet_filtered", 1)];

/// The connection of a quoted segment, from the segment's sender's side.
pub(super) struct Flow {
    pub local: (IpAddr, u16),
    pub remote: (IpAddr, u16),
    /// Offset added to the script's sequence number to get the quoted one.
    pub seq_offset: u32,
}

/// Type and code numbers of a message.
pub(super) fn numbers(icmp: &Icmp, is_v6: bool) -> Result<(u8, u8), String> {
    let types = if is_v6 { V6_TYPES } else { V4_TYPES };
    let kind = number(&icmp.kind, "type_", &[types])
        .ok_or_else(|| format!("bad ICMP type {}", icmp.kind))?;
    let code = match &icmp.code {
        None => 0,
        Some(code) => {
            let tables: &[_] = if is_v6 {
                &[V6_CODES, V6_OF_V4]
            } else {
                &[V4_UNREACHABLE]
            };
            number(code, "code_", tables).ok_or_else(|| format!("bad ICMP code {code}"))?
        }
    };
    let takes_mtu = if is_v6 {
        kind == 2
    } else {
        (kind, code) == (3, 4)
    };
    if icmp.mtu.is_some() && !takes_mtu {
        return Err("an MTU goes with frag_needed and packet_too_big only".to_owned());
    }
    Ok((kind, code))
}

fn number(name: &str, prefix: &str, tables: &[&[(&str, u8)]]) -> Option<u8> {
    if let Some(number) = name.strip_prefix(prefix) {
        return number.parse().ok();
    }
    let mut entries = tables.iter().flat_map(|table| table.iter());
    entries.find(|entry| entry.0 == name).map(|entry| entry.1)
}

/// The message, quoting a packet of `flow`: its IP header and the 8 bytes behind it.
pub(super) fn message(icmp: &Icmp, flow: &Flow) -> Result<Vec<u8>, String> {
    let is_v6 = flow.local.0.is_ipv6();
    let (kind, code) = numbers(icmp, is_v6)?;
    let mut bytes = vec![kind, code, 0, 0];
    match (icmp.mtu, is_v6) {
        (Some(mtu), true) => bytes.extend(mtu.to_be_bytes()),
        (Some(mtu), false) => {
            let mtu = u16::try_from(mtu).map_err(|_| "an MTU of ICMPv4 has 16 bits".to_owned())?;
            bytes.extend([0, 0]);
            bytes.extend(mtu.to_be_bytes());
        }
        (None, _) => {
            bytes.extend(icmp.id.to_be_bytes());
            bytes.extend([0, 0]);
        }
    }
    let behind = |header: u16, payload: u16| {
        let len = header.checked_add(payload);
        len.ok_or_else(|| "the packet that is quoted is too long".to_owned())
    };
    let (number, len, fields) = match icmp.quoted {
        Quoted::Raw { bytes: len } => {
            bytes.resize(usize::from(len).max(8), 0);
            return Ok(bytes);
        }
        Quoted::Tcp { seq, payload } => (
            protocol::TCP,
            behind(20, payload)?,
            seq.wrapping_add(flow.seq_offset),
        ),
        Quoted::Udp { payload } => {
            let len = behind(8, payload)?;
            (protocol::UDP, len, u32::from(len) << 16)
        }
    };
    let quoted = Datagram {
        src: flow.local.0,
        dst: flow.remote.0,
        tos: 0,
        ttl: 255,
        flow_label: 0,
        body: Content::Other(number),
    };
    bytes.extend(header(&quoted, number, usize::from(len)));
    bytes.extend(flow.local.1.to_be_bytes());
    bytes.extend(flow.remote.1.to_be_bytes());
    bytes.extend(fields.to_be_bytes());
    Ok(bytes)
}
