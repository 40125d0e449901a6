//! Malformed and misdirected frames: each changes exactly one drop counter, named in its row.

use std::net::IpAddr;

use packetio::MacAddr;
use stack::Usage;
use wire::ethernet::{self, EtherType};
use wire::tcp::Flags;
use wire::{icmpv6, protocol};

use crate::common::frames::{ethernet_frame, ip_frame, ipv6_packet, mend_ipv4};
use crate::common::{Client, PEER_V4, PEER_V6, STACK_MAC, STACK_V4, STACK_V6, World, frames};

/// Offsets in an untagged IPv4 frame without IP options.
const IP: usize = ethernet::HEADER_LEN;
const TCP: usize = IP + 20;

/// A world with one live connection, which the frames must not affect.
fn live() -> (World, Client) {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.send(&client.data(b"before"));
    assert_eq!(w.read(socket), b"before");
    w.peer.forget();
    w.app.take_events();
    (w, client)
}

/// Sends a frame that must be dropped with this counter only, without an answer or event.
#[track_caller]
fn dropped(w: &mut World, name: &'static str, frame: &[u8]) {
    // Packing may happen at any time and is not compared.
    let held = |w: &World| Usage {
        dormant: 0,
        packed_blocks: 0,
        ..w.stack.usage()
    };
    let usage = held(w);
    let moved = w.counted(|w| w.send_frame(frame));
    assert_eq!(moved, [(name, 1)]);
    w.silent();
    assert_eq!(w.app.take_events(), []);
    assert_eq!(held(w), usage);
}

#[test]
fn ethernet_frames_that_are_short_or_for_others() {
    let (mut w, client) = live();
    let whole = w.peer.frame(&client.ack());
    for len in 1..ethernet::HEADER_LEN {
        dropped(&mut w, "rx_drop_ethernet", &whole[..len]);
    }
    let tagged = frames::tagged(&whole, 0);
    for len in 14..18 {
        dropped(&mut w, "rx_drop_ethernet", &tagged[..len]);
    }
    let mut other = whole.clone();
    other[5] ^= 0x10;
    dropped(&mut w, "rx_drop_other_mac", &other);
    let mut group = whole.clone();
    group[..6].copy_from_slice(&[1, 0, 0x5e, 0, 0, 1]);
    dropped(&mut w, "rx_drop_other_mac", &group);
    let mut broadcast = whole.clone();
    broadcast[..6].fill(0xff);
    dropped(&mut w, "rx_drop_other_mac", &broadcast);
    dropped(&mut w, "rx_drop_vlan", &frames::tagged(&whole, 100));
    for ethertype in [0, 46, 0x0801, 0x88cc, 0xffff] {
        let frame = ethernet_frame(w.peer.mac, STACK_MAC, ethertype, &[0; 50]);
        dropped(&mut w, "rx_drop_ethertype", &frame);
    }
    // A frame with two tags.
    let double = frames::tagged(&frames::tagged(&whole, 0), 0);
    dropped(&mut w, "rx_drop_ethertype", &double);
}

#[test]
fn ipv4_headers_that_lie() {
    let (mut w, client) = live();
    let whole = w.peer.frame(&client.ack());
    for len in IP..TCP {
        dropped(&mut w, "rx_drop_ip_header", &whole[..len]);
    }
    for (at, value) in [
        (IP, 0x35),     // version 3
        (IP, 0x44),     // header of 16 bytes
        (IP, 0x40),     // header of no bytes
        (IP, 0x4f),     // longer than the packet
        (IP + 2, 0xff), // longer than the frame
        (IP + 3, 19),   // shorter than its header
        (IP + 3, 0),
    ] {
        let mut frame = whole.clone();
        frame[at] = value;
        if frame[IP] & 15 >= 5 && (frame[IP] & 15) * 4 <= 40 {
            mend_ipv4(&mut frame);
        }
        dropped(&mut w, "rx_drop_ip_header", &frame);
    }
    // A wrong header checksum, whichever byte is damaged.
    for at in [IP + 1, IP + 4, IP + 8, IP + 10, IP + 12, IP + 19] {
        let mut frame = whole.clone();
        frame[at] ^= 0x04;
        dropped(&mut w, "rx_drop_ip_header", &frame);
    }
}

