//! Active opens: success, refusal, and the ways in which an answer fails to come.

use std::net::SocketAddr;

use ring::socket_block::SocketState;
use rustix::io::Errno;
use stack::context::{AcceptRings, Connect, Control, Listen, SocketOption};
use wire::tcp::Flags;

use crate::common::{PEER_V4, PEER_V6, SECOND, STACK_V4, Seen, World};

fn remote() -> SocketAddr {
    SocketAddr::new(PEER_V4, 443)
}

#[test]
fn syn_sent_syn_ack_connects() {
    let mut w = World::new();
    let (client, socket) = w.connected(remote());
    assert!(w.app.has(socket, SocketState::CONNECTED));
    assert_eq!(w.stack.counters().connected, 1);
    let (local, peer) = w.app.block(socket).names();
    assert_eq!((local.port, peer.port), (client.stack.port(), 443));
    assert!(local.port >= 16_384);
}

#[test]
fn connected_to_an_address_that_becomes_ours_reaches_it_no_more() {
    let mut w = World::new();
    let (client, socket) = w.connected(remote());
    let cidr = stack::IpCidr::new(PEER_V4, 24).unwrap();
    w.app.control(Control::Address(cidr));
    w.settle();
    // The stack itself owns that address now, and nothing listens there.
    let again = w.app.connect(remote());
    w.settle();
    assert_eq!(w.app.errno(again), Some(Errno::CONNREFUSED));
    w.silent();
    let dropped = w.counted(|w| w.send(&client.segment(Flags::ACK)));
    assert_eq!(dropped, [("rx_drop_source_address", 1)]);
    w.close(socket);
}

#[test]
fn syn_sent_v6_connects() {
    let mut w = World::new();
    let (mut client, socket) = w.connected(SocketAddr::new(PEER_V6, 443));
    w.send(&client.data(b"six"));
    assert_eq!(w.read(socket), b"six");
}

#[test]
fn syn_sent_reset_refuses() {
    let mut w = World::new();
    let socket = w.app.connect(remote());
    w.settle();
    let syn = w.tcp_with(Flags::SYN);
    let client = crate::common::Client::answering(&syn);
    w.send(&client.segment(Flags::RST | Flags::ACK).at(0));
    assert_eq!(w.app.errno(socket), Some(Errno::CONNREFUSED));
    assert_eq!(w.app.take_events(), [socket]);
    assert_eq!(w.stack.usage().flows, 0);
}

#[test]
fn syn_sent_without_an_answer_times_out() {
    let mut w = World::new();
    let socket = w.app.connect(remote());
    w.settle();
    w.advance(400 * SECOND);
    assert_eq!(w.app.errno(socket), Some(Errno::TIMEDOUT));
    let syns = w.peer.take_tcp();
    assert_eq!(
        syns.len(),
        11,
        "one, four at a steady pace, six with doubling"
    );
}

#[test]
fn syn_sent_close_forgets_the_attempt() {
    let mut w = World::new();
    let socket = w.app.connect(remote());
    w.settle();
    let syn = w.tcp_with(Flags::SYN);
    w.close(socket);
    assert_eq!(w.stack.usage().flows, 0);
    let mut client = crate::common::Client::answering(&syn);
    w.send(&client.syn_ack());
    w.tcp_with(Flags::RST);
}

#[test]
fn syn_sent_close_in_the_same_turn_sends_nothing() {
    let mut w = World::new();
    let socket = w.app.connect(remote());
    w.app.close(socket);
    w.settle();
    w.silent();
    assert_eq!(w.stack.usage().sockets, 0);
}

