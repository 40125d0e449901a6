//! Reader of packet dumps: hexadecimal bytes, one layer or a few fields to a line, with an
//! explanation after `;`. The frames were captured on veth pairs between network namespaces of a
//! Linux 6.18 kernel (checksum offload off), with documentation addresses.

#![allow(dead_code)] // each test file uses its part

use wire::ethernet::{self, EtherType};
use wire::{Addr, FlowKey, checksum, ipv4, ipv6, protocol, tcp};

/// The bytes of a dump.
pub fn dump(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let digits: String = line.split(';').next().unwrap().split_whitespace().collect();
        for at in (0..digits.len()).step_by(2) {
            bytes.push(u8::from_str_radix(&digits[at..at + 2], 16).unwrap());
        }
    }
    bytes
}

/// A frame parsed down to the payload of IP.
pub struct Dissected {
    pub eth: ethernet::Header,
    pub src: Addr,
    pub dst: Addr,
    pub hop_limit: u8,
    pub protocol: u8,
    pub payload: Vec<u8>,
}

/// Parses a frame, and checks that its headers come out the same when they are emitted again.
pub fn dissect(frame: &[u8]) -> Dissected {
    let (eth, at) = ethernet::Header::parse(frame).unwrap();
    let packet = &frame[at..];
    let mut again = vec![0u8; 60];
    assert_eq!(eth.emit(&mut again), at);
    assert_eq!(again[..at], frame[..at]);
    if eth.ethertype == EtherType::IPV4 {
        let header = ipv4::Header::parse(packet, packet.len()).unwrap();
        assert_eq!(header.emit(&mut again), 20);
        assert_eq!(again[..20], packet[..20]);
        return Dissected {
            eth,
            src: header.src.into(),
            dst: header.dst.into(),
            hop_limit: header.ttl,
            protocol: header.protocol,
            payload: packet[20..usize::from(header.total_len)].to_vec(),
        };
    }
    assert_eq!(eth.ethertype, EtherType::IPV6);
    let header = ipv6::Header::parse(packet, packet.len()).unwrap();
    assert_eq!(header.emit(&mut again), 40);
    assert_eq!(again[..40], packet[..40]);
    let (protocol, offset) = ipv6::upper_layer(&header, packet).unwrap();
    Dissected {
        eth,
        src: header.src.into(),
        dst: header.dst.into(),
        hop_limit: header.hop_limit,
        protocol,
        payload: packet[offset..40 + usize::from(header.payload_len)].to_vec(),
    }
}

/// The TCP segment of a frame: the flow as its receiver sees it, the header, the payload. Checks
/// the checksum, and that the header that we emit is the kernel's, byte for byte.
pub fn tcp_segment(frame: &[u8]) -> (FlowKey, tcp::Header, Vec<u8>) {
    let Dissected {
        src,
        dst,
        protocol,
        payload: segment,
        ..
    } = dissect(frame);
    assert_eq!(protocol, protocol::TCP);
    let mut sum = checksum::pseudo_header(src, dst, protocol, segment.len() as u32);
    sum.add_bytes(&segment);
    assert!(sum.is_valid(), "TCP checksum");
    let (header, data_offset) = tcp::Header::parse(&segment).unwrap();
    let mut again = [0u8; 60];
    assert_eq!(header.emit(&mut again), data_offset);
    assert_eq!(again[..data_offset], segment[..data_offset]);
    let flow = FlowKey {
        local: dst,
        remote: src,
        local_port: header.dst_port,
        remote_port: header.src_port,
    };
    (flow, header, segment[data_offset..].to_vec())
}
