//! Connections of a stack with its own addresses: their frames never reach the wire.

use std::net::SocketAddr;

use ring::socket_block::{SocketId, SocketState};
use rustix::io::Errno;
use wire::tcp::Flags;

use crate::common::{MILLIS, PEER_V4, PORT, SECOND, STACK_V4, STACK_V6, World};

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// A stack with loopback addresses.
fn with_loopback() -> World {
    World::with(|s| s.config.loopback = true)
}

/// Both ends of a connection from the stack to its own listener at `place`.
fn pair(w: &mut World, place: SocketAddr) -> (SocketId, SocketId) {
    let listener = w.listen_at(place, 4);
    let near = w.app.connect(place);
    w.settle();
    assert!(w.app.has(near, SocketState::CONNECTED), "{place}");
    let far = w.app.accept(listener).expect("a connection");
    (near, far)
}

fn talk(w: &mut World, (near, far): (SocketId, SocketId)) {
    w.write(near, b"question");
    assert_eq!(w.read(far), b"question");
    w.write(far, b"answer");
    assert_eq!(w.read(near), b"answer");
    w.app.shutdown(near);
    w.settle();
    assert!(w.app.has(far, SocketState::EOF));
}

#[test]
fn own_address_listener_is_reached_without_the_wire() {
    for ip in [STACK_V4, STACK_V6] {
        let mut w = World::new();
        let ends = pair(&mut w, SocketAddr::new(ip, PORT));
        talk(&mut w, ends);
        w.silent();
        assert!(w.stack.counters().local_frames > 5);
        assert_eq!(w.stack.counters().local_frames_lost, 0);
    }
}

#[test]
fn loopback_addresses_are_reached_without_the_wire() {
    for place in ["127.0.0.1:80", "127.1.2.3:80", "[::1]:80"] {
        let mut w = with_loopback();
        let ends = pair(&mut w, at(place));
        talk(&mut w, ends);
        w.silent();
    }
}

/// As in Linux, the source is 127.0.0.1 for every destination in 127.0.0.0/8.
#[test]
fn loopback_connection_comes_from_the_host_address() {
    let mut w = with_loopback();
    let (near, far) = pair(&mut w, at("127.1.2.3:80"));
    let names = w.app.block(near).names();
    assert_eq!(names.0.address[12..], [127, 0, 0, 1]);
    assert_eq!(names.1.address[12..], [127, 1, 2, 3]);
    let (local, remote) = w.app.block(far).names();
    assert_eq!((remote, local), names);
}

#[test]
fn unspecified_address_is_the_host_itself() {
    let mut w = with_loopback();
    let listener = w.listen_at(at("0.0.0.0:80"), 4);
    let near = w.app.connect(at("0.0.0.0:80"));
    w.settle();
    assert!(w.app.has(near, SocketState::CONNECTED));
    assert_eq!(w.app.block(near).names().1.address[12..], [127, 0, 0, 1]);
    assert!(w.app.accept(listener).is_some());
}

#[test]
fn port_without_listener_refuses() {
    let mut w = with_loopback();
    for place in [
        SocketAddr::new(STACK_V4, 9),
        at("127.0.0.1:9"),
        at("[::1]:9"),
    ] {
        let socket = w.app.connect(place);
        w.settle();
        assert_eq!(w.app.errno(socket), Some(Errno::CONNREFUSED), "{place}");
        w.close(socket);
    }
    w.silent();
}

#[test]
fn loopback_source_reaches_no_other_host() {
    let mut w = with_loopback();
    let peer = SocketAddr::new(PEER_V4, 80);
    let socket = w.app.connect_from(Some(at("127.0.0.1:0")), peer);
    w.settle();
    assert_eq!(w.app.errno(socket), Some(Errno::INVAL));
    w.close(socket);
    let broadcast = w.app.connect(at("127.255.255.255:80"));
    w.settle();
    assert_eq!(w.app.errno(broadcast), Some(Errno::NETUNREACH));
    w.silent();
}

/// One socket is both ends of the flow: a simultaneous open with itself.
#[test]
fn bound_socket_connects_to_itself() {
    let mut w = World::new();
    let place = SocketAddr::new(STACK_V4, 7_000);
    let socket = w.app.connect_from(Some(place), place);
    w.settle();
    assert!(w.app.has(socket, SocketState::CONNECTED));
    w.write(socket, b"echo");
    assert_eq!(w.read(socket), b"echo");
    w.silent();
}