#[test]
fn syn_sent_crossing_syn_is_a_simultaneous_open() {
    let mut w = World::new();
    let socket = w.app.connect(remote());
    w.settle();
    let syn = w.tcp_with(Flags::SYN);
    let mut client = crate::common::Client::answering(&syn);
    let crossing = client.syn();
    w.send(&crossing);
    let syn_ack = w.tcp_with(Flags::SYN | Flags::ACK);
    assert_eq!(syn_ack.ack, client.nxt);
    assert!(!w.app.has(socket, SocketState::CONNECTED));
    w.send(&client.ack());
    assert!(w.app.has(socket, SocketState::CONNECTED));
    w.send(&client.data(b"crossed"));
    assert_eq!(w.read(socket), b"crossed");
}

#[test]
fn connect_to_a_neighbour_that_never_answers_fails_with_ehostunreach() {
    let mut w = World::new();
    let nobody: SocketAddr = "10.0.0.77:80".parse().unwrap();
    let socket = w.app.connect(nobody);
    w.advance(5 * SECOND);
    assert_eq!(w.app.errno(socket), Some(Errno::HOSTUNREACH));
    assert_eq!(w.app.take_events(), [socket]);
    for _ in 0..3 {
        assert!(matches!(w.peer.next(), Some(Seen::Arp(_))));
    }
    w.silent();
    assert_eq!(w.stack.usage().flows, 0);
}

#[test]
fn connect_just_after_a_neighbour_failed_fails_too() {
    let mut w = World::new();
    let nobody: SocketAddr = "10.0.0.77:80".parse().unwrap();
    w.app.connect(nobody);
    // After three requests at intervals of a second the neighbour counts as failed for a second.
    w.advance(3 * SECOND + SECOND / 2);
    let socket = w.app.connect(nobody);
    w.settle();
    w.advance(5 * SECOND);
    assert_eq!(w.app.errno(socket), Some(Errno::HOSTUNREACH));
}

#[test]
fn connect_v6_to_a_neighbour_that_never_answers_fails() {
    let mut w = World::new();
    let socket = w.app.connect("[fd00::77]:80".parse().unwrap());
    w.advance(5 * SECOND);
    assert_eq!(w.app.errno(socket), Some(Errno::HOSTUNREACH));
    assert!(matches!(w.peer.next(), Some(Seen::Solicitation { .. })));
}

#[test]
fn connect_to_a_dead_neighbour_closed_and_index_used_again_leaves_the_new_one_alone() {
    let mut w = World::new();
    let dead = w.app.connect("10.0.0.77:80".parse().unwrap());
    w.settle();
    w.advance(SECOND);
    w.close(dead);
    // Uses up the stock until the socket index is handed out again.
    let mut held = Vec::new();
    let reused = loop {
        let socket = w.app.connect(remote());
        w.settle();
        held.push(socket);
        if socket.index == dead.index {
            break socket;
        }
        assert!(held.len() < 64, "the index never came back");
    };
    w.advance(4 * SECOND);
    assert_eq!(w.app.errno(reused), None, "another's neighbour failed");
}

/// Connects until the index is handed out again; every attempt must send its SYN.
fn connect_round_to(w: &mut World, index: u32) {
    for n in 0..64 {
        w.peer.forget();
        let socket = w.app.connect(remote());
        w.settle();
        assert_eq!(w.app.errno(socket), None, "attempt {n}");
        w.tcp_with(Flags::SYN);
        if socket.index == index {
            return;
        }
    }
    panic!("the index never came back");
}

#[test]
fn connect_to_a_dead_neighbour_closed_then_failed_leaves_its_index_fit_to_connect() {
    let mut w = World::new();
    let dead = w.app.connect("10.0.0.77:80".parse().unwrap());
    w.settle();
    w.advance(SECOND);
    // The stock is empty, so the released index goes to the stock before the neighbour fails.
    let held: Vec<_> = std::iter::from_fn(|| w.app.try_socket()).collect();
    assert!(!held.is_empty());
    w.close(dead);
    w.advance(4 * SECOND);
    connect_round_to(&mut w, dead.index);
}

