//! Events and requests: each is delivered once, none is lost, and outdated ones are skipped.

use stack::context::{Control, Report, SocketOption};

use std::net::SocketAddr;

use ring::socket_block::{Requests, SocketId, SocketState};
use ring::spsc::Consumer;
use stack::limits::{CONTROLS_PER_TURN, JOBS_PER_TURN};
use wire::tcp::Flags;

use crate::common::{Client, PEER_V4, PORT, SECOND, STACK_V4, World};

#[test]
fn readable_is_told_once_however_many_segments_came() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let before = w.app.edges(socket).0;
    for _ in 0..5 {
        w.send(&client.data(b"more"));
    }
    assert_eq!(w.app.take_events(), [socket], "one place in the queue");
    assert_eq!(w.app.edges(socket).0, before + 5, "each arrival counts");
    // After the event was taken, the socket may be queued again.
    w.send(&client.data(b"again"));
    assert_eq!(w.app.take_events(), [socket]);
    w.advance(10 * SECOND);
    assert_eq!(w.app.take_events(), []);
}

#[test]
fn accepted_connections_tell_their_listener() {
    let mut w = World::new();
    let listener = w.listen();
    w.app.take_events();
    let before = w.app.edges(listener).0;
    for _ in 0..3 {
        let mut client = w.client();
        w.handshake(&mut client);
    }
    let events = w.app.take_events();
    assert_eq!(events, [listener]);
    assert_eq!(w.app.edges(listener).0, before + 3);
}

#[test]
fn writable_is_told_only_to_who_waits_for_it() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.app.option(socket, SocketOption::SendBuffer(4_000));
    w.settle();
    w.write(socket, &[1; 100]);
    let data = w.tcp();
    client.take(&data);
    w.send(&client.ack());
    assert_eq!(w.app.take_events(), [], "nobody waited");
    let out = w.app.edges(socket).1;
    // The bytes that leave at once, and a run of half the peer's window.
    assert_eq!(w.app.write(socket, &[1; 100_000]), 14_600 + 29_200);
    w.settle();
    assert_eq!(w.app.take_events(), []);
    // The event comes only when a third of the buffer is free.
    let mut acked = 0;
    while acked < 14_600 + 29_200 - 5_000 {
        assert_eq!(w.app.take_events(), []);
        for segment in w.peer.take_tcp() {
            client.take(&segment);
            acked += segment.payload.len();
        }
        w.send(&client.ack());
    }
    assert_eq!(w.app.take_events(), [socket]);
    assert_eq!(w.app.edges(socket).1, out + 1);
}

#[test]
fn established_larger_send_buffer_is_told_to_who_waits_for_room() {
    let larger = [
        SocketOption::SendBuffer(1 << 20),
        SocketOption::NotSentLowat(1 << 30),
    ];
    let small = [
        SocketOption::SendBuffer(4_000),
        SocketOption::NotSentLowat(2_000),
    ];
    for (small, larger) in small.into_iter().zip(larger) {
        let mut w = World::new();
        let (_, socket) = w.established();
        w.app.option(socket, small);
        w.settle();
        // The peer acknowledges nothing.
        assert!(w.app.write(socket, &[1; 200_000]) < 200_000);
        w.settle();
        assert_eq!(w.app.take_events(), []);
        let out = w.app.edges(socket).1;
        w.app.option(socket, small);
        w.settle();
        assert_eq!(w.app.take_events(), [], "no more room than before");
        w.app.option(socket, larger);
        w.settle();
        assert_eq!(w.app.take_events(), [socket], "{larger:?}");
        assert_eq!(w.app.edges(socket).1, out + 1);
        assert_eq!(w.app.write(socket, &[1]), 1);
        w.app.option(socket, larger);
        w.settle();
        assert_eq!(w.app.take_events(), [], "nobody waits");
    }
}

#[test]
fn end_and_failure_are_told() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.send(&client.fin());
    assert_eq!(w.app.take_events(), [socket]);
    w.send(&client.rst());
    assert_eq!(w.app.take_events(), [socket]);
}

