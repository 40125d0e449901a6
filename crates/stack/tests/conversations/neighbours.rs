//! Neighbours on the link: requests and answers, what waits for them, and what happens when none
//! comes.

use std::net::IpAddr;

use wire::arp::{self, Operation};
use wire::icmpv6::{Message as Icmp6, NeighborFlags};
use wire::tcp::Flags;

use crate::common::{
    PEER_V4, PEER_V6, PORT, SECOND, STACK_MAC, STACK_V4, STACK_V6, Seen, World, frames,
};
use packetio::MacAddr;
use std::net::SocketAddr;

fn strangers() -> World {
    let mut w = World::with(|s| s.acquainted = false);
    w.peer.answers_for.clear();
    w
}

#[test]
fn start_announces_each_address() {
    let mut w = World::with(|s| s.acquainted = false);
    w.peer.forget();
    // Announcements leave in the first turn, and a world discards them. A new stack shows them.
    let setup = crate::common::Setup::default();
    let (near, far) = packetio::loopback::pair(&setup.wire).unwrap();
    let (mut stack, _side) = stack::Stack::new(setup.config, Box::new(near), w.now_ns).unwrap();
    let mut peer = crate::common::Peer::new(far);
    stack.turn(w.now_ns);
    peer.collect();
    let (IpAddr::V4(v4), IpAddr::V6(v6)) = (STACK_V4, STACK_V6) else {
        unreachable!()
    };
    let Some(Seen::Arp(told)) = peer.next() else {
        panic!("a gratuitous ARP")
    };
    assert_eq!((told.spa, told.tpa, told.sha), (v4, v4, STACK_MAC));
    let mac = Some(STACK_MAC);
    assert_eq!(peer.next(), Some(Seen::Advertisement { target: v6, mac }));
    assert_eq!(peer.next(), None);
}

#[test]
fn arp_request_for_our_address_is_answered() {
    let mut w = World::new();
    w.send_frame(&frames::arp_request(w.peer.mac, PEER_V4, STACK_V4));
    let Some(Seen::Arp(reply)) = w.peer.next() else {
        panic!("an ARP reply")
    };
    assert_eq!(reply.op, Operation::Reply);
    assert_eq!((reply.sha, reply.tha), (STACK_MAC, w.peer.mac));
    w.send_frame(&frames::arp_request(
        w.peer.mac,
        PEER_V4,
        "10.0.0.9".parse().unwrap(),
    ));
    w.silent();
}

#[test]
fn solicitation_for_our_address_is_answered() {
    let mut w = World::new();
    w.send_frame(&frames::solicitation(w.peer.mac, PEER_V6, STACK_V6));
    let Some(Seen::Advertisement { mac, .. }) = w.peer.next() else {
        panic!("an advertisement")
    };
    assert_eq!(mac, Some(STACK_MAC));
}

#[test]
fn syn_from_an_unknown_neighbour_waits_for_arp_before_its_syn_ack() {
    let mut w = strangers();
    let listener = w.listen();
    let mut client = w.client();
    w.send(&client.syn());
    let Some(Seen::Arp(asked)) = w.peer.next() else {
        panic!("an ARP request")
    };
    assert_eq!(IpAddr::from(asked.tpa), PEER_V4);
    w.silent();
    w.send_frame(&frames::arp_reply(w.peer.mac, &asked));
    let syn_ack = w.tcp_with(Flags::SYN | Flags::ACK);
    client.on_syn_ack(&syn_ack);
    w.send(&client.ack());
    assert!(w.app.accept(listener).is_some());
}

#[test]
fn syns_of_a_crowd_behind_an_unknown_neighbour_are_all_answered_when_it_is_known() {
    let mut w = World::with(|s| {
        s.acquainted = false;
        let limits = &mut s.config.limits;
        (limits.half_open_max, limits.backlog_max) = (1_024, 1_024);
        limits.control_queue_max = 1_024;
    });
    w.peer.answers_for.clear();
    w.listen_at(SocketAddr::new(STACK_V4, PORT), 1_000);
    let mut crowd: Vec<_> = (0..600).map(|_| w.client()).collect();
    for client in &mut crowd {
        w.send(&client.syn());
    }
    let Some(Seen::Arp(asked)) = w.peer.next() else {
        panic!("an ARP request")
    };
    w.silent();
    w.send_frame(&frames::arp_reply(w.peer.mac, &asked));
    let mut answers = 0;
    for _ in 0..crowd.len() {
        answers += w.peer.take_tcp().len();
        w.settle();
    }
    assert_eq!(answers, crowd.len());
}