#[test]
fn established_aborted_in_the_turn_that_brings_data_leaves_its_index_fit_to_connect() {
    let mut w = World::new();
    let (mut client, socket) = w.connected(remote());
    // The stock is empty, so a released index goes to the stock in the same turn.
    let held: Vec<_> = std::iter::from_fn(|| w.app.try_socket()).collect();
    assert!(!held.is_empty());
    let frame = w.peer.frame(&client.data(b"news"));
    w.peer.transmit(&frame);
    w.app.abort(socket);
    w.settle();
    connect_round_to(&mut w, socket.index);
}

#[test]
fn connect_behind_more_requests_than_a_turn_applies_keeps_the_shutdown_behind_it() {
    let mut w = World::with(|s| s.config.limits.control_queue_max = 512);
    let (_client, busy) = w.connected(remote());
    for n in 0..300 {
        w.app.option(busy, SocketOption::NoDelay(n % 2 == 0));
    }
    let socket = w.app.connect_from(None, remote());
    w.app.shutdown(socket);
    w.settle();
    assert_eq!(w.app.errno(socket), None);
    assert!(w.app.has(socket, SocketState::TX_SHUT));
}

#[test]
fn listening_at_its_port_keeps_no_socket_from_connecting() {
    let mut w = World::new();
    let local: SocketAddr = SocketAddr::new(STACK_V4, 5_555);
    w.listen_at(local, 4);
    let socket = w.app.connect_from(Some(local), remote());
    w.settle();
    assert_eq!(w.app.errno(socket), None);
    assert_eq!(w.tcp_with(Flags::SYN).src_port, 5_555);
}

#[test]
fn connect_or_listen_with_what_is_something_already_is_refused() {
    let mut w = World::new();
    let (_client, socket) = w.connected(remote());
    let (answer, mut answers) = ring::spsc::queue(1);
    w.app.control(Control::Connect(Connect {
        socket,
        local: None,
        remote: remote(),
        options: Vec::new(),
        fast_open: false,
        answer: Some(answer),
    }));
    w.settle();
    assert_eq!(answers.pop(), Some(Err(Errno::INVAL)));
    let (answer, mut answers) = ring::spsc::queue(1);
    let (accepted, queue) = ring::spsc::queue(2);
    w.app.control(Control::Listen(Listen {
        socket,
        local: SocketAddr::new(STACK_V4, 5_555),
        accepted,
        rings: AcceptRings::new(queue),
        backlog: 1,
        options: Vec::new(),
        answer: Some(answer),
    }));
    w.settle();
    assert_eq!(answers.pop(), Some(Err(Errno::INVAL)));
}

#[test]
fn connect_without_a_route_fails_with_enetunreach() {
    let mut w = World::new();
    let socket = w.app.connect("192.0.2.1:80".parse().unwrap());
    w.settle();
    assert_eq!(w.app.errno(socket), Some(Errno::NETUNREACH));
    assert_eq!(w.app.take_events(), [socket]);
    let socket = w.app.connect("[2001:db8::1]:80".parse().unwrap());
    w.settle();
    assert_eq!(w.app.errno(socket), Some(Errno::NETUNREACH));
    w.silent();
}

#[test]
fn connect_to_no_host_is_refused_at_once() {
    let mut w = World::new();
    for (remote, errno) in [
        ("0.0.0.0:80", Errno::CONNREFUSED),
        ("10.0.0.2:0", Errno::CONNREFUSED),
        ("224.0.0.1:80", Errno::NETUNREACH),
        ("255.255.255.255:80", Errno::NETUNREACH),
        ("10.0.0.255:80", Errno::NETUNREACH),
        ("[ff02::1]:80", Errno::NETUNREACH),
    ] {
        let socket = w.app.connect(remote.parse().unwrap());
        w.settle();
        assert_eq!(w.app.errno(socket), Some(errno), "{remote}");
    }
    w.silent();
}