#[test]
fn closed_socket_is_never_told_of() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.close(socket);
    let fin = w.tcp();
    client.take(&fin);
    w.send(&client.fin());
    let mut events = Vec::new();
    w.app
        .side
        .events
        .pop_batch(usize::MAX, |id| events.push(id));
    assert_eq!(events, []);
}

/// Accepts a connection whose event enters the queue, and closes it without reading the queue.
fn unseen_event(w: &mut World, listener: SocketId) -> SocketId {
    let mut client = w.client();
    w.handshake(&mut client);
    let socket = w.app.accept(listener).unwrap();
    w.send(&client.data(b"never looked at"));
    w.app.abort(socket);
    w.settle();
    w.peer.forget();
    socket
}

#[test]
fn index_used_again_while_an_old_event_stands_is_told_of_all_the_same() {
    let mut w = World::new();
    let listener = w.listen();
    w.app.take_events();
    let old = unseen_event(&mut w, listener);
    let mut client = w.client();
    w.handshake(&mut client);
    let new = w.app.accept(listener).unwrap();
    assert_eq!(new.index, old.index, "last in, first out");
    assert_ne!(new.generation, old.generation);
    w.send(&client.data(b"look at me"));
    let events = w.app.take_events();
    assert!(events.contains(&new), "{events:?} lacks {new:?}");
}

#[test]
fn events_that_nobody_takes_are_not_lost_when_the_queue_is_full_of_old_ones() {
    let mut w = World::with(|s| s.config.limits.sockets_max = 8);
    let listener = w.listen();
    for _ in 0..50 {
        unseen_event(&mut w, listener);
    }
    let mut client = w.client();
    w.handshake(&mut client);
    let socket = w.app.accept(listener).unwrap();
    w.send(&client.data(b"look at me"));
    let mut told = w.app.take_events();
    // Events without room come in the next turn.
    w.settle();
    told.extend(w.app.take_events());
    assert!(told.contains(&socket), "{told:?}");
    assert!(w.stack.next_timer_ns().is_none_or(|ns| ns > w.now_ns));
}

#[test]
fn stale_jobs_are_counted_and_change_nothing() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let stale = [
        SocketId {
            generation: socket.generation + 2,
            ..socket
        },
        SocketId {
            generation: socket.generation.wrapping_sub(1),
            ..socket
        },
        SocketId {
            index: 63,
            generation: 1,
        },
        SocketId {
            index: 64,
            generation: 1,
        },
        SocketId {
            index: u32::MAX,
            generation: u32::MAX,
        },
    ];
    for id in stale {
        w.app.push_job(id);
    }
    w.settle();
    assert_eq!(w.stack.counters().jobs_stale, stale.len() as u64);
    w.send(&client.data(b"alive"));
    assert_eq!(w.read(socket), b"alive");
}

#[test]
fn job_after_the_end_of_its_socket_does_not_reach_the_next() {
    let mut w = World::new();
    let (client, socket) = w.established();
    w.close(socket);
    w.send(&client.rst().acking(client.rcv + 1));
    w.peer.forget();
    let again = w.app.connect(SocketAddr::new(PEER_V4, 443));
    w.settle();
    w.tcp_with(Flags::SYN);
    w.app.push_job(socket);
    w.settle();
    assert_eq!(w.app.errno(again), None);
    assert!(w.stack.counters().jobs_stale > 0);
}

#[test]
fn requests_of_one_turn_are_all_heard() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.send(&client.data(b"question"));
    w.peer.forget();
    // The application reads, writes and closes before the next turn.
    assert_eq!(w.app.read(socket), b"question");
    w.app.write(socket, b"answer");
    w.app.close(socket);
    w.settle();
    let answer = w.tcp();
    assert_eq!(answer.payload, b"answer");
    assert!(answer.flags.contains(Flags::FIN));
    assert_eq!(w.stack.counters().jobs, 1);
}