#[test]
fn ipv4_fragments_are_dropped() {
    let (mut w, client) = live();
    let whole = w.peer.frame(&client.segment(Flags::ACK).data(&[1; 64]));
    for (flags, offset) in [(0x20, 0), (0x20, 8), (0x00, 8), (0x1f, 0xff)] {
        let mut frame = whole.clone();
        (frame[IP + 6], frame[IP + 7]) = (flags, offset);
        mend_ipv4(&mut frame);
        dropped(&mut w, "rx_drop_fragment", &frame);
    }
}

#[test]
fn ipv4_source_route_is_refused_other_options_are_skipped() {
    let (mut w, mut client) = live();
    let segment = client.data(b"behind options").segment_bytes();
    let with = |option: &[u8]| {
        let mut frame = ip_frame(
            w.peer.mac,
            STACK_MAC,
            PEER_V4,
            STACK_V4,
            protocol::TCP,
            &segment,
        );
        frame.splice(TCP..TCP, option.iter().copied());
        frame[IP] = 0x40 | (5 + option.len() as u8 / 4);
        let total = (frame.len() - IP) as u16;
        frame[IP + 2..IP + 4].copy_from_slice(&total.to_be_bytes());
        mend_ipv4(&mut frame);
        frame
    };
    let loose = with(&[131, 7, 4, 10, 0, 0, 9, 0]);
    let strict = with(&[137, 7, 4, 10, 0, 0, 9, 0]);
    let harmless = with(&[1, 1, 1, 1, 148, 4, 0, 0]);
    dropped(&mut w, "rx_drop_ip_header", &loose);
    dropped(&mut w, "rx_drop_ip_header", &strict);
    w.send_frame(&harmless);
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
    w.app.take_events();
}

#[test]
fn ipv6_headers_that_lie() {
    let mut w = World::new();
    let segment = w.client_v6().syn();
    let whole = w.peer.frame(&segment);
    for len in IP..IP + 40 {
        dropped(&mut w, "rx_drop_ip_header", &whole[..len]);
    }
    let mut version = whole.clone();
    version[IP] = 0x40;
    dropped(&mut w, "rx_drop_ip_header", &version);
    let mut long = whole.clone();
    long[IP + 4] = 0xff;
    dropped(&mut w, "rx_drop_ip_header", &long);
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (PEER_V6, STACK_V6) else {
        unreachable!()
    };
    let bytes = segment.segment_bytes();
    let extended = |next: u8, extension: &[u8]| {
        let mut body = extension.to_vec();
        body.extend_from_slice(&bytes);
        let packet = ipv6_packet(src, dst, next, 64, &body);
        ethernet_frame(w.peer.mac, STACK_MAC, EtherType::IPV6, &packet)
    };
    let fragment = extended(44, &[6, 0, 0, 1, 0, 0, 0, 1]);
    let routed = extended(43, &[6, 0, 0, 1, 0, 0, 0, 0]);
    let beyond = extended(0, &[6, 200, 0, 0, 0, 0, 0, 0]);
    let chain: Vec<u8> = (0..12).flat_map(|_| [60, 0, 1, 4, 0, 0, 0, 0]).collect();
    let endless = extended(60, &chain);
    dropped(&mut w, "rx_drop_fragment", &fragment);
    dropped(&mut w, "rx_drop_ip_header", &routed);
    dropped(&mut w, "rx_drop_ip_header", &beyond);
    dropped(&mut w, "rx_drop_ip_header", &endless);
}

