//! Crowds: more requests than a turn applies, more strangers than tables hold, and a wire that
//! disappears.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ring::socket_block::SocketState;
use rustix::io::Errno;
use wire::tcp::Flags;

use crate::common::{MILLIS, PEER_V4, PORT, SECOND, STACK_V4, World};
use stack::context::{Control, InfoQuery, SocketInfo, SocketOption};
use stack::limits::{CONTROLS_PER_TURN, JOBS_PER_TURN, OPENINGS_PER_TURN};

fn large() -> World {
    World::with(|s| {
        s.config.addresses[0] = "10.0.0.1/16".parse().unwrap();
        let limits = &mut s.config.limits;
        (limits.sockets_max, limits.half_open_max) = (4_096, 512);
        (limits.small_chunks, limits.large_chunks) = (8_192, 1_024);
        limits.backlog_max = 1_024;
        limits.control_queue_max = 1_024;
    })
}

/// Connects `count` sockets to the peer, in as many turns as that takes.
fn connects(w: &mut World, count: usize) -> Vec<ring::socket_block::SocketId> {
    let mut sockets = Vec::new();
    while sockets.len() < count {
        if !w.app.has_socket() {
            w.settle();
        }
        sockets.push(w.app.connect(SocketAddr::new(PEER_V4, 443)));
    }
    sockets
}

#[test]
fn connect_requests_beyond_a_turn_and_closes_that_overtake_them() {
    let mut w = large();
    w.settle();
    let mut sockets = Vec::new();
    // Posts as many connects as the stock and the queue allow, which is more than a turn applies.
    while w.app.has_socket() && sockets.len() < CONTROLS_PER_TURN * 2 {
        sockets.push(w.app.connect(SocketAddr::new(PEER_V4, 443)));
    }
    assert!(sockets.len() >= 256);
    for socket in &sockets {
        w.app.close(*socket);
    }
    w.settle();
    w.peer.forget();
    assert_eq!(w.stack.usage().sockets, 0);
    assert_eq!(w.stack.usage().flows, 0);
}

#[test]
fn connecting_crowd_begins_some_in_each_turn_and_all_in_the_end() {
    let mut w = large();
    connects(&mut w, 3 * OPENINGS_PER_TURN + 1);
    let mut begun = Vec::new();
    for _ in 0..5 {
        w.turn();
        begun.push(w.peer.take_tcp().len());
    }
    let each = OPENINGS_PER_TURN;
    assert_eq!(begun, [each, each, each, 1, 0]);
    w.app.abort_all();
}

/// Half of a crowd has opened its connections; returns a socket that still waits to open.
fn one_who_waits(w: &mut World) -> ring::socket_block::SocketId {
    let sockets = connects(w, 2 * OPENINGS_PER_TURN);
    w.turn();
    assert_eq!(w.peer.take_tcp().len(), OPENINGS_PER_TURN);
    assert_eq!(w.stack.usage().flows, OPENINGS_PER_TURN);
    sockets[2 * OPENINGS_PER_TURN - 1]
}

fn info_of(w: &mut World, socket: ring::socket_block::SocketId) -> Box<SocketInfo> {
    let (answer, mut answers) = ring::spsc::queue(1);
    w.app.control(Control::Info(InfoQuery { socket, answer }));
    w.turn();
    answers.pop().unwrap().expect("it has begun")
}

#[test]
fn waiting_to_begin_holds_neither_a_connection_nor_a_port() {
    let mut w = large();
    one_who_waits(&mut w);
    assert_eq!(w.stack.usage().sockets, OPENINGS_PER_TURN);
    w.app.abort_all();
    w.settle();
    assert_eq!((w.stack.usage().sockets, w.stack.usage().flows), (0, 0));
}

#[test]
fn waiting_to_begin_close_ends_it_unseen() {
    let mut w = large();
    let socket = one_who_waits(&mut w);
    w.app.close(socket);
    w.settle();
    assert_eq!(w.peer.take_tcp().len(), OPENINGS_PER_TURN - 1);
    assert_eq!(w.stack.usage().flows, 2 * OPENINGS_PER_TURN - 1);
    w.app.abort_all();
}