#[test]
fn loopback_addresses_from_the_wire_are_dropped() {
    let mut w = with_loopback();
    w.listen_at(at("0.0.0.0:80"), 4);
    let loopback = at("127.0.0.1:80");
    let mut to = w.client_from(PEER_V4, loopback);
    let dropped = w.counted(|w| w.send(&to.syn()));
    assert_eq!(dropped, [("rx_drop_other_address", 1)]);
    let mut from = w.client_from(loopback.ip(), SocketAddr::new(STACK_V4, PORT));
    let dropped = w.counted(|w| w.send(&from.syn()));
    assert_eq!(dropped, [("rx_drop_source_address", 1)]);
    w.silent();
}

/// A frame from the wire with the MAC address that marks the stack's own frames.
#[test]
fn frame_for_the_stacks_own_queue_from_the_wire_is_dropped() {
    let mut w = with_loopback();
    w.listen_at(at("127.0.0.1:80"), 4);
    let mut client = w.client_from(at("127.0.0.1:0").ip(), at("127.0.0.1:80"));
    let frame = client
        .syn()
        .frame(w.peer.mac, packetio::local_queue::LOCAL_MAC);
    let dropped = w.counted(|w| w.send_frame(&frame));
    assert_eq!(dropped, [("rx_drop_other_mac", 1)]);
}

#[test]
fn bulk_data_to_itself_arrives_whole() {
    let mut w = with_loopback();
    let (near, far) = pair(&mut w, at("127.0.0.1:80"));
    let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n / 7) as u8).collect();
    let (mut sent, mut got) = (0, Vec::new());
    while got.len() < bytes.len() {
        sent += w.app.write(near, &bytes[sent..]);
        w.settle();
        let before = got.len();
        got.extend(w.read(far));
        if got.len() == before {
            w.advance(MILLIS);
        }
    }
    assert!(got == bytes);
    assert_eq!(w.stack.tcp_counters().retransmit_timeouts, 0);
    assert_eq!(w.stack.counters().rx_drop_tcp_checksum, 0);
}

/// A turn receives what earlier turns queued for the stack itself, and frames of the wire too.
#[test]
fn wire_is_served_in_each_turn_of_a_talk_with_itself() {
    let mut w = with_loopback();
    let (near, far) = pair(&mut w, at("127.0.0.1:80"));
    let (mut client, socket) = {
        let listener = w.listen_at(SocketAddr::new(STACK_V4, 81), 4);
        let mut client = w.client_from(PEER_V4, SocketAddr::new(STACK_V4, 81));
        w.handshake(&mut client);
        (client, w.app.accept(listener).expect("a connection"))
    };
    for round in 0..50_u8 {
        w.app.write(near, &[round; 4_000]);
        w.peer.transmit(&w.peer.frame(&client.data(&[round])));
        w.turn();
        assert_eq!(w.app.read(socket), [round], "in the same turn");
        w.app.read(far);
    }
    w.settle();
    w.peer.forget();
}

/// The wire takes nothing any more, and TCP keeps retransmitting on it. The stack's traffic with
/// itself must not wait.
#[test]
fn stuck_wire_does_not_stop_a_talk_with_itself() {
    let mut w = World::with(|s| {
        s.config.loopback = true;
        s.wire.slots = 4;
    });
    let (near, far) = pair(&mut w, at("127.0.0.1:80"));
    w.peer.deaf = true;
    let outward = w.app.connect(SocketAddr::new(PEER_V4, 443));
    for port in 0..8 {
        w.app.connect(SocketAddr::new(PEER_V4, 444 + port));
    }
    for _ in 0..40 {
        w.turn();
        w.now_ns += 10 * MILLIS;
    }
    assert!(w.stack.counters().tx_backpressure > 0);
    talk(&mut w, (near, far));
    assert!(w.stack.counters().tx_drop_stuck > 0);
    // The wire works again, and a dropped SYN is retransmitted.
    w.peer.deaf = false;
    w.advance(8 * SECOND);
    let syns = w.peer.take_tcp();
    assert!(
        syns.iter()
            .any(|syn| syn.flags == Flags::SYN && syn.dst_port == 451)
    );
    assert!(!w.app.has(outward, SocketState::CONNECTED));
}