#[test]
fn addresses_that_are_not_ours_or_nobodys() {
    let (mut w, client) = live();
    let mac = w.peer.mac;
    let bytes = client.ack().segment_bytes();
    for dst in [
        "10.0.0.9",
        "10.0.0.255",
        "255.255.255.255",
        "224.0.0.1",
        "8.8.8.8",
    ] {
        let dst = dst.parse().unwrap();
        let frame = ip_frame(mac, STACK_MAC, PEER_V4, dst, protocol::TCP, &bytes);
        dropped(&mut w, "rx_drop_other_address", &frame);
    }
    for src in [
        "0.0.0.0",
        "10.0.0.1",
        "10.0.0.255",
        "127.0.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
    ] {
        let src = src.parse().unwrap();
        let frame = ip_frame(mac, STACK_MAC, src, STACK_V4, protocol::TCP, &bytes);
        dropped(&mut w, "rx_drop_source_address", &frame);
    }
    for src in ["::", "::1", "ff02::1", "fd00::1"] {
        let src = src.parse().unwrap();
        let frame = ip_frame(mac, STACK_MAC, src, STACK_V6, protocol::TCP, &bytes);
        dropped(&mut w, "rx_drop_source_address", &frame);
    }
    let there: IpAddr = "fd00::9".parse().unwrap();
    let frame = ip_frame(mac, STACK_MAC, PEER_V6, there, protocol::TCP, &bytes);
    dropped(&mut w, "rx_drop_other_address", &frame);
}

#[test]
fn tcp_headers_that_lie() {
    let (mut w, client) = live();
    let mac = w.peer.mac;
    let bytes = client.segment(Flags::ACK).data(&[9; 30]).segment_bytes();
    let packet = |bytes: &[u8]| ip_frame(mac, STACK_MAC, PEER_V4, STACK_V4, protocol::TCP, bytes);
    for len in 0..20 {
        dropped(&mut w, "rx_drop_tcp_header", &packet(&bytes[..len]));
    }
    for offset in [0x00, 0x10, 0x40, 0xd0, 0xf0] {
        let mut bytes = bytes.clone();
        bytes[12] = offset;
        dropped(&mut w, "rx_drop_tcp_header", &packet(&bytes));
    }
    // Options of length zero and one, and one that exceeds the header.
    for options in [[2, 0, 0, 0], [2, 1, 0, 0], [8, 10, 0, 0], [1, 1, 1, 3]] {
        let mut bytes = bytes.clone();
        bytes.splice(20..20, options);
        bytes[12] = 0x60;
        dropped(&mut w, "rx_drop_tcp_header", &packet(&bytes));
    }
    // Bytes behind the IP packet's length are padding, not header.
    let mut frame = packet(&bytes[..12]);
    frame.extend_from_slice(&bytes[12..]);
    dropped(&mut w, "rx_drop_tcp_header", &frame);
}

#[test]
fn tcp_checksums_that_are_wrong() {
    let (mut w, mut client) = live();
    let segments = [
        client.ack(),
        client.segment(Flags::ACK).data(b"in order"),
        client.segment(Flags::ACK).at(client.nxt + 9).data(b"not"),
        client.rst(),
        client.segment(Flags::SYN),
        client.segment(Flags::FIN | Flags::ACK),
        w.client().syn(),
    ];
    for segment in &segments {
        let whole = w.peer.frame(segment);
        for at in [
            TCP,
            TCP + 2,
            TCP + 5,
            TCP + 9,
            TCP + 13,
            TCP + 15,
            TCP + 16,
            TCP + 19,
        ] {
            let mut frame = whole.clone();
            frame[at] ^= 0x01;
            dropped(&mut w, "rx_drop_tcp_checksum", &frame);
        }
    }
    // The checksum covers the addresses.
    let mut moved = w.peer.frame(&segments[1]);
    moved[IP + 15] ^= 4;
    mend_ipv4(&mut moved);
    dropped(&mut w, "rx_drop_tcp_checksum", &moved);
    // A checksum field of zero is wrong.
    let mut none = w.peer.frame(&segments[1]);
    none[TCP + 16..TCP + 18].fill(0);
    dropped(&mut w, "rx_drop_tcp_checksum", &none);
    client.nxt += 0;
    w.send(&client.data(b"unharmed"));
    w.tcp_with(Flags::ACK);
    w.app.take_events();
}

#[test]
fn arp_messages_that_lie() {
    let mut w = World::new();
    let whole = frames::arp_request(w.peer.mac, PEER_V4, STACK_V4);
    for len in IP..IP + 28 {
        dropped(&mut w, "rx_drop_arp", &whole[..len]);
    }
    for (at, value) in [
        (IP, 9),        // hardware
        (IP + 2, 0x86), // protocol
        (IP + 4, 5),    // length of a MAC address
        (IP + 5, 16),   // length of an IP address
        (IP + 7, 9),    // operation
        (IP + 8, 0x03), // a group as the sender
        (IP + 14, 224), // a group's IP address
    ] {
        let mut frame = whole.clone();
        frame[at] = value;
        dropped(&mut w, "rx_drop_arp", &frame);
    }
}

