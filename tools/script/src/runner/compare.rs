//! Comparison of a packet that left with the script's expectation, field by field.

use crate::ast::{IpInfo, Micros, Tcp, Tos, flag};
use crate::datagram::{Datagram, Segment};
use crate::option;

/// Parameters for the comparison of timestamps.
#[derive(Clone, Copy)]
pub(super) struct Stamps {
    /// Microseconds of a tick; 0: timestamps are not compared.
    pub tick: Micros,
    pub tolerance: Micros,
}

/// Extent of a comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Everything that the script writes.
    Whole,
    /// A further segment against the one before it, whose data it continues.
    Continuation,
}

fn field(name: &str, expected: u32, seen: u32) -> Result<(), String> {
    if expected == seen {
        return Ok(());
    }
    Err(format!(
        "{name}: expected {expected} ({expected:#x}), seen {seen} ({seen:#x})"
    ))
}

/// The script's expectation as a segment. It takes the options of `seen` if the script does not
/// compare them.
pub(super) fn expected(tcp: &Tcp, seen: &Segment) -> Segment {
    Segment {
        src_port: seen.src_port,
        dst_port: seen.dst_port,
        seq: tcp.seq,
        ack: tcp.ack,
        flags: tcp.flags,
        reserved: 0,
        window: tcp.window.unwrap_or(seen.window),
        urgent: tcp.urgent,
        options: tcp.options.clone().unwrap_or_else(|| seen.options.clone()),
        payload: vec![0; usize::from(tcp.payload)],
    }
}

/// Compares the whole packet; `seen` is in the script's sequence numbers.
pub(super) fn whole(
    ip: IpInfo,
    tcp: &Tcp,
    datagram: &Datagram,
    seen: &Segment,
    stamps: Stamps,
) -> Result<(), String> {
    tos(ip.tos, datagram.tos)?;
    if ip.ttl != 0 {
        field("ttl", ip.ttl.into(), datagram.ttl.into())?;
    }
    let wanted = expected(tcp, seen);
    if tcp.payload as usize != seen.payload.len() {
        return Err(format!(
            "payload: expected {} bytes, seen {}",
            tcp.payload,
            seen.payload.len()
        ));
    }
    header(&wanted, seen, tcp.is_ace, How::Whole)?;
    options(&wanted.options, &seen.options, stamps)?;
    if seen.payload.iter().any(|byte| *byte != 0) {
        return Err("the payload is not what the application wrote".to_owned());
    }
    Ok(())
}

/// Checks that `next` continues the data of `before` under the same header. `missing` is the number
/// of bytes that are still expected.
pub(super) fn continuation(
    before: (&Datagram, &Segment),
    next: (&Datagram, &Segment),
    missing: usize,
) -> Result<(), String> {
    field("ttl", before.0.ttl.into(), next.0.ttl.into())?;
    let mut wanted = before.1.clone();
    wanted.seq = wanted.seq.wrapping_add(wanted.payload.len() as u32);
    header(&wanted, next.1, false, How::Continuation)?;
    let len = next.1.payload.len();
    if len < missing && len != before.1.payload.len() {
        return Err(format!(
            "payload of a segment in the middle: expected {} bytes, seen {len}",
            before.1.payload.len()
        ));
    }
    Ok(())
}

fn tos(expected: Option<Tos>, seen: u8) -> Result<(), String> {
    let ecn = seen & 3;
    match expected {
        None => Ok(()),
        Some(Tos::Ect01) if ecn == 1 || ecn == 2 => Ok(()),
        Some(Tos::Ect01) => Err(format!("ECN bits: expected ECT(0) or ECT(1), seen {ecn}")),
        Some(Tos::Ecn(bits)) => field("ECN bits", bits.into(), ecn.into()),
        Some(Tos::Byte(byte)) => field("tos", byte.into(), seen.into()),
    }
}

fn header(wanted: &Segment, seen: &Segment, is_ace: bool, how: How) -> Result<(), String> {
    let is_whole = how == How::Whole;
    let bit = |name: &str, mask: u16| {
        field(
            name,
            u32::from(wanted.flags & mask != 0),
            u32::from(seen.flags & mask != 0),
        )
    };
    if is_whole {
        bit("FIN", flag::FIN)?;
        bit("PSH", flag::PSH)?;
    }
    bit("SYN", flag::SYN)?;
    bit("RST", flag::RST)?;
    bit("ACK", flag::ACK)?;
    bit("URG", flag::URG)?;
    if is_ace {
        field(
            "ACE",
            u32::from(wanted.flags >> 6 & 7),
            u32::from(seen.flags >> 6 & 7),
        )?;
    } else {
        bit("ECE", flag::ECE)?;
        bit("AE", flag::AE)?;
        if is_whole {
            bit("CWR", flag::CWR)?;
        }
    }
    field(
        "reserved bits",
        wanted.reserved.into(),
        seen.reserved.into(),
    )?;
    field("sequence number", wanted.seq, seen.seq)?;
    field("ACK number", wanted.ack, seen.ack)?;
    field("window", wanted.window.into(), seen.window.into())?;
    field("urgent pointer", wanted.urgent.into(), seen.urgent.into())?;
    if wanted.options.len().div_ceil(4) != seen.options.len().div_ceil(4) {
        return Err(format!(
            "TCP options: expected <{}>, seen <{}>",
            option::display(&wanted.options),
            option::display(&seen.options)
        ));
    }
    Ok(())
}

fn options(wanted: &[u8], seen: &[u8], stamps: Stamps) -> Result<(), String> {
    let differ = || {
        format!(
            "TCP options: expected <{}>, seen <{}>",
            option::display(wanted),
            option::display(seen)
        )
    };
    let (Some(wanted_at), Some(seen_at)) = (option::places(wanted), option::places(seen)) else {
        return Err(differ());
    };
    if wanted_at.len() != seen_at.len() {
        return Err(differ());
    }
    for (wanted_place, seen_place) in wanted_at.iter().zip(&seen_at) {
        let wanted_body = &wanted[wanted_place.start..wanted_place.end];
        let seen_body = &seen[seen_place.start..seen_place.end];
        let is_same = match wanted_place.kind {
            kind if kind != seen_place.kind => false,
            option::kind::TIMESTAMP if wanted_body.len() == seen_body.len() => {
                let off =
                    option::word(wanted_body, 0).wrapping_sub(option::word(seen_body, 0)) as i32;
                i64::from(off).abs().saturating_mul(stamps.tick) <= stamps.tolerance
            }
            _ => wanted_body == seen_body,
        };
        if !is_same {
            return Err(differ());
        }
    }
    Ok(())
}