#[test]
fn syn_from_an_unknown_v6_neighbour_waits_for_discovery() {
    let mut w = strangers();
    let listener = w.listen_at(SocketAddr::new(STACK_V6, PORT), 4);
    let mut client = w.client_v6();
    w.send(&client.syn());
    let Some(Seen::Solicitation { src, target }) = w.peer.next() else {
        panic!("a solicitation")
    };
    assert_eq!(
        (IpAddr::from(src), IpAddr::from(target)),
        (STACK_V6, PEER_V6)
    );
    w.silent();
    w.send_frame(&frames::advertisement(w.peer.mac, STACK_MAC, target, src));
    let syn_ack = w.tcp_with(Flags::SYN | Flags::ACK);
    client.on_syn_ack(&syn_ack);
    w.send(&client.ack());
    assert!(w.app.accept(listener).is_some());
}

#[test]
fn syn_sent_waits_for_arp_and_leaves_with_the_answer() {
    let mut w = strangers();
    let socket = w.app.connect(SocketAddr::new(PEER_V4, 80));
    w.settle();
    let Some(Seen::Arp(asked)) = w.peer.next() else {
        panic!("an ARP request")
    };
    w.silent();
    w.advance(SECOND / 2);
    w.silent();
    w.send_frame(&frames::arp_reply(w.peer.mac, &asked));
    w.tcp_with(Flags::SYN);
    assert_eq!(w.app.errno(socket), None);
}

/// A connection whose neighbour entry has just become stale and whose neighbour is silent. It is
/// probed five seconds later and fails after eight.
fn silenced() -> (World, crate::common::Client, ring::socket_block::SocketId) {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.advance(120 * SECOND);
    w.write(socket, b"anybody there?");
    let data = w.tcp();
    client.take(&data);
    w.send(&client.ack());
    w.peer.answers_for.clear();
    (w, client, socket)
}

#[test]
fn established_with_a_neighbour_that_falls_silent_outlives_it() {
    for half_seconds in [8, 14, 16, 17, 18, 20, 40] {
        let (mut w, client, socket) = silenced();
        w.advance(half_seconds * SECOND / 2);
        // Nothing is in flight; what is written now must not be lost.
        w.write(socket, b"hello again");
        w.advance(12 * SECOND);
        assert_eq!(w.app.errno(socket), None);
        w.peer.answers_for = vec![PEER_V4];
        w.peer.forget();
        w.advance(40 * SECOND);
        let segments = w.peer.take_tcp();
        assert!(!segments.is_empty(), "the data never left");
        assert_eq!(segments[0].payload, b"hello again");
        assert_eq!(segments[0].seq, client.rcv);
    }
}

#[test]
fn established_with_more_to_say_than_may_leave_when_its_neighbour_falls_silent_waits() {
    let (mut w, _, socket) = silenced();
    // Data beyond the congestion window is held back. Each attempt to send it must end.
    for _ in 0..40 {
        let _ = w.app.write(socket, &[7; 4_000]);
        w.advance(SECOND);
    }
    assert_eq!(w.app.errno(socket), None);
    w.peer.answers_for = vec![PEER_V4];
    w.peer.forget();
    w.advance(60 * SECOND);
    assert!(!w.peer.take_tcp().is_empty(), "the data never left");
}

#[test]
fn established_with_new_data_from_its_neighbour_does_not_ask_whether_it_is_there() {
    let (mut w, mut client, socket) = silenced();
    for _ in 0..120 {
        w.send(&client.data(b"here I am"));
        assert_eq!(w.read(socket), b"here I am");
        w.advance(SECOND);
    }
    while let Some(seen) = w.peer.next() {
        assert!(!matches!(seen, Seen::Arp(_)), "{seen:?}");
    }
}

