//! Tests of ARP and neighbour discovery. We are 10.0.0.1 and fe80::1 on port 0.

use super::*;
use crate::network::addresses::IpCidr;
use crate::network::neighbours::{Link, NeighbourState, NeighbourTimers};

const US: LinkIdentity = LinkIdentity {
    port: 0,
    mac: MacAddr([2, 0, 0, 0, 0, 1]),
};
const THEM: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

struct World {
    addresses: LocalAddresses,
    neighbours: Neighbours,
}

fn v4(text: &str) -> core::net::Ipv4Addr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

impl World {
    fn new() -> World {
        let mut addresses = LocalAddresses::new();
        for cidr in ["10.0.0.1/24", "fe80::1/64", "2001:db8::1/64"] {
            addresses.add(cidr.parse::<IpCidr>().unwrap(), 0).unwrap();
        }
        World {
            addresses,
            neighbours: Neighbours::new(NeighbourTimers::default(), [1, 2]),
        }
    }

    fn arp(&mut self, op: Operation, spa: &str, tpa: &str) -> Result<Handled, WireError> {
        self.arp_to(op, spa, (US.mac, tpa))
    }

    fn arp_to(
        &mut self,
        op: Operation,
        spa: &str,
        (tha, tpa): (MacAddr, &str),
    ) -> Result<Handled, WireError> {
        let arp = Repr {
            op,
            sha: THEM,
            spa: v4(spa),
            tha,
            tpa: v4(tpa),
        };
        let mut packet = [0; 46];
        arp.emit(&mut packet);
        on_arp(&packet, US, &self.addresses, &mut self.neighbours, 0)
    }

    fn nd(&mut self, message: Message<'_>, source: &str) -> Result<Handled, WireError> {
        on_nd(
            &message,
            v6(source),
            US,
            &self.addresses,
            &mut self.neighbours,
            0,
        )
    }
}

fn parse_arp(frame: &ControlFrame) -> (MacAddr, MacAddr, Repr) {
    let (ethernet, at) = Header::parse(frame.as_slice()).unwrap();
    assert_eq!(ethernet.ethertype, EtherType::ARP);
    (
        ethernet.dst,
        ethernet.src,
        Repr::parse(&frame.as_slice()[at..]).unwrap(),
    )
}

fn parse_nd(frame: &ControlFrame) -> (MacAddr, Ipv6Addr, Ipv6Addr, Message<'_>) {
    let (ethernet, at) = Header::parse(frame.as_slice()).unwrap();
    assert_eq!(
        (ethernet.ethertype, ethernet.src),
        (EtherType::IPV6, US.mac)
    );
    let packet = &frame.as_slice()[at..];
    let ip = ipv6::Header::parse(packet, packet.len()).unwrap();
    let message =
        Message::parse(&packet[ipv6::HEADER_LEN..], ip.src, ip.dst, ip.hop_limit).unwrap();
    (ethernet.dst, ip.src, ip.dst, message)
}

#[test]
fn arp_question_for_us_is_answered_and_teaches() {
    let mut world = World::new();
    let handled = world
        .arp(Operation::Request, "10.0.0.2", "10.0.0.1")
        .unwrap();
    let (dst, src, arp) = parse_arp(&handled.reply.unwrap());
    assert_eq!((dst, src), (THEM, US.mac));
    let expected = Repr {
        op: Operation::Reply,
        sha: US.mac,
        spa: v4("10.0.0.1"),
        tha: THEM,
        tpa: v4("10.0.0.2"),
    };
    assert_eq!(arp, expected);
    let id = world
        .neighbours
        .resolve(0, v4("10.0.0.2").into(), 0)
        .unwrap();
    assert_eq!(world.neighbours.link(id, 0), Link::Ready(THEM));
}

#[test]
fn arp_question_for_others_teaches_nothing() {
    let mut world = World::new();
    let handled = world
        .arp(Operation::Request, "10.0.0.2", "10.0.0.3")
        .unwrap();
    assert!(handled.reply.is_none());
    assert!(world.neighbours.is_empty());
}