#[test]
fn connect_through_a_gateway_asks_for_the_gateway() {
    let mut w = World::with(|s| s.config.gateways.push(PEER_V4));
    let socket = w.app.connect("192.0.2.1:80".parse().unwrap());
    w.settle();
    let syn = w.tcp_with(Flags::SYN);
    assert_eq!(syn.src, STACK_V4);
    let mut client = crate::common::Client::answering(&syn);
    w.send(&client.syn_ack());
    assert!(w.app.has(socket, SocketState::CONNECTED));
}

#[test]
fn connect_from_a_local_address_and_port() {
    let mut w = World::with(|s| s.config.addresses.push("10.0.0.7/24".parse().unwrap()));
    let local: SocketAddr = "10.0.0.7:5555".parse().unwrap();
    let first = w.app.connect_from(Some(local), remote());
    w.settle();
    let syn = w.tcp_with(Flags::SYN);
    assert_eq!((syn.src, syn.src_port), (local.ip(), 5555));
    let second = w.app.connect_from(Some(local), remote());
    let not_ours = w
        .app
        .connect_from(Some("10.0.0.8:0".parse().unwrap()), remote());
    let family = w
        .app
        .connect_from(Some("[fd00::1]:0".parse().unwrap()), remote());
    w.settle();
    assert_eq!(w.app.errno(second), Some(Errno::ADDRNOTAVAIL));
    assert_eq!(w.app.errno(not_ours), Some(Errno::ADDRNOTAVAIL));
    assert_eq!(w.app.errno(family), Some(Errno::ADDRNOTAVAIL));
    assert_eq!(w.app.errno(first), None);
}

#[test]
fn connect_when_the_port_range_is_used_up_fails_and_works_again() {
    let mut w = World::with(|s| s.config.local_ports = (50_000, 50_003));
    let sockets: Vec<_> = (0..5).map(|_| w.app.connect(remote())).collect();
    w.settle();
    let mut ports: Vec<u16> = w.peer.take_tcp().iter().map(|s| s.src_port).collect();
    ports.sort_unstable();
    assert_eq!(ports, [50_000, 50_001, 50_002, 50_003]);
    assert_eq!(w.app.errno(sockets[4]), Some(Errno::ADDRNOTAVAIL));
    // Connections to another peer may use the same ports.
    let other = w.app.connect(SocketAddr::new(PEER_V4, 444));
    w.settle();
    assert_eq!(w.app.errno(other), None);
    w.close(sockets[1]);
    w.peer.forget();
    let again = w.app.connect(remote());
    w.settle();
    assert_eq!(w.app.errno(again), None);
    w.tcp_with(Flags::SYN);
}

#[test]
fn connect_leaves_the_port_of_a_listener_alone() {
    let mut w = World::with(|s| s.config.local_ports = (50_000, 50_003));
    w.listen_at(SocketAddr::new(STACK_V4, 50_002), 4);
    let sockets: Vec<_> = (0..4).map(|_| w.app.connect(remote())).collect();
    w.settle();
    let mut ports: Vec<u16> = w.peer.take_tcp().iter().map(|s| s.src_port).collect();
    ports.sort_unstable();
    assert_eq!(ports, [50_000, 50_001, 50_003]);
    assert_eq!(w.app.errno(sockets[3]), Some(Errno::ADDRNOTAVAIL));
}

#[test]
fn connect_when_the_stock_of_sockets_is_empty_waits_for_a_turn() {
    let mut w = World::with(|s| s.config.limits.sockets_max = 4);
    let mut sockets = Vec::new();
    for _ in 0..10 {
        while w.app.has_socket() {
            sockets.push(w.app.connect(remote()));
        }
        w.settle();
    }
    // The last sockets are reserved for accepted connections.
    assert!((2..=4).contains(&sockets.len()), "{}", sockets.len());
    for socket in sockets {
        w.app.close(socket);
    }
    w.settle();
    let again = w.app.connect(remote());
    w.settle();
    assert_eq!(w.app.errno(again), None);
}
