//! ARP and IPv6 neighbour discovery as a Linux kernel speaks them.

mod dump;

use dump::{dissect, dump};
use std::net::Ipv6Addr;
use wire::ethernet::{self, EtherType};
use wire::icmpv6::{Message, NeighborFlags, solicited_node};
use wire::{MacAddr, WireError, arp, protocol};

const MAC_1: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const MAC_2: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// Parses the ARP packet of a frame, and checks that emitting it gives the same bytes.
fn arp_of(frame: &[u8]) -> (ethernet::Header, arp::Repr) {
    let (eth, at) = ethernet::Header::parse(frame).unwrap();
    assert_eq!(eth.ethertype, EtherType::ARP);
    let repr = arp::Repr::parse(&frame[at..]).unwrap();
    let mut again = [0u8; 28];
    assert_eq!(repr.emit(&mut again), 28);
    assert_eq!(again, frame[at..]);
    (eth, repr)
}

/// Hands the ICMPv6 message of a frame to `check`. With `emits_same`, emitting the message must
/// give the same bytes.
fn with_icmpv6(frame: &[u8], emits_same: bool, check: impl FnOnce(Message<'_>)) {
    let packet = dissect(frame);
    assert_eq!(packet.protocol, protocol::ICMPV6);
    let (src, dst) = (packet.src.to_v6(), packet.dst.to_v6());
    let message = Message::parse(&packet.payload, src, dst, packet.hop_limit).unwrap();
    let mut again = vec![0u8; packet.payload.len()];
    let len = message.emit(&mut again, src, dst);
    assert_eq!(again[..len] == packet.payload, emits_same);
    check(message);
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

#[test]
fn arp_request_asks_everyone() {
    let frame = dump(
        "
        ff ff ff ff ff ff 02 00 00 00 00 01 08 06       ; ethernet
        00 01 08 00 06 04 00 01                         ; arp: ethernet, ipv4, request
        02 00 00 00 00 01                               ; sender's mac
        c0 00 02 01                                     ; sender's ip
        00 00 00 00 00 00                               ; target's mac
        c0 00 02 02                                     ; target's ip
        ",
    );
    let (eth, repr) = arp_of(&frame);
    assert_eq!((eth.dst, eth.src), (MacAddr::BROADCAST, MAC_1));
    let expected = arp::Repr {
        op: arp::Operation::Request,
        sha: MAC_1,
        spa: [192, 0, 2, 1].into(),
        tha: MacAddr::UNSPECIFIED,
        tpa: [192, 0, 2, 2].into(),
    };
    assert_eq!(repr, expected);
}

#[test]
fn arp_reply_answers_who_asked() {
    let frame = dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 08 06       ; ethernet
        00 01 08 00 06 04 00 02                         ; arp: ethernet, ipv4, reply
        02 00 00 00 00 02                               ; sender's mac
        c0 00 02 02                                     ; sender's ip
        02 00 00 00 00 01                               ; target's mac
        c0 00 02 01                                     ; target's ip
        ",
    );
    let (eth, repr) = arp_of(&frame);
    assert_eq!((eth.dst, eth.src), (MAC_1, MAC_2));
    let expected = arp::Repr {
        op: arp::Operation::Reply,
        sha: MAC_2,
        spa: [192, 0, 2, 2].into(),
        tha: MAC_1,
        tpa: [192, 0, 2, 1].into(),
    };
    assert_eq!(repr, expected);
}

#[test]
fn arp_announcement_is_a_request_for_oneself() {
    let frame = dump(
        "
        ff ff ff ff ff ff 02 00 00 00 00 02 08 06       ; ethernet
        00 01 08 00 06 04 00 01                         ; arp: ethernet, ipv4, request
        02 00 00 00 00 02                               ; sender's mac
        c0 00 02 02                                     ; sender's ip
        00 00 00 00 00 00                               ; target's mac
        c0 00 02 02                                     ; target's ip
        ",
    );
    let (eth, repr) = arp_of(&frame);
    assert!(eth.dst.is_broadcast());
    assert_eq!((repr.op, repr.spa), (arp::Operation::Request, repr.tpa));
}

#[test]
fn neighbor_solicitation_goes_to_the_solicited_node_group() {
    let frame = dump(
        "
        33 33 ff 00 00 02 02 00 00 00 00 01 86 dd       ; ethernet
        60 00 00 00 00 20 3a ff                         ; ipv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01 ;   source
        ff 02 00 00 00 00 00 00 00 00 00 01 ff 00 00 02 ;   destination
        87 00 1c 27 00 00 00 00                         ; icmpv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 02 ; target
        01 01 02 00 00 00 00 01                         ; source link-layer address
        ",
    );
    let packet = dissect(&frame);
    let group = solicited_node(v6("2001:db8::2"));
    assert_eq!(packet.dst.to_v6(), group);
    assert_eq!(packet.eth.dst, MacAddr::multicast_v6(group));
    with_icmpv6(&frame, true, |message| {
        let expected = Message::NeighborSolicitation {
            target: v6("2001:db8::2"),
            source_lladdr: Some(MAC_1),
        };
        assert_eq!(message, expected);
    });
}

#[test]
fn neighbor_advertisement_answers() {
    let frame = dump(
        "
        02 00 00 00 00 01 02 00 00 00 00 02 86 dd       ; ethernet
        60 00 00 00 00 20 3a ff                         ; ipv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 02 ;   source
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01 ;   destination
        88 00 0a 71 e0 00 00 00                         ; icmpv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 02 ; target
        02 01 02 00 00 00 00 02                         ; target link-layer address
        ",
    );
    with_icmpv6(&frame, true, |message| {
        let expected = Message::NeighborAdvertisement {
            flags: NeighborFlags {
                router: true,
                solicited: true,
                overrides: true,
            },
            target: v6("2001:db8::2"),
            target_lladdr: Some(MAC_2),
        };
        assert_eq!(message, expected);
    });
}

#[test]
fn unsolicited_advertisement_goes_to_all_nodes() {
    let frame = dump(
        "
        33 33 00 00 00 01 02 00 00 00 00 02 86 dd       ; ethernet
        60 00 00 00 00 20 3a ff                         ; ipv6
        fe 80 00 00 00 00 00 00 00 00 00 ff fe 00 00 02 ;   source
        ff 02 00 00 00 00 00 00 00 00 00 00 00 00 00 01 ;   destination
        88 00 d9 97 a0 00 00 00                         ; icmpv6
        fe 80 00 00 00 00 00 00 00 00 00 ff fe 00 00 02 ; target
        02 01 02 00 00 00 00 02                         ; target link-layer address
        ",
    );
    assert_eq!(dissect(&frame).dst.to_v6(), v6("ff02::1"));
    with_icmpv6(&frame, true, |message| {
        let expected = Message::NeighborAdvertisement {
            flags: NeighborFlags {
                router: true,
                solicited: false,
                overrides: true,
            },
            target: v6("fe80::ff:fe00:2"),
            target_lladdr: Some(MAC_2),
        };
        assert_eq!(message, expected);
    });
}

#[test]
fn duplicate_address_probe_comes_from_nobody_and_its_nonce_is_skipped() {
    let frame = dump(
        "
        33 33 ff 00 ab cd 02 00 00 00 00 02 86 dd       ; ethernet
        60 00 00 00 00 20 3a ff                         ; ipv6
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 ;   source
        ff 02 00 00 00 00 00 00 00 00 00 01 ff 00 ab cd ;   destination
        87 00 bc 17 00 00 00 00                         ; icmpv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 ab cd ; target
        0e 01 e0 94 f5 fa 54 a3                         ; nonce
        ",
    );
    assert!(dissect(&frame).src.is_unspecified());
    with_icmpv6(&frame, false, |message| {
        let expected = Message::NeighborSolicitation {
            target: v6("2001:db8::abcd"),
            source_lladdr: None,
        };
        assert_eq!(message, expected);
    });
}

#[test]
fn multicast_report_is_found_behind_the_router_alert() {
    let frame = dump(
        "
        33 33 00 00 00 16 02 00 00 00 00 02 86 dd       ; ethernet
        60 00 00 00 00 24 00 01                         ; ipv6
        fe 80 00 00 00 00 00 00 00 00 00 ff fe 00 00 02 ;   source
        ff 02 00 00 00 00 00 00 00 00 00 00 00 00 00 16 ;   destination
        3a 00 05 02 00 00 01 00                         ; hop-by-hop: router alert
        8f 00 72 07 00 00 00 01                         ; icmpv6
        04 00 00 00 ff 02 00 00 00 00 00 00 00 00 00 01 ; data
        ff 00 00 00
        ",
    );
    with_icmpv6(&frame, true, |message| {
        let Message::Other { kind, body, .. } = message else {
            panic!("{message:?}");
        };
        assert_eq!((kind, body.len()), (143, 20));
    });
}

#[test]
fn solicitation_that_crossed_a_router_is_refused() {
    let frame = dump(
        "
        33 33 ff 00 00 02 02 00 00 00 00 01 86 dd       ; ethernet
        60 00 00 00 00 20 3a ff                         ; ipv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 01 ;   source
        ff 02 00 00 00 00 00 00 00 00 00 01 ff 00 00 02 ;   destination
        87 00 1c 27 00 00 00 00                         ; icmpv6
        20 01 0d b8 00 00 00 00 00 00 00 00 00 00 00 02 ; target
        01 01 02 00 00 00 00 01                         ; source link-layer address
        ",
    );
    let packet = dissect(&frame);
    let (src, dst) = (packet.src.to_v6(), packet.dst.to_v6());
    let parsed = Message::parse(&packet.payload, src, dst, packet.hop_limit - 1);
    assert_eq!(parsed, Err(WireError::BadHopLimit));
}
