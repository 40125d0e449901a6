//! Passive opens: the handshake, the SYN queue with its cookies, and the accept queue.

use std::net::{Ipv6Addr, SocketAddr};

use ring::socket_block::SocketState;
use rustix::io::Errno;
use stack::context::SocketOption;
use wire::tcp::{Flags, Options, Timestamp};

use crate::common::{Client, PORT, SECOND, STACK_V4, STACK_V6, World};

#[test]
fn listen_syn_completes_a_handshake_and_is_accepted() {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = w.client();
    w.begin_handshake(&mut client);
    assert_eq!(w.stack.usage().half_open, 1);
    assert_eq!(w.app.accept(listener), None);
    w.send(&client.ack());
    w.silent();
    let accepted = w.app.accept_named(listener).unwrap();
    assert_eq!(accepted.remote, client.peer);
    assert_eq!(accepted.local, client.stack);
    assert!(w.app.has(accepted.socket, SocketState::CONNECTED));
    let (local, remote) = w.app.block(accepted.socket).names();
    assert_eq!((local.port, remote.port), (PORT, client.peer.port()));
    assert_eq!(w.stack.usage().half_open, 0);
    assert_eq!(w.stack.usage().flows, 1);
}

#[test]
fn listen_v6_syn_is_accepted() {
    let mut w = World::new();
    let listener = w.listen_at(SocketAddr::new(STACK_V6, PORT), 4);
    let mut client = w.client_v6();
    w.handshake(&mut client);
    assert!(w.app.accept(listener).is_some());
    w.send(&client.data(b"x"));
    w.tcp_with(Flags::ACK);
}

#[test]
fn listen_at_an_address_that_is_not_ours_fails() {
    let mut w = World::new();
    let listener = w.listen_at("10.0.0.9:80".parse().unwrap(), 4);
    assert_eq!(w.app.errno(listener), Some(Errno::ADDRNOTAVAIL));
    let first = w.listen();
    assert!(w.app.has(first, SocketState::LISTENING));
    let second = w.listen();
    assert_eq!(w.app.errno(second), Some(Errno::ADDRINUSE));
    w.close(first);
    let third = w.listen();
    assert!(w.app.has(third, SocketState::LISTENING));
    for port in 81..84 {
        w.listen_at(SocketAddr::new(STACK_V4, port), 4);
    }
    let beyond = w.listen_at(SocketAddr::new(STACK_V4, 90), 4);
    assert_eq!(w.app.errno(beyond), Some(Errno::NOBUFS));
}

#[test]
fn listen_final_ack_with_data_delivers_it() {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = w.client();
    w.begin_handshake(&mut client);
    w.send(&client.data(b"early"));
    let socket = w.app.accept(listener).unwrap();
    assert_eq!(w.read(socket), b"early");
    let ack = w.tcp_with(Flags::ACK);
    assert_eq!(ack.ack, client.nxt);
}

#[test]
fn listen_syn_with_options_gets_them_granted() {
    let mut w = World::new();
    w.listen();
    let mut client = w.client();
    let mut syn = client.syn();
    syn.options = Options {
        mss: Some(1400),
        window_scale: Some(7),
        timestamp: Some(Timestamp { value: 77, echo: 0 }),
        ..Options::default()
    };
    w.send(&syn);
    let syn_ack = w.tcp_with(Flags::SYN | Flags::ACK);
    assert_eq!(syn_ack.options.mss, Some(1460));
    assert!(syn_ack.options.window_scale.is_some());
    assert_eq!(syn_ack.options.timestamp.unwrap().echo, 77);
}

#[test]
fn half_open_without_an_answer_repeats_and_gives_up() {
    let mut w = World::new();
    w.listen();
    let mut client = w.client();
    w.send(&client.syn());
    w.advance(200 * SECOND);
    let sent = w.peer.take_tcp();
    assert_eq!(sent.len(), 6, "one and five repetitions");
    assert!(sent.iter().all(|s| s.flags == Flags::SYN | Flags::ACK));
    assert_eq!(w.stack.counters().half_open_expired, 1);
    assert_eq!(w.stack.usage().half_open, 0);
}

#[test]
fn half_open_reset_frees_its_place() {
    let mut w = World::new();
    w.listen();
    let mut client = w.client();
    w.begin_handshake(&mut client);
    w.send(&client.rst());
    assert_eq!(w.stack.usage().half_open, 0);
    assert_eq!(w.stack.usage().flows, 0);
    assert_eq!(w.stack.counters().half_open_reset, 1);
    w.silent();
}

#[test]
fn half_open_ack_of_something_else_is_reset_and_stays() {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = w.client();
    w.begin_handshake(&mut client);
    let wrong = client.ack().acking(client.rcv + 5);
    w.send(&wrong);
    let reset = w.tcp_with(Flags::RST);
    assert_eq!(reset.seq, client.rcv + 5);
    w.send(&client.ack());
    assert!(w.app.accept(listener).is_some());
}