#[test]
fn icmp_messages_that_lie() {
    let mut w = World::new();
    let mac = w.peer.mac;
    let v4 = |body: &[u8]| ip_frame(mac, STACK_MAC, PEER_V4, STACK_V4, protocol::ICMP, body);
    let v6 = |body: &[u8]| ip_frame(mac, STACK_MAC, PEER_V6, STACK_V6, protocol::ICMPV6, body);
    for len in 0..8 {
        dropped(
            &mut w,
            "rx_drop_icmp",
            &v4(&[8, 0, 0, 0, 0, 0, 0, 0][..len]),
        );
        dropped(
            &mut w,
            "rx_drop_icmp",
            &v6(&[128, 0, 0, 0, 0, 0, 0, 0][..len]),
        );
    }
    // Wrong checksums, unknown types, and errors with empty quotes.
    dropped(&mut w, "rx_drop_icmp", &v4(&[8, 0, 1, 2, 3, 4, 5, 6]));
    for kind in [0u8, 4, 5, 9, 13, 40, 255] {
        let sum = !u16::from_be_bytes([kind, 0]);
        let [high, low] = sum.to_be_bytes();
        dropped(
            &mut w,
            "rx_drop_icmp",
            &v4(&[kind, 0, high, low, 0, 0, 0, 0]),
        );
    }
    for code in 0..17u8 {
        let sum = !u16::from_be_bytes([3, code]);
        let [high, low] = sum.to_be_bytes();
        dropped(
            &mut w,
            "rx_drop_icmp",
            &v4(&[3, code, high, low, 0, 0, 0, 0]),
        );
    }
    for message in [
        icmpv6::Message::PacketTooBig { mtu: 0, quote: &[] },
        icmpv6::Message::DestinationUnreachable {
            code: 3,
            quote: &[0x60; 30],
        },
        icmpv6::Message::TimeExceeded {
            code: 0,
            quote: &[],
        },
    ] {
        let frame = frames::icmp6_frame(mac, STACK_MAC, PEER_V6, STACK_V6, &message);
        dropped(&mut w, "rx_drop_icmp", &frame);
    }
}

#[test]
fn solicitations_that_lie() {
    let mut w = World::new();
    let whole = frames::solicitation(w.peer.mac, PEER_V6, STACK_V6);
    // A solicitation to a group that is not ours.
    let other = frames::solicitation(w.peer.mac, PEER_V6, "fd00::9".parse().unwrap());
    dropped(&mut w, "rx_drop_icmp", &other);
    // A solicitation whose source is our own address.
    let mine = frames::solicitation(w.peer.mac, STACK_V6, STACK_V6);
    dropped(&mut w, "rx_drop_icmp", &mine);
    // A solicitation that a router forwarded.
    let mut far = whole.clone();
    far[IP + 7] = 254;
    dropped(&mut w, "rx_drop_icmp", &far);
    // A truncated solicitation.
    for len in IP + 40..whole.len() {
        dropped(&mut w, "rx_drop_ip_header", &whole[..len]);
    }
}

#[test]
fn random_bytes_move_nothing_but_drops() {
    let (mut w, mut client) = live();
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    for round in 0..3_000 {
        let len = usize::from(next()) % 120;
        let mut frame: Vec<u8> = (0..len + 14).map(|_| next()).collect();
        if round % 2 == 0 {
            frame[..6].copy_from_slice(&STACK_MAC.0);
            let kind = [EtherType::IPV4, EtherType::IPV6, EtherType::ARP][round / 2 % 3];
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
        }
        let moved = w.counted(|w| w.send_frame(&frame));
        let drops = moved.iter().all(|(name, _)| name.starts_with("rx_drop"));
        assert!(drops && moved.len() == 1, "{frame:02x?}: {moved:?}");
    }
    w.silent();
    assert_eq!(w.peer.mac, MacAddr([2, 0, 0, 0, 0, 2]));
    w.send(&client.data(b"unharmed"));
    w.tcp_with(Flags::ACK);
    w.app.take_events();
}