#[test]
fn arp_answer_resolves_what_was_asked() {
    let mut world = World::new();
    let id = world
        .neighbours
        .resolve(0, v4("10.0.0.2").into(), 0)
        .unwrap();
    assert!(world.neighbours.wait(id, 1));
    let handled = world.arp(Operation::Reply, "10.0.0.2", "10.0.0.1").unwrap();
    assert!(handled.reply.is_none());
    assert_eq!(handled.release, Some(id));
    assert_eq!(world.neighbours.link(id, 0), Link::Ready(THEM));
}

#[test]
fn arp_answer_that_nobody_asked_for_teaches_nothing() {
    let mut world = World::new();
    world.arp(Operation::Reply, "10.0.0.2", "10.0.0.1").unwrap();
    world
        .arp(Operation::Request, "10.0.0.2", "10.0.0.2")
        .unwrap();
    assert!(world.neighbours.is_empty());
}

#[test]
fn arp_answer_confirms_only_if_it_is_meant_for_us() {
    let others = MacAddr([2, 0, 0, 0, 0, 9]);
    for (meant_for, state) in [
        ((US.mac, "10.0.0.1"), NeighbourState::Reachable),
        ((others, "10.0.0.1"), NeighbourState::Stale),
        ((US.mac, "10.0.0.3"), NeighbourState::Stale),
    ] {
        let mut world = World::new();
        let them = v4("10.0.0.2").into();
        let id = world.neighbours.resolve(0, them, 0).unwrap();
        let told = world.arp_to(Operation::Reply, "10.0.0.2", meant_for);
        assert!(told.unwrap().reply.is_none());
        assert_eq!(world.neighbours.state(id), Some(state), "{meant_for:?}");
    }
}

#[test]
fn arp_announcement_moves_a_known_neighbour() {
    let mut world = World::new();
    let id = world
        .neighbours
        .resolve(0, v4("10.0.0.2").into(), 0)
        .unwrap();
    let said = Advertisement {
        mac: Some(MacAddr([2; 6])),
        solicited: true,
        overrides: true,
    };
    let _ = world
        .neighbours
        .on_advertisement(0, v4("10.0.0.2").into(), said, 0);
    world
        .arp(Operation::Request, "10.0.0.2", "10.0.0.2")
        .unwrap();
    assert_eq!(world.neighbours.link(id, 0), Link::Ready(THEM));
}

#[test]
fn arp_probe_of_our_address_is_answered_and_teaches_nothing() {
    let mut world = World::new();
    assert!(
        world
            .arp(Operation::Request, "0.0.0.0", "10.0.0.1")
            .unwrap()
            .reply
            .is_some()
    );
    assert!(
        world
            .arp(Operation::Request, "0.0.0.0", "10.0.0.2")
            .unwrap()
            .reply
            .is_none()
    );
    assert!(world.neighbours.is_empty());
}

#[test]
fn arp_from_where_no_neighbour_is_is_refused() {
    let mut world = World::new();
    for sender in ["10.0.0.1", "10.0.0.255", "224.0.0.1", "127.0.0.1"] {
        let refused = world
            .arp(Operation::Request, sender, "10.0.0.1")
            .unwrap_err();
        assert_eq!(refused, WireError::BadAddress, "{sender}");
    }
    let short = on_arp(&[0; 10], US, &world.addresses, &mut world.neighbours, 0);
    assert_eq!(short.unwrap_err(), WireError::Truncated);
}