#[test]
fn half_open_when_the_accept_queue_is_full_completes_once_there_is_room() {
    let mut w = World::new();
    let listener = w.listen_at(SocketAddr::new(STACK_V4, PORT), 2);
    let mut clients: Vec<Client> = (0..4).map(|_| w.client()).collect();
    // As in Linux, one connection more than the backlog may wait, and as many handshakes as the
    // backlog may be in progress.
    for pair in clients.chunks_mut(2) {
        for client in &mut *pair {
            w.begin_handshake(client);
        }
        for client in pair {
            w.send(&client.ack());
        }
    }
    let mut late = w.client();
    w.send(&late.syn());
    assert_eq!(w.stack.counters().syn_drop_accept_queue_full, 1);
    assert_eq!(w.stack.counters().accept_queue_full, 1);
    assert_eq!(w.stack.usage().half_open, 1);
    w.silent();
    assert!(w.app.accept(listener).is_some());
    // The SYN-ACK is retransmitted, and the ACK of that completes the handshake.
    w.advance(2 * SECOND);
    w.tcp_with(Flags::SYN | Flags::ACK);
    w.send(&clients[3].ack());
    assert_eq!(w.stack.usage().half_open, 0);
    for _ in 0..3 {
        assert!(w.app.accept(listener).is_some());
    }
    assert!(w.app.accept(listener).is_none());
}

fn flooded(w: &mut World) -> Vec<Client> {
    (0..16)
        .map(|_| {
            let mut client = w.client();
            w.begin_handshake(&mut client);
            client
        })
        .collect()
}

#[test]
fn listen_syn_when_the_syn_queue_is_full_is_accepted_by_cookie() {
    let mut w = World::new();
    let listener = w.listen();
    let flood = flooded(&mut w);
    assert_eq!(w.stack.usage().half_open, 16);
    let mut client = w.client();
    w.begin_handshake(&mut client);
    assert_eq!(w.stack.counters().syn_cookies_sent, 1);
    assert_eq!(w.stack.usage().half_open, 16);
    w.send(&client.ack());
    assert_eq!(w.stack.counters().syn_cookies_accepted, 1);
    let socket = w.app.accept(listener).unwrap();
    w.send(&client.data(b"by cookie"));
    assert_eq!(w.read(socket), b"by cookie");
    w.peer.forget();
    // Handshakes in the queue can still complete.
    w.send(&flood[3].ack());
    assert!(w.app.accept(listener).is_some());
}

/// The first copy of a SYN met a full queue and got a cookie; the second one found room.
#[test]
fn half_open_ack_of_an_earlier_cookie_is_accepted() {
    let mut w = World::new();
    let listener = w.listen();
    let flood = flooded(&mut w);
    let mut client = w.client();
    let syn = client.syn();
    w.send(&syn);
    let cookie = w.tcp_with(Flags::SYN | Flags::ACK);
    w.send(&flood[0].ack());
    w.send(&syn);
    let other = w.tcp_with(Flags::SYN | Flags::ACK);
    assert_ne!(cookie.seq, other.seq);
    assert_eq!(w.stack.usage().half_open, 16);
    client.on_syn_ack(&cookie);
    w.send(&client.ack());
    assert_eq!(w.stack.counters().syn_cookies_accepted, 1);
    assert_eq!(w.stack.usage().half_open, 15);
    assert!(w.app.accept(listener).is_some());
    let socket = w.app.accept(listener).unwrap();
    w.send(&client.data(b"by the first"));
    assert_eq!(w.read(socket), b"by the first");
}

#[test]
fn listen_ack_with_a_bogus_cookie_is_reset() {
    let mut w = World::new();
    let listener = w.listen();
    flooded(&mut w);
    let mut client = w.client();
    w.begin_handshake(&mut client);
    client.rcv += 1;
    w.send(&client.ack());
    let reset = w.tcp_with(Flags::RST);
    assert_eq!(reset.seq, client.rcv);
    assert_eq!(w.stack.counters().syn_cookies_refused, 1);
    assert_eq!(w.app.accept(listener), None);
    // A cookie of another flow is refused.
    let mut thief = w.client();
    thief.nxt = client.nxt;
    thief.rcv = client.rcv - 1;
    w.send(&thief.ack());
    w.tcp_with(Flags::RST);
    assert_eq!(w.app.accept(listener), None);
    // An old cookie is refused.
    client.rcv -= 1;
    w.advance(119 * SECOND);
    w.peer.forget();
    let ack = client.ack();
    w.advance(2 * SECOND);
    w.send(&ack);
    w.tcp_with(Flags::RST);
    assert_eq!(w.app.accept(listener), None);
}

#[test]
fn listen_syn_without_listener_is_refused() {
    let mut w = World::new();
    let mut client = w.client();
    w.send(&client.syn());
    let reset = w.tcp_with(Flags::RST | Flags::ACK);
    assert_eq!((reset.seq, reset.ack), (0, client.nxt));
    assert_eq!(w.stack.counters().resets_sent, 1);
    // Data without a listener is reset; a reset is not.
    client.rcv = 5;
    w.send(&client.data(b"x"));
    assert_eq!(w.tcp_with(Flags::RST).seq, 5);
    w.send(&client.rst());
    w.silent();
    assert_eq!(w.stack.counters().no_connection, 1);
}