#[test]
fn established_whose_probes_were_lost_acknowledges_what_arrives() {
    let (mut w, mut client, _socket) = silenced();
    // The probes have just ended without an answer.
    w.advance(17 * SECOND / 2);
    w.peer.answers_for = vec![PEER_V4];
    w.peer.forget();
    // One segment was lost, so received data does not confirm the neighbour.
    client.data(b"lost");
    w.send(&client.data(b"found"));
    // The stack asks the whole link, gets an answer, and sends the ACK.
    w.tcp_with(Flags::ACK);
}

#[test]
fn orphan_whose_neighbour_is_gone_ends() {
    for half_seconds in [8, 14, 16, 17, 18, 20, 40] {
        let (mut w, _client, socket) = silenced();
        w.advance(half_seconds * SECOND / 2);
        w.close(socket);
        w.advance(900 * SECOND);
        let usage = w.stack.usage();
        assert_eq!((usage.sockets, usage.flows), (1, 0), "only the listener");
    }
}

#[test]
fn more_neighbours_wanted_than_the_cache_holds_all_get_an_answer() {
    let mut w = World::with(|s| {
        s.config.addresses[0] = "10.0.0.1/16".parse().unwrap();
        s.config.limits.sockets_max = 4096;
        s.config.gateways.clear();
    });
    let mut sockets = Vec::new();
    for host in 0..1_100u32 {
        let address = std::net::Ipv4Addr::from(0x0a00_0100 + host);
        if w.app.side.sockets.is_empty() {
            w.turn();
        }
        sockets.push(w.app.connect(SocketAddr::new(address.into(), 80)));
    }
    w.advance(400 * SECOND);
    for socket in sockets {
        assert!(w.app.errno(socket).is_some(), "{socket:?} waits for ever");
    }
}

#[test]
fn neighbour_with_another_mac_is_followed() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.peer.mac = MacAddr([2, 0, 0, 0, 0, 9]);
    w.send_frame(&frames::arp_request(w.peer.mac, PEER_V4, STACK_V4));
    w.peer.forget();
    w.write(socket, b"to your new card");
    let data = w.tcp();
    assert_eq!(client.take(&data), b"to your new card");
}

#[test]
fn arp_from_somebody_with_our_address_changes_nothing() {
    let mut w = World::new();
    let moved = w.counted(|w| w.send_frame(&frames::arp_request(w.peer.mac, STACK_V4, STACK_V4)));
    assert_eq!(moved, [("rx_drop_arp", 1)]);
    w.silent();
}

#[test]
fn arp_reply_that_nobody_asked_for_is_not_learned() {
    let mut w = World::new();
    w.peer.answers_for.clear();
    let IpAddr::V4(tpa) = STACK_V4 else {
        unreachable!()
    };
    let reply = arp::Repr {
        op: Operation::Reply,
        sha: w.peer.mac,
        spa: "10.0.0.50".parse().unwrap(),
        tha: STACK_MAC,
        tpa,
    };
    w.send_frame(&frames::arp_frame(w.peer.mac, STACK_MAC, &reply));
    w.app.connect("10.0.0.50:80".parse().unwrap());
    w.settle();
    assert!(matches!(w.peer.next(), Some(Seen::Arp(_))));
}

#[test]
fn advertisement_from_beyond_the_link_is_dropped() {
    let mut w = World::new();
    let IpAddr::V6(target) = PEER_V6 else {
        unreachable!()
    };
    let IpAddr::V6(to) = STACK_V6 else {
        unreachable!()
    };
    let message = Icmp6::NeighborAdvertisement {
        flags: NeighborFlags::default(),
        target,
        target_lladdr: Some(w.peer.mac),
    };
    let mut bytes = vec![0; message.emit_len()];
    message.emit(&mut bytes, target, to);
    let packet = frames::ipv6_packet(target, to, wire::protocol::ICMPV6, 254, &bytes);
    let ethertype = wire::ethernet::EtherType::IPV6;
    let frame = frames::ethernet_frame(w.peer.mac, STACK_MAC, ethertype, &packet);
    let moved = w.counted(|w| w.send_frame(&frame));
    assert_eq!(moved, [("rx_drop_icmp", 1)]);
}