#[test]
fn waiting_to_begin_question_is_answered_of_a_connection() {
    let mut w = large();
    let socket = one_who_waits(&mut w);
    let info = info_of(&mut w, socket);
    assert_eq!(info.remote, SocketAddr::new(PEER_V4, 443));
    assert_ne!(info.local.port(), 0);
    w.app.abort_all();
}

#[test]
fn waiting_to_begin_option_is_honoured() {
    let mut w = large();
    let socket = one_who_waits(&mut w);
    w.app.option(socket, SocketOption::SendBuffer(9_999));
    assert_eq!(info_of(&mut w, socket).send_buffer_max, 2 * 9_999);
    w.app.abort_all();
}

#[test]
fn connect_and_an_option_at_once_begins_with_it() {
    let mut w = World::new();
    let socket = w.app.connect(SocketAddr::new(PEER_V4, 443));
    w.app.option(socket, SocketOption::SendBuffer(9_999));
    w.settle();
    assert_eq!(info_of(&mut w, socket).send_buffer_max, 2 * 9_999);
    w.app.abort_all();
}

#[test]
fn waiting_to_begin_where_nobody_can_go_fails() {
    let mut w = World::new();
    let nowhere = w.app.connect("224.0.0.1:443".parse().unwrap());
    w.settle();
    assert_eq!(w.app.errno(nowhere), Some(Errno::NETUNREACH));
    assert_eq!(w.app.take_events(), [nowhere]);
    assert!(!w.stack.has_output());
}

#[test]
fn stack_without_an_application_begins_nobody_who_waits() {
    let mut w = large();
    one_who_waits(&mut w);
    assert_eq!(w.stack.abort_some(0), None);
    w.settle();
    let seen = w.peer.take_tcp();
    assert!(
        seen.iter().all(|one| !one.flags.contains(Flags::SYN)),
        "{seen:?}"
    );
    assert_eq!((w.stack.usage().sockets, w.stack.usage().flows), (0, 0));
}

#[test]
fn connecting_crowd_has_an_eighth_of_the_port_while_others_fill_it() {
    let mut w = World::with(|s| {
        s.wire.slots = 16;
        s.config.limits.sockets_max = 256;
    });
    let others: Vec<_> = (0..2)
        .map(|_| w.connected(SocketAddr::new(PEER_V4, 443)))
        .collect();
    connects(&mut w, 20);
    for (_, socket) in &others {
        w.app.write(*socket, &[7; 20_000]);
    }
    w.turn();
    let seen = w.peer.take_tcp();
    let syns = seen.iter().filter(|one| one.flags.contains(Flags::SYN));
    assert_eq!((syns.count(), seen.len()), (2, 16));
    w.app.abort_all();
}

#[test]
fn resets_of_strangers_have_half_of_the_port_while_others_fill_it() {
    let mut w = World::with(|s| s.wire.slots = 16);
    let others: Vec<_> = (0..2)
        .map(|_| w.connected(SocketAddr::new(PEER_V4, 443)))
        .collect();
    for (_, socket) in &others {
        w.app.write(*socket, &[7; 20_000]);
    }
    for _ in 0..12 {
        let stray = w.client().data(b"who is there?");
        let frame = w.peer.frame(&stray);
        w.peer.transmit(&frame);
    }
    w.turn();
    let seen = w.peer.take_tcp();
    let resets = seen.iter().filter(|one| one.flags.contains(Flags::RST));
    assert_eq!((resets.count(), seen.len()), (8, 16));
    // The waiting segments leave when there is room.
    w.settle();
    let seen = w.peer.take_tcp();
    let resets = seen.iter().filter(|one| one.flags.contains(Flags::RST));
    assert_eq!(resets.count(), 4);
    w.app.abort_all();
}