#[test]
fn arp_from_off_the_link_is_answered_and_updates_but_is_not_learned() {
    let mut world = World::new();
    let asked = world.arp(Operation::Request, "169.254.1.1", "10.0.0.1");
    assert!(asked.unwrap().reply.is_some());
    assert!(world.neighbours.is_empty());
    // Some clouds have the gateway outside of our subnets.
    let id = world
        .neighbours
        .resolve(0, v4("169.254.1.1").into(), 0)
        .unwrap();
    world
        .arp(Operation::Reply, "169.254.1.1", "10.0.0.1")
        .unwrap();
    assert_eq!(world.neighbours.link(id, 0), Link::Ready(THEM));
}

#[test]
fn nd_solicitation_without_mac_is_answered_from_the_cache() {
    let mut world = World::new();
    let asked = Message::NeighborSolicitation {
        target: v6("fe80::1"),
        source_lladdr: None,
    };
    // The neighbour is unresolved, so the answer waits.
    assert!(world.nd(asked, "fe80::2").unwrap().reply.is_none());
    let told = Message::NeighborAdvertisement {
        flags: NeighborFlags {
            router: false,
            solicited: true,
            overrides: true,
        },
        target: v6("fe80::2"),
        target_lladdr: Some(THEM),
    };
    let id = world.nd(told, "fe80::2").unwrap().release.unwrap();
    let mut sent = 0;
    world.neighbours.release(id, |waiter| {
        assert!(matches!(waiter, crate::network::neighbours::Waiter::Frame(frame) if frame[..6] == THEM.0));
        sent += 1;
    });
    assert_eq!(sent, 1);
    let frame = world.nd(asked, "fe80::2").unwrap().reply.unwrap();
    let (dst_mac, _, dst, message) = parse_nd(&frame);
    assert_eq!((dst_mac, dst), (THEM, v6("fe80::2")));
    assert!(matches!(message, Message::NeighborAdvertisement { .. }));
}

#[test]
fn arp_request_is_broadcast_or_unicast() {
    let world = World::new();
    let mut request = Request {
        port: 0,
        target: v4("10.0.0.2").into(),
        unicast: None,
    };
    let (dst, _, arp) = parse_arp(&request_frame(&request, US, &world.addresses).unwrap());
    assert_eq!((dst, arp.op), (MacAddr::BROADCAST, Operation::Request));
    assert_eq!(
        (arp.spa, arp.tpa, arp.sha),
        (v4("10.0.0.1"), v4("10.0.0.2"), US.mac)
    );
    request.unicast = Some(THEM);
    let (dst, _, _) = parse_arp(&request_frame(&request, US, &world.addresses).unwrap());
    assert_eq!(dst, THEM);
    assert!(request_frame(&request, US, &LocalAddresses::new()).is_none());
}

#[test]
fn nd_solicitation_for_us_is_answered_and_teaches() {
    let mut world = World::new();
    let asked = Message::NeighborSolicitation {
        target: v6("fe80::1"),
        source_lladdr: Some(THEM),
    };
    let handled = world.nd(asked, "fe80::2").unwrap();
    let frame = handled.reply.unwrap();
    let (dst_mac, src, dst, message) = parse_nd(&frame);
    assert_eq!((dst_mac, src, dst), (THEM, v6("fe80::1"), v6("fe80::2")));
    let expected = Message::NeighborAdvertisement {
        flags: NeighborFlags {
            router: false,
            solicited: true,
            overrides: true,
        },
        target: v6("fe80::1"),
        target_lladdr: Some(US.mac),
    };
    assert_eq!(message, expected);
    let id = world
        .neighbours
        .resolve(0, v6("fe80::2").into(), 0)
        .unwrap();
    assert_eq!(world.neighbours.link(id, 0), Link::Ready(THEM));
}

#[test]
fn nd_solicitation_for_others_is_ignored() {
    let mut world = World::new();
    let asked = Message::NeighborSolicitation {
        target: v6("fe80::3"),
        source_lladdr: Some(THEM),
    };
    let handled = world.nd(asked, "fe80::2").unwrap();
    assert!(handled.reply.is_none() && handled.release.is_none());
    assert!(world.neighbours.is_empty());
}

