//! An arbitrary frame: every parser that `stack` would call for it must accept or refuse it.
//!
//! Each input is tried as it is, and again with the checksums of IPv4, ICMP and ICMPv6 made right.
//! A fuzzer does not guess checksums, so the code behind them would never run.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::ethernet::{self, EtherType};
use wire::quote::Quote;
use wire::{Addr, arp, checksum, icmpv4, icmpv6, ipv4, ipv6, protocol, tcp};

fuzz_target!(|frame: &[u8]| {
    parse_frame(frame);
    let mut repaired = frame.to_vec();
    if repair(&mut repaired).is_some() {
        parse_frame(&repaired);
    }
});

fn parse_frame(frame: &[u8]) {
    let Ok((eth, at)) = ethernet::Header::parse(frame) else {
        return;
    };
    let mut again = [0u8; 18];
    assert_eq!(eth.emit(&mut again), at);
    assert_eq!(&again[..at], &frame[..at]);
    let packet = &frame[at..];
    match eth.ethertype {
        EtherType::ARP => parse_arp(packet),
        EtherType::IPV4 => parse_ipv4(packet),
        EtherType::IPV6 => parse_ipv6(packet),
        _ => {}
    }
}

fn parse_arp(packet: &[u8]) {
    if let Ok(repr) = arp::Repr::parse(packet) {
        let mut again = [0u8; 28];
        assert_eq!(repr.emit(&mut again), 28);
        assert_eq!(again, packet[..28]);
    }
}

fn parse_ipv4(packet: &[u8]) {
    let Ok(header) = ipv4::Header::parse(packet, packet.len()) else {
        return;
    };
    if !header.has_options() {
        let mut again = [0u8; 20];
        assert_eq!(header.emit(&mut again), 20);
        assert_eq!(ipv4::Header::parse(&again, packet.len()), Ok(header));
    }
    let payload = &packet[usize::from(header.header_len)..usize::from(header.total_len)];
    assert_eq!(payload.len(), header.payload_len());
    match header.protocol {
        protocol::TCP => parse_tcp(header.src.into(), header.dst.into(), payload),
        protocol::ICMP => parse_icmpv4(payload),
        _ => {}
    }
}

fn parse_ipv6(packet: &[u8]) {
    let Ok(header) = ipv6::Header::parse(packet, packet.len()) else {
        return;
    };
    let mut again = [0u8; 40];
    assert_eq!(header.emit(&mut again), 40);
    assert_eq!(again, packet[..40]);
    let Ok((protocol, offset)) = ipv6::upper_layer(&header, packet) else {
        return;
    };
    let payload = &packet[offset..40 + usize::from(header.payload_len)];
    match protocol {
        protocol::TCP => parse_tcp(header.src.into(), header.dst.into(), payload),
        protocol::ICMPV6 => parse_icmpv6(&header, payload),
        _ => {}
    }
}

fn parse_tcp(src: Addr, dst: Addr, segment: &[u8]) {
    let mut sum = checksum::pseudo_header(src, dst, protocol::TCP, segment.len() as u32);
    sum.add_bytes(segment);
    let _ = sum.is_valid();
    if let Ok((header, data_offset)) = tcp::Header::parse(segment) {
        assert!((20..=segment.len()).contains(&data_offset));
        assert_eq!(
            tcp::ports(segment),
            Some((header.src_port, header.dst_port))
        );
    }
}

fn parse_icmpv4(payload: &[u8]) {
    let Ok(message) = icmpv4::Message::parse(payload) else {
        return;
    };
    let mut again = vec![0u8; message.emit_len()];
    assert_eq!(message.emit(&mut again), again.len());
    let parsed = icmpv4::Message::parse(&again);
    use icmpv4::Message::*;
    match message {
        DestinationUnreachable { quote, .. }
        | TimeExceeded { quote, .. }
        | ParameterProblem { quote, .. } => {
            let _ = Quote::parse_v4(quote);
            // `emit` cuts a quote that is longer than the longest that we send.
            assert!(quote.len() > icmpv4::QUOTE_LEN_MAX || parsed == Ok(message));
        }
        _ => assert_eq!(parsed, Ok(message)),
    }
}

fn parse_icmpv6(header: &ipv6::Header, payload: &[u8]) {
    let (src, dst) = (header.src, header.dst);
    let Ok(message) = icmpv6::Message::parse(payload, src, dst, header.hop_limit) else {
        return;
    };
    let mut again = vec![0u8; message.emit_len()];
    assert_eq!(message.emit(&mut again, src, dst), again.len());
    let parsed = icmpv6::Message::parse(&again, src, dst, header.hop_limit);
    use icmpv6::Message::*;
    match message {
        DestinationUnreachable { quote, .. }
        | PacketTooBig { quote, .. }
        | TimeExceeded { quote, .. }
        | ParameterProblem { quote, .. } => {
            let _ = Quote::parse_v6(quote);
            assert!(quote.len() > icmpv6::QUOTE_LEN_MAX || parsed == Ok(message));
        }
        _ => assert_eq!(parsed, Ok(message)),
    }
}

/// Sets the checksums that the parsers verify. `None` if the frame has none.
fn repair(frame: &mut [u8]) -> Option<()> {
    let (eth, at) = ethernet::Header::parse(frame).ok()?;
    let packet = &mut frame[at..];
    match eth.ethertype {
        EtherType::IPV4 => repair_ipv4(packet),
        EtherType::IPV6 => repair_icmpv6(packet),
        _ => None,
    }
}

fn repair_ipv4(packet: &mut [u8]) -> Option<()> {
    let header_len = usize::from(packet.first()? & 0x0f) * 4;
    let header = packet.get_mut(..header_len)?;
    header.get_mut(10..12)?.fill(0);
    let checksum = checksum::of(header).finish();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    let header = ipv4::Header::parse(packet, packet.len()).ok()?;
    if header.protocol != protocol::ICMP {
        return Some(());
    }
    let payload = &mut packet[header_len..usize::from(header.total_len)];
    payload.get_mut(2..4)?.fill(0);
    let checksum = checksum::of(payload).finish();
    payload[2..4].copy_from_slice(&checksum.to_be_bytes());
    Some(())
}

fn repair_icmpv6(packet: &mut [u8]) -> Option<()> {
    let header = ipv6::Header::parse(packet, packet.len()).ok()?;
    let (protocol, offset) = ipv6::upper_layer(&header, packet).ok()?;
    if protocol != protocol::ICMPV6 {
        return None;
    }
    let payload = &mut packet[offset..40 + usize::from(header.payload_len)];
    payload.get_mut(2..4)?.fill(0);
    let len = payload.len() as u32;
    let mut sum = checksum::pseudo_header_v6(header.src, header.dst, protocol, len);
    sum.add_bytes(payload);
    payload[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    Some(())
}