#[test]
fn established_crowd_closes_at_once() {
    let mut w = large();
    let count = JOBS_PER_TURN + 100;
    let sockets = connects(&mut w, count);
    w.settle();
    let syns = w.peer.take_tcp();
    assert_eq!(syns.len(), count);
    let mut clients: Vec<_> = syns.iter().map(crate::common::Client::answering).collect();
    for client in &mut clients {
        w.send(&client.syn_ack());
    }
    assert_eq!(w.stack.counters().connected, count as u64);
    w.peer.forget();
    for socket in &sockets {
        assert!(w.app.has(*socket, SocketState::CONNECTED));
        w.app.write(*socket, b"bye");
        w.app.close(*socket);
    }
    w.settle();
    let mut fins = w.peer.take_tcp();
    fins.retain(|segment| segment.flags.contains(Flags::FIN));
    assert_eq!(fins.len(), count);
    for client in &mut clients {
        client.rcv += 4;
        w.send(&client.fin());
    }
    // Sixteen entries stay; the others were evicted.
    assert_eq!(w.stack.usage().time_wait, 16);
    assert_eq!(w.stack.usage().flows, 16);
}

#[test]
fn listen_flood_of_syns_from_invented_neighbours_leaves_the_known_alone() {
    let mut w = large();
    let listener = w.listen();
    let mut known = w.client();
    w.handshake(&mut known);
    let socket = w.app.accept(listener).unwrap();
    for host in 0..3_000u32 {
        let from = IpAddr::V4(Ipv4Addr::from(0x0a00_1000 + host));
        let mut client = w.client_from(from, SocketAddr::new(STACK_V4, PORT));
        w.peer.transmit(&w.peer.frame(&client.syn()));
        if host % 64 == 0 {
            w.now_ns += MILLIS;
            w.settle();
        }
    }
    w.settle();
    w.peer.forget();
    assert!(w.stack.counters().syn_cookies_sent > 0);
    w.send(&known.data(b"through the flood"));
    assert_eq!(w.read(socket), b"through the flood");
    let acks = w.peer.take_tcp();
    assert!(acks.iter().any(|ack| ack.ack == known.nxt));
    let mut another = w.client();
    w.handshake(&mut another);
    assert!(w.app.accept(listener).is_some());
    w.advance(200 * SECOND);
    assert_eq!(w.stack.usage().half_open, 0);
    w.peer.forget();
}

#[test]
fn wire_disconnected_fails_connects_and_lets_timers_run_on() {
    let setup = crate::common::Setup::default();
    let (near, far) = packetio::loopback::pair(&setup.wire).unwrap();
    let mut now_ns = 1_000 * SECOND;
    let (mut stack, side) = stack::Stack::new(setup.config, Box::new(near), now_ns).unwrap();
    let mut app = crate::common::App::new(side);
    stack.turn(now_ns);
    drop(far);
    let socket = app.connect("10.0.0.2:80".parse().unwrap());
    for _ in 0..100 {
        stack.turn(now_ns);
        now_ns = stack.next_timer_ns().unwrap_or(now_ns + SECOND);
    }
    assert!(!stack.is_gone(), "it may come back");
    assert_eq!(app.errno(socket), Some(Errno::HOSTUNREACH));
    app.close(socket);
    stack.turn(now_ns);
    assert_eq!(stack.usage(), stack::Usage::default());
}

#[test]
fn clock_that_leaps_a_day_ends_what_has_no_peer() {
    let mut w = World::new();
    let (_client, socket) = w.established();
    w.write(socket, b"and then a long sleep");
    w.peer.forget();
    // No timer fires in between, as if the machine had been asleep.
    w.now_ns += 86_400 * SECOND;
    w.settle();
    assert!(!w.peer.take_tcp().is_empty(), "tried again on waking");
    assert_eq!(w.app.errno(socket), None);
    w.now_ns += 86_400 * SECOND;
    w.settle();
    w.close(socket);
    w.advance(7_200 * SECOND);
    assert_eq!(w.stack.usage().flows, 0);
}

#[test]
fn clock_that_stands_still_moves_data_all_the_same() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let bytes = vec![7; 60_000];
    assert_eq!(w.app.write(socket, &bytes), bytes.len());
    let mut got = 0;
    while got < bytes.len() {
        w.settle();
        let segments = w.peer.take_tcp();
        assert!(!segments.is_empty());
        for segment in segments {
            got += client.take(&segment).len();
        }
        w.send(&client.ack());
    }
}