#[test]
fn listen_unspecified_serves_all_addresses_of_its_family() {
    let mut w = World::with(|s| {
        s.config.addresses.push("10.0.0.7/24".parse().unwrap());
        s.config.addresses.push("192.168.1.1/24".parse().unwrap());
    });
    let any = w.listen_at("0.0.0.0:80".parse().unwrap(), 8);
    let exact = w.listen_at("10.0.0.7:80".parse().unwrap(), 8);
    for (address, listener) in [("10.0.0.1", any), ("10.0.0.7", exact), ("192.168.1.1", any)] {
        let to = SocketAddr::new(address.parse().unwrap(), PORT);
        let mut client = w.client_from(crate::common::PEER_V4, to);
        w.handshake(&mut client);
        let accepted = w.app.accept_named(listener).unwrap();
        assert_eq!(accepted.local, to);
    }
    let to = SocketAddr::new(STACK_V6, PORT);
    let mut client = w.client_from(crate::common::PEER_V6, to);
    w.send(&client.syn());
    w.tcp_with(Flags::RST | Flags::ACK);
}

#[test]
fn listener_closed_with_half_opens_forgets_them() {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = w.client();
    w.begin_handshake(&mut client);
    w.close(listener);
    assert_eq!(w.stack.usage().half_open, 0);
    w.send(&client.ack());
    w.tcp_with(Flags::RST);
    w.advance(5 * SECOND);
    w.silent();
}

#[test]
fn listener_closed_with_unaccepted_connections_resets_them() {
    let mut w = World::new();
    let listener = w.listen();
    let mut accepted = w.client();
    w.handshake(&mut accepted);
    let socket = w.app.accept(listener).unwrap();
    let mut first = w.client();
    let mut second = w.client();
    w.handshake(&mut first);
    w.handshake(&mut second);
    w.close(listener);
    let resets = w.peer.take_tcp();
    assert_eq!(resets.len(), 2, "{resets:?}");
    assert!(resets.iter().all(|s| s.flags.contains(Flags::RST)));
    // The accepted connection survives.
    w.send(&accepted.data(b"still here"));
    assert_eq!(w.read(socket), b"still here");
    assert_eq!(w.stack.usage().sockets, 1);
}

#[test]
fn listener_closed_with_an_unaccepted_connection_that_was_reset_lets_it_go() {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = w.client();
    w.handshake(&mut client);
    w.send(&client.rst());
    w.close(listener);
    assert_eq!(w.stack.usage().sockets, 0);
    assert_eq!(w.stack.usage().flows, 0);
}

#[test]
fn listener_closed_and_another_at_its_port_gets_only_its_own() {
    let mut w = World::new();
    let old = w.listen();
    let mut client = w.client();
    w.begin_handshake(&mut client);
    w.close(old);
    let new = w.listen();
    w.send(&client.ack());
    assert_eq!(w.app.accept(new), None);
    w.tcp_with(Flags::RST);
}

#[test]
fn listener_options_are_those_of_accepted_connections() {
    let mut w = World::new();
    let nodelay = vec![SocketOption::NoDelay(true)];
    let listener = w
        .app
        .listen_with(SocketAddr::new(STACK_V4, PORT), 4, nodelay);
    w.settle();
    let mut client = w.client();
    w.handshake(&mut client);
    let socket = w.app.accept(listener).unwrap();
    // Nagle's algorithm would hold the second segment while the first is in flight.
    w.write(socket, b"a");
    w.write(socket, b"b");
    assert_eq!(w.tcp().payload, b"a");
    assert_eq!(w.tcp().payload, b"b");
}

#[test]
fn accepted_connection_reset_before_it_is_accepted_can_still_be_accepted() {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = w.client();
    w.handshake(&mut client);
    w.send(&client.rst());
    let socket = w.app.accept(listener).unwrap();
    assert_eq!(w.app.errno(socket), Some(Errno::CONNRESET));
    assert!(w.app.has(socket, SocketState::CLOSED));
    assert_eq!(w.stack.usage().flows, 0);
    w.close(socket);
    assert_eq!(w.stack.usage().sockets, 1, "the listener");
}

#[test]
fn listener_for_both_families_answers_with_the_options_of_each() {
    let mut w = World::new();
    let options = vec![
        SocketOption::V6Only(false),
        SocketOption::TrafficClass { v4: 0x88, v6: 0x28 },
        SocketOption::HopLimit { v4: 33, v6: 44 },
    ];
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT));
    let listener = w.app.listen_with(any, 16, options);
    w.settle();
    for (mut client, fields) in [(w.client(), (0x88, 33)), (w.client_v6(), (0x28, 44))] {
        w.begin_handshake(&mut client);
        assert_eq!(w.peer.last_class_and_hops, Some(fields));
        w.send(&client.ack());
        let socket = w.app.accept(listener).expect("the handshake is complete");
        w.write(socket, b"x");
        assert_eq!(w.peer.last_class_and_hops, Some(fields));
        w.peer.forget();
    }
}
