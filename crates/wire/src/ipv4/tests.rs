//! Faults that the IPv4 parser notices.

use super::*;
use std::vec::Vec;

fn header() -> Header {
    Header {
        dscp_ecn: 0x02,
        total_len: 60,
        ident: 0xbeef,
        ttl: 57,
        protocol: 6,
        src: Ipv4Addr::new(192, 0, 2, 1),
        dst: Ipv4Addr::new(198, 51, 100, 2),
        ..Header::default()
    }
}

fn packet() -> [u8; HEADER_LEN] {
    let mut packet = [0; HEADER_LEN];
    assert_eq!(header().emit(&mut packet), HEADER_LEN);
    packet
}

/// A header with these options, padded, with a valid checksum, and without payload.
fn with_options(options: &[u8]) -> Vec<u8> {
    let mut packet = packet().to_vec();
    packet.extend(options);
    packet.resize(packet.len().next_multiple_of(4), 0);
    packet[0] = 0x40 | (packet.len() / 4) as u8;
    fix_checksum(&mut packet);
    packet
}

fn fix_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let checksum = checksum::of(packet).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[test]
fn emitted_header_parses() {
    assert_eq!(Header::parse(&packet(), 60), Ok(header()));
    assert!(checksum::of(&packet()).is_valid());
    assert_eq!(header().payload_len(), 40);
}

#[test]
fn ethernet_padding_is_no_error() {
    assert_eq!(Header::parse(&packet(), 100).unwrap().total_len, 60);
}

#[test]
fn packet_longer_than_its_frame_is_bad_length() {
    assert_eq!(Header::parse(&packet(), 59), Err(WireError::BadLength));
}

#[test]
fn packet_shorter_than_its_header_is_bad_length() {
    let mut packet = packet();
    packet[2..4].copy_from_slice(&[0, 19]);
    fix_checksum(&mut packet);
    assert_eq!(Header::parse(&packet, 60), Err(WireError::BadLength));
    let mut packet = with_options(&[1, 1, 1, 1]);
    packet[2..4].copy_from_slice(&[0, 23]);
    fix_checksum(&mut packet);
    assert_eq!(Header::parse(&packet, 60), Err(WireError::BadLength));
}

#[test]
fn every_flipped_bit_is_noticed() {
    for bit in 0..HEADER_LEN * 8 {
        let mut packet = packet();
        packet[bit / 8] ^= 1 << (bit % 8);
        assert!(Header::parse(&packet, 60).is_err(), "bit {bit}");
    }
}

#[test]
fn version_and_header_length_are_checked_first() {
    for (first, error) in [
        (0x65, WireError::BadVersion),
        (0x05, WireError::BadVersion),
        (0x44, WireError::BadLength),
        (0x40, WireError::BadLength),
        (0x46, WireError::Truncated),
    ] {
        let mut packet = packet();
        packet[0] = first;
        assert_eq!(Header::parse(&packet, 60), Err(error), "{first:#x}");
    }
    assert_eq!(
        Header::parse(&packet()[..19], 60),
        Err(WireError::Truncated)
    );
}

#[test]
fn harmless_options_are_skipped() {
    // NOP, router alert (RFC 2113), end, and garbage behind the end.
    let packet = with_options(&[1, 148, 4, 0, 0, 0, 131, 131]);
    let parsed = Header::parse(&packet, 60).unwrap();
    assert!(parsed.has_options());
    assert_eq!((parsed.header_len, parsed.payload_len()), (28, 32));
    assert!(!header().has_options());
}

#[test]
fn source_routes_are_unsupported() {
    for kind in [131, 137] {
        let packet = with_options(&[1, kind, 7, 4, 10, 0, 0, 1]);
        assert_eq!(Header::parse(&packet, 60), Err(WireError::Unsupported));
    }
}

#[test]
fn malformed_options_are_bad_options() {
    for options in [[7, 0, 0, 0], [7, 1, 0, 0], [7, 5, 0, 0], [1, 1, 1, 7]] {
        let packet = with_options(&options);
        assert_eq!(
            Header::parse(&packet, 60),
            Err(WireError::BadOption),
            "{options:?}"
        );
    }
}

#[test]
fn checksum_covers_the_options() {
    let mut packet = with_options(&[1, 1, 1, 1]);
    packet[21] = 0;
    assert_eq!(Header::parse(&packet, 60), Err(WireError::BadChecksum));
}

#[test]
fn fragments_are_told() {
    let mut header = header();
    assert!(!header.is_fragment());
    header.more_fragments = true;
    header.dont_fragment = false;
    assert!(header.is_fragment());
    header.more_fragments = false;
    header.fragment_offset = 0x1fff;
    assert!(header.is_fragment());
    let mut packet = [0; HEADER_LEN];
    header.emit(&mut packet);
    assert_eq!(packet[6..8], [0x1f, 0xff]);
    assert_eq!(Header::parse(&packet, 60), Ok(header));
}

#[test]
fn quoted_header_may_be_cut_and_its_checksum_wrong() {
    let mut packet = packet();
    packet[10] ^= 0xff;
    assert_eq!(Header::parse_quoted(&packet), Ok(header()));
    packet[0] = 0x65;
    assert_eq!(Header::parse_quoted(&packet), Err(WireError::BadVersion));
    assert_eq!(
        Header::parse_quoted(&packet[..19]),
        Err(WireError::Truncated)
    );
}

#[test]
fn short_buffer_stays_untouched() {
    let mut out = [9u8; 19];
    assert_eq!(header().emit(&mut out), 0);
    assert_eq!(out, [9; 19]);
}