/// A crowd of 400 opens connections at once over a wire of eight slots. The peer reads nothing in
/// some turns. All must be answered, and no answer dropped.
fn answers_a_crowd(
    control_queue_max: Option<usize>,
    turn_ns: u64,
    is_deaf: fn(usize) -> bool,
) -> World {
    const CROWD: usize = 400;
    let mut w = World::with(|s| {
        s.wire.slots = 8;
        s.config.limits.half_open_max = CROWD;
        s.config.limits.backlog_max = CROWD;
        if let Some(max) = control_queue_max {
            s.config.limits.control_queue_max = max;
        }
    });
    w.listen_at(SocketAddr::new(STACK_V4, PORT), CROWD);
    let mut waiting: Vec<_> = (0..CROWD).map(|_| w.client().syn()).collect();
    let mut answers = 0;
    for turn in 0..4 * CROWD {
        while w.peer.has_room()
            && let Some(syn) = waiting.pop()
        {
            w.peer.transmit(&w.peer.frame(&syn));
        }
        w.peer.deaf = is_deaf(turn);
        w.turn();
        answers += w.peer.take_tcp().len();
        w.now_ns += turn_ns;
    }
    assert_eq!((answers, waiting.len()), (CROWD, 0));
    assert_eq!(w.stack.counters().control_queue_full, 0);
    w
}

#[test]
fn listening_crowd_of_syns_before_a_slow_port_loses_no_answer() {
    // The peer reads a batch every third turn, so answers leave at a third of the rate of the SYNs.
    let w = answers_a_crowd(None, MILLIS / 100, |turn| turn % 3 != 0);
    assert!(w.stack.counters().input_held > 0);
}

#[test]
fn listening_crowd_of_syns_before_a_peer_that_sleeps_loses_no_answer() {
    // The peer's CPU runs something else for fifty milliseconds.
    answers_a_crowd(Some(256), MILLIS / 2, |turn| turn < 100);
}

#[test]
fn listening_crowd_of_syns_before_a_dead_port_is_taken_after_a_while() {
    let mut w = World::with(|s| s.wire.slots = 8);
    w.listen();
    w.peer.deaf = true;
    for _ in 0..40 {
        let syn = w.client().syn();
        while !w.peer.has_room() {
            // Nothing leaves. Input is processed nevertheless, so that two stacks never wait for
            // each other.
            w.now_ns = w.stack.next_timer_ns().unwrap();
            w.turn();
        }
        w.peer.transmit(&w.peer.frame(&syn));
        w.turn();
    }
    assert_eq!(w.stack.counters().syn_received, 40);
}

#[test]
fn crowd_of_a_stack_that_ends_is_reset_in_portions() {
    let crowd = 100;
    let mut w = World::with(|s| {
        let limits = &mut s.config.limits;
        (limits.sockets_max, limits.time_wait_max) = (256, 64);
        limits.control_queue_max = 16;
    });
    let sockets = connects(&mut w, crowd);
    w.settle();
    let syns = w.peer.take_tcp();
    let mut clients: Vec<_> = syns.iter().map(crate::common::Client::answering).collect();
    for client in &mut clients {
        w.send(&client.syn_ack());
    }
    w.peer.forget();
    // Every second client leaves a compact entry that waits for the peer's FIN.
    for (at, client) in clients.iter_mut().enumerate().filter(|(at, _)| at % 2 == 1) {
        w.close(sockets[at]);
        client.take(&w.tcp());
        w.send(&client.ack());
    }
    assert_eq!(w.stack.usage().fin_wait_2, crowd / 2);
    w.peer.forget();
    let (mut next, mut portions) = (Some(0), 0);
    while let Some(from) = next {
        next = w.stack.abort_some(from);
        w.settle();
        portions += 1;
    }
    let resets = w.peer.take_tcp();
    assert!(resets.iter().all(|one| one.flags.contains(Flags::RST)));
    assert_eq!(resets.len(), crowd);
    assert!(portions > 1, "the queue takes all at once");
    assert_eq!(w.stack.counters().control_queue_full, 0);
    assert_eq!(w.stack.usage().flows, 0);
}
