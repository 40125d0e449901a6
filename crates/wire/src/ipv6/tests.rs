//! Faults that the IPv6 parser notices, and the walk over extension headers.

use super::*;
use std::vec::Vec;

const TCP: u8 = 6;

fn header(next_header: u8, payload_len: u16) -> Header {
    Header {
        traffic_class: 0xb9,
        flow_label: 0xabcde,
        payload_len,
        next_header,
        hop_limit: 3,
        src: "2001:db8::1".parse().unwrap(),
        dst: "fe80::2:3".parse().unwrap(),
    }
}

/// The walk over a packet of these extension headers, each `(kind, bytes from its length on)`,
/// before 20 bytes of TCP.
fn walk_over(extensions: &[(u8, &[u8])]) -> Result<(u8, usize), WireError> {
    let mut packet = Vec::from([0; HEADER_LEN]);
    for (place, (_, body)) in extensions.iter().enumerate() {
        packet.push(extensions.get(place + 1).map_or(TCP, |next| next.0));
        packet.extend(*body);
    }
    packet.extend([0; 20]);
    let first = extensions.first().map_or(TCP, |first| first.0);
    let header = header(first, (packet.len() - HEADER_LEN) as u16);
    header.emit(&mut packet);
    upper_layer(&header, &packet)
}

const PAD: [u8; 7] = [0, 1, 4, 0, 0, 0, 0];

#[test]
fn emitted_header_parses() {
    let mut packet = [0; HEADER_LEN];
    assert_eq!(header(TCP, 20).emit(&mut packet), HEADER_LEN);
    assert_eq!(packet[..8], [0x6b, 0x9a, 0xbc, 0xde, 0, 20, 6, 3]);
    assert_eq!(Header::parse(&packet, 60), Ok(header(TCP, 20)));
}

#[test]
fn lengths_and_version_are_checked() {
    let mut packet = [0; HEADER_LEN];
    header(TCP, 20).emit(&mut packet);
    assert_eq!(Header::parse(&packet, 59), Err(WireError::BadLength));
    assert_eq!(Header::parse(&packet[..39], 60), Err(WireError::Truncated));
    packet[0] = 0x4b;
    assert_eq!(Header::parse(&packet, 60), Err(WireError::BadVersion));
    let mut out = [9u8; 39];
    assert_eq!(header(TCP, 20).emit(&mut out), 0);
    assert_eq!(out, [9; 39]);
}

#[test]
fn no_extension_header_ends_the_walk_at_once() {
    assert_eq!(walk_over(&[]), Ok((TCP, 40)));
    assert_eq!(upper_layer(&header(59, 0), &[]), Ok((59, 40)));
}

#[test]
fn options_and_spent_routes_are_skipped() {
    let spent: &[u8] = &[0, 3, 0, 0, 0, 0, 0];
    assert_eq!(
        walk_over(&[(0, &PAD), (60, &PAD), (43, spent), (60, &PAD)]),
        Ok((TCP, 72))
    );
    let router_alert: &[u8] = &[1, 5, 2, 0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0, 0];
    assert_eq!(walk_over(&[(0, router_alert)]), Ok((TCP, 56)));
}

#[test]
fn unknown_protocol_ends_the_walk() {
    assert_eq!(walk_over(&[(60, &PAD), (51, &PAD)]), Ok((51, 48)));
}

#[test]
fn fragments_are_refused() {
    assert_eq!(
        walk_over(&[(60, &PAD), (44, &PAD)]),
        Err(WireError::Fragment)
    );
}

#[test]
fn routes_of_type_zero_or_with_hops_left_are_refused() {
    for route in [
        [0, 0, 0, 0, 0, 0, 0],
        [0, 0, 1, 0, 0, 0, 0],
        [0, 2, 1, 0, 0, 0, 0],
    ] {
        assert_eq!(
            walk_over(&[(43, &route)]),
            Err(WireError::Unsupported),
            "{route:?}"
        );
    }
}

#[test]
fn hop_by_hop_stands_first_or_not_at_all() {
    assert_eq!(
        walk_over(&[(60, &PAD), (0, &PAD)]),
        Err(WireError::Unsupported)
    );
}

#[test]
fn option_that_asks_to_be_dropped_is_refused() {
    for kind in [0x40, 0x80, 0xc0, 0xc2] {
        let options = [0, kind, 4, 0, 0, 0, 0];
        assert_eq!(
            walk_over(&[(0, &options)]),
            Err(WireError::Unsupported),
            "{kind:#x}"
        );
    }
    // 0x1e: experimental, "skip me".
    assert_eq!(walk_over(&[(0, &[0, 0x1e, 4, 0, 0, 0, 0])]), Ok((TCP, 48)));
}

#[test]
fn option_past_its_header_is_bad_option() {
    assert_eq!(
        walk_over(&[(60, &[0, 1, 5, 0, 0, 0, 0])]),
        Err(WireError::BadOption)
    );
    assert_eq!(
        walk_over(&[(60, &[0, 0, 0, 0, 0, 0, 1])]),
        Err(WireError::BadOption)
    );
}

#[test]
fn header_past_the_packet_is_bad_length_and_past_the_bytes_truncated() {
    assert_eq!(
        walk_over(&[(60, &[4, 1, 4, 0, 0, 0, 0])]),
        Err(WireError::BadLength)
    );
    assert_eq!(
        upper_layer(&header(60, 7), &[0; 60]),
        Err(WireError::BadLength)
    );
    assert_eq!(
        upper_layer(&header(60, 28), &[0; 40]),
        Err(WireError::Truncated)
    );
    assert_eq!(
        upper_layer(&header(60, 28), &[0; 47]),
        Err(WireError::Truncated)
    );
}

#[test]
fn eight_headers_are_walked_and_nine_are_too_many() {
    let eight = [(60, PAD.as_slice()); EXTENSION_HEADERS_MAX];
    assert_eq!(walk_over(&eight), Ok((TCP, 40 + 64)));
    let nine = [(60, PAD.as_slice()); EXTENSION_HEADERS_MAX + 1];
    assert_eq!(walk_over(&nine), Err(WireError::TooManyHeaders));
}

#[test]
fn nine_options_are_too_many() {
    let mut options = Vec::from([2]);
    for _ in 0..9 {
        options.extend([0x1e, 0]);
    }
    options.resize(23, 0);
    assert_eq!(walk_over(&[(60, &options)]), Err(WireError::TooManyHeaders));
    options.truncate(17);
    options.resize(23, 0);
    assert_eq!(walk_over(&[(60, &options)]), Ok((TCP, 64)));
}