#[test]
fn request_of_nothing_is_harmless() {
    let mut w = World::new();
    let (_, socket) = w.established();
    w.app.push_job(socket);
    w.app.request(socket, Requests::READ);
    w.app.request(socket, Requests::WROTE);
    w.settle();
    w.silent();
}

#[test]
fn report_says_what_is_held() {
    let mut w = World::new();
    let (_, _) = w.established();
    let (answer, mut answers) = ring::spsc::queue(1);
    let asked = stack::context::Control::Report(answer);
    assert!(w.app.side.control(asked).is_ok());
    w.settle();
    let report = answers.pop().unwrap();
    assert_eq!(report.usage, w.stack.usage());
    assert_eq!(report.stack.accepted, 1);
    assert_eq!(report.tcp.accepts, 1);
}

/// A world with `count` sockets that neither connect nor listen.
fn with_idle(count: usize) -> (World, Vec<SocketId>) {
    let mut w = World::with(|s| {
        s.config.limits.sockets_max = 2 * count;
        s.config.limits.segment_records = 2 * count;
    });
    let mut idle = Vec::new();
    while idle.len() < count {
        idle.extend(w.app.try_socket());
        if !w.app.has_socket() {
            w.settle();
        }
    }
    (w, idle)
}

fn ask_for_report(w: &mut World) -> Consumer<Report> {
    let (answer, answers) = ring::spsc::queue(1);
    w.app.control(Control::Report(answer));
    answers
}

#[test]
fn listener_closed_behind_more_jobs_than_a_turn_applies_leaves_its_address_to_the_next() {
    for crowd in [JOBS_PER_TURN, 3 * JOBS_PER_TURN] {
        let (mut w, idle) = with_idle(crowd);
        let listener = w.listen();
        for id in idle {
            w.app.close(id);
        }
        w.app.close(listener);
        let listener = w.listen();
        assert_eq!(w.app.errno(listener), None, "{crowd} jobs");
        assert!(w.app.has(listener, SocketState::LISTENING));
    }
}

#[test]
fn connection_aborted_behind_more_jobs_than_a_turn_applies_leaves_its_port_to_the_next() {
    let (mut w, idle) = with_idle(JOBS_PER_TURN);
    let local = Some(SocketAddr::new(STACK_V4, PORT));
    let remote = SocketAddr::new(PEER_V4, 9);
    let first = w.app.connect_from(local, remote);
    w.settle();
    w.tcp_with(Flags::SYN);
    for id in idle {
        w.app.close(id);
    }
    w.app.abort(first);
    let second = w.app.connect_from(local, remote);
    w.settle();
    assert_eq!(w.app.errno(second), None);
    w.tcp_with(Flags::SYN);
}

#[test]
fn request_among_jobs_that_never_end_waits_for_those_before_it_alone() {
    let (mut w, idle) = with_idle(3 * JOBS_PER_TURN);
    for &id in &idle {
        w.app.request(id, Requests::REFILL);
    }
    let mut answers = ask_for_report(&mut w);
    let turns = (1..10).find(|_| {
        w.turn();
        // Every socket posts another job in each turn.
        for &id in &idle {
            w.app.request(id, Requests::REFILL);
        }
        answers.pop().is_some()
    });
    assert_eq!(turns, Some(3));
}

#[test]
fn write_behind_more_requests_than_a_turn_applies_is_heard() {
    let mut w = World::new();
    let _answers: Vec<_> = (0..CONTROLS_PER_TURN)
        .map(|_| ask_for_report(&mut w))
        .collect();
    let (local, remote) = (None, SocketAddr::new(PEER_V4, 9));
    let socket = w.app.connect_from(local, remote);
    w.app.write(socket, b"early");
    w.settle();
    let mut server = Client::answering(&w.tcp_with(Flags::SYN));
    let syn_ack = server.syn_ack();
    w.send(&syn_ack);
    let answer = w.tcp();
    assert_eq!(server.take(&answer), b"early");
}