#[test]
fn nd_probe_for_a_duplicate_is_told_to_all() {
    let mut world = World::new();
    let asked = Message::NeighborSolicitation {
        target: v6("fe80::1"),
        source_lladdr: None,
    };
    let frame = world.nd(asked, "::").unwrap().reply.unwrap();
    let (dst_mac, _, dst, message) = parse_nd(&frame);
    assert_eq!(
        (dst_mac, dst),
        (MacAddr([0x33, 0x33, 0, 0, 0, 1]), ALL_NODES)
    );
    let Message::NeighborAdvertisement { flags, .. } = message else {
        panic!()
    };
    assert!(!flags.solicited && flags.overrides);
}

#[test]
fn nd_advertisement_resolves_what_was_asked() {
    let mut world = World::new();
    let id = world
        .neighbours
        .resolve(0, v6("fe80::2").into(), 0)
        .unwrap();
    assert!(world.neighbours.wait(id, 1));
    let told = Message::NeighborAdvertisement {
        flags: NeighborFlags {
            router: false,
            solicited: true,
            overrides: true,
        },
        target: v6("fe80::2"),
        target_lladdr: Some(THEM),
    };
    assert_eq!(world.nd(told, "fe80::2").unwrap().release, Some(id));
    assert_eq!(world.neighbours.link(id, 0), Link::Ready(THEM));
}

#[test]
fn nd_claim_of_our_address_is_refused() {
    let mut world = World::new();
    let told = Message::NeighborAdvertisement {
        flags: NeighborFlags::default(),
        target: v6("fe80::1"),
        target_lladdr: Some(THEM),
    };
    assert_eq!(
        world.nd(told, "fe80::1").unwrap_err(),
        WireError::BadAddress
    );
}

#[test]
fn nd_request_goes_to_the_solicited_node_group() {
    let world = World::new();
    let request = Request {
        port: 0,
        target: v6("2001:db8::12:3456").into(),
        unicast: None,
    };
    let frame = request_frame(&request, US, &world.addresses).unwrap();
    let (dst_mac, src, dst, message) = parse_nd(&frame);
    assert_eq!(dst, v6("ff02::1:ff12:3456"));
    assert_eq!(dst_mac, MacAddr([0x33, 0x33, 0xff, 0x12, 0x34, 0x56]));
    assert_eq!(src, v6("2001:db8::1"));
    let expected = Message::NeighborSolicitation {
        target: v6("2001:db8::12:3456"),
        source_lladdr: Some(US.mac),
    };
    assert_eq!(message, expected);
    let probe = Request {
        unicast: Some(THEM),
        ..request
    };
    let frame = request_frame(&probe, US, &world.addresses).unwrap();
    let (dst_mac, _, dst, _) = parse_nd(&frame);
    assert_eq!((dst_mac, dst), (THEM, v6("2001:db8::12:3456")));
}

#[test]
fn announcements_say_where_we_are() {
    let (dst, _, arp) = parse_arp(&announcement_frame(v4("10.0.0.1").into(), US));
    assert_eq!(
        (dst, arp.spa, arp.tpa),
        (MacAddr::BROADCAST, v4("10.0.0.1"), v4("10.0.0.1"))
    );
    let frame = announcement_frame(v6("fe80::1").into(), US);
    let (_, src, dst, message) = parse_nd(&frame);
    assert_eq!((src, dst), (v6("fe80::1"), ALL_NODES));
    assert!(
        matches!(message, Message::NeighborAdvertisement { target_lladdr: Some(mac), .. } if mac == US.mac)
    );
}

#[test]
fn own_groups_are_all_nodes_and_solicited_nodes() {
    let world = World::new();
    for (group, own) in [
        ("ff02::1", true),
        ("ff02::1:ff00:1", true),
        ("ff02::1:ff00:2", false),
        ("ff02::2", false),
    ] {
        assert_eq!(is_own_group(v6(group), &world.addresses), own, "{group}");
    }
}
