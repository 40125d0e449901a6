//! Ends of connections: in turn, at once, by reset, by abort, and the TIME_WAIT that follows.

use std::net::SocketAddr;

use ring::socket_block::{SocketId, SocketState};
use rustix::io::Errno;
use wire::tcp::{Flags, Options, Timestamp};

use crate::common::{Client, PORT, SECOND, STACK_V4, World};

const FIN_ACK: Flags = Flags::FIN.union(Flags::ACK);

#[test]
fn established_fin_is_the_end_of_reading_only() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.send(&client.data(b"last words"));
    w.send(&client.fin());
    assert!(w.app.has(socket, SocketState::EOF));
    assert_eq!(w.read(socket), b"last words");
    w.peer.forget();
    w.write(socket, b"answer");
    let data = w.tcp();
    assert_eq!(client.take(&data), b"answer");
    w.send(&client.ack());
    w.close(socket);
    let fin = w.tcp_with(FIN_ACK);
    client.take(&fin);
    w.send(&client.ack());
    // The side that closes second keeps nothing.
    assert_eq!(w.stack.usage().flows, 0);
}

#[test]
fn established_shutdown_sends_fin_and_goes_on_reading() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.app.write(socket, b"request");
    w.app.shutdown(socket);
    w.settle();
    let data = w.tcp();
    assert!(data.flags.contains(Flags::FIN));
    assert_eq!(client.take(&data), b"request");
    assert!(w.app.has(socket, SocketState::TX_SHUT));
    w.send(&client.data(b"long "));
    w.send(&client.data(b"answer"));
    assert_eq!(w.read(socket), b"long answer");
    w.send(&client.fin());
    assert!(w.app.has(socket, SocketState::EOF));
    // This side closes first and enters TIME_WAIT, whether or not the application holds the socket.
    assert_eq!(w.stack.usage().time_wait, 1);
    w.close(socket);
    assert_eq!(w.stack.usage().time_wait, 1);
    assert_eq!(w.stack.usage().sockets, 1, "the listener");
    w.advance(61 * SECOND);
    assert_eq!(w.stack.usage().time_wait, 0);
}

/// A connection in TIME_WAIT: our side closed first.
fn time_wait(w: &mut World, listener: Option<SocketId>) -> Client {
    let listener = listener.unwrap_or_else(|| w.listen());
    let mut client = w.client();
    w.handshake(&mut client);
    let socket = w.app.accept(listener).unwrap();
    w.close(socket);
    finish(w, &mut client);
    client
}

/// Lets the peer answer our FIN with its own.
fn finish(w: &mut World, client: &mut Client) {
    let fin = w.tcp_with(FIN_ACK);
    client.take(&fin);
    w.send(&client.fin());
    let ack = w.tcp_with(Flags::ACK);
    assert_eq!(ack.ack, client.nxt);
}

#[test]
fn closed_first_waits_and_expires() {
    let mut w = World::new();
    time_wait(&mut w, None);
    let usage = w.stack.usage();
    assert_eq!((usage.time_wait, usage.flows, usage.sockets), (1, 1, 1));
    w.advance(59 * SECOND);
    assert_eq!(w.stack.usage().time_wait, 1);
    w.advance(2 * SECOND);
    let usage = w.stack.usage();
    assert_eq!((usage.time_wait, usage.flows), (0, 0));
}

#[test]
fn time_wait_repeated_fin_is_acknowledged_and_waits_anew() {
    let mut w = World::new();
    let client = time_wait(&mut w, None);
    w.advance(50 * SECOND);
    let again = client.segment(FIN_ACK).at(client.nxt - 1);
    w.send(&again);
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
    w.advance(59 * SECOND);
    assert_eq!(w.stack.usage().time_wait, 1);
    w.advance(2 * SECOND);
    assert_eq!(w.stack.usage().time_wait, 0);
}

#[test]
fn time_wait_that_waits_anew_keeps_no_other_waiting() {
    let mut w = World::new();
    let listener = w.listen();
    let first = time_wait(&mut w, Some(listener));
    w.advance(10 * SECOND);
    time_wait(&mut w, Some(listener));
    w.advance(40 * SECOND);
    let again = first.segment(FIN_ACK).at(first.nxt - 1);
    w.send(&again);
    w.tcp_with(Flags::ACK);
    w.advance(21 * SECOND);
    assert_eq!(w.stack.usage().time_wait, 1, "the second is through");
}

#[test]
fn time_wait_new_syn_takes_the_flow_over() {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = time_wait(&mut w, Some(listener));
    let old_next = client.rcv;
    client.nxt += 100_000;
    w.begin_handshake(&mut client);
    assert_eq!(w.stack.counters().time_wait_reused, 1);
    assert_eq!(w.stack.counters().syn_received, 2);
    let iss = client.rcv - 1;
    assert!(
        iss.wrapping_sub(old_next) < 1 << 31,
        "above the old numbers"
    );
    w.send(&client.ack());
    let socket = w.app.accept(listener).unwrap();
    w.send(&client.data(b"again"));
    assert_eq!(w.read(socket), b"again");
    assert_eq!(w.stack.usage().time_wait, 0);
}

/// A SYN that reuses a flow starts a handshake with sequence numbers above the old ones, not a
/// cookie.
fn takes_over_above_the_old_numbers(w: &mut World, listener: SocketId, mut client: Client) {
    w.peer.forget();
    let cookies = w.stack.counters().syn_cookies_sent;
    let old_next = client.rcv;
    client.nxt += 100_000;
    w.begin_handshake(&mut client);
    let above = (client.rcv - 1).wrapping_sub(old_next);
    assert!(above < 1 << 31, "{above:#x}");
    assert_eq!(w.stack.counters().syn_cookies_sent, cookies);
    w.send(&client.ack());
    let socket = w.app.accept(listener).unwrap();
    w.send(&client.data(b"again"));
    assert_eq!(w.read(socket), b"again");
}

#[test]
fn time_wait_new_syn_gets_no_cookie_where_all_others_do() {
    let mut w = World::with(|s| s.config.tcp.syn_cookies = tcp::SynCookieUse::Always);
    let listener = w.listen();
    let client = time_wait(&mut w, Some(listener));
    assert_eq!(w.stack.counters().syn_cookies_accepted, 1);
    takes_over_above_the_old_numbers(&mut w, listener, client);
}

#[test]
fn time_wait_new_syn_gets_no_cookie_when_its_listener_is_flooded() {
    let mut w = World::new();
    let listener = w.listen_at(SocketAddr::new(STACK_V4, PORT), 4);
    let client = time_wait(&mut w, Some(listener));
    for _ in 0..4 {
        let mut other = w.client();
        w.begin_handshake(&mut other);
    }
    takes_over_above_the_old_numbers(&mut w, listener, client);
}

#[test]
fn time_wait_new_syn_waits_for_room_among_the_handshakes() {
    let mut w = World::new();
    let listener = w.listen();
    let client = time_wait(&mut w, Some(listener));
    let flood: Vec<Client> = (0..16)
        .map(|_| {
            let mut other = w.client();
            w.begin_handshake(&mut other);
            other
        })
        .collect();
    let syn = client.clone().syn().at(client.nxt + 100_000);
    let moved = w.counted(|w| w.send(&syn));
    assert!(moved.contains(&("half_open_full", 1)), "{moved:?}");
    w.silent();
    assert_eq!(w.stack.usage().time_wait, 1, "its numbers are still known");
    w.send(&flood[0].ack());
    assert!(w.app.accept(listener).is_some());
    takes_over_above_the_old_numbers(&mut w, listener, client);
}

#[test]
fn time_wait_old_syn_is_challenged_and_changes_nothing() {
    let mut w = World::new();
    let client = time_wait(&mut w, None);
    let mut old = client.segment(Flags::SYN).at(client.nxt - 5_000);
    old.options.mss = Some(1460);
    w.send(&old);
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
    assert_eq!(w.stack.usage().time_wait, 1);
}

#[test]
fn time_wait_syn_with_newer_stamp_takes_over_whatever_its_number() {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = w.client();
    let stamp = |value, echo| Options {
        mss: Some(1460),
        timestamp: Some(Timestamp { value, echo }),
        ..Options::default()
    };
    w.send(&client.syn().options(stamp(10, 0)));
    let syn_ack = w.tcp_with(Flags::SYN | Flags::ACK);
    client.on_syn_ack(&syn_ack);
    let echo = syn_ack.options.timestamp.unwrap().value;
    w.send(&client.ack().options(stamp(11, echo)));
    let socket = w.app.accept(listener).unwrap();
    w.close(socket);
    let fin = w.tcp_with(FIN_ACK);
    client.take(&fin);
    w.send(&client.fin().options(stamp(12, echo)));
    w.tcp_with(Flags::ACK);
    assert_eq!(w.stack.usage().time_wait, 1);
    let below = client.segment(Flags::SYN).at(client.nxt - 50_000);
    w.send(&below.clone().options(stamp(11, 0)));
    w.tcp_with(Flags::ACK);
    w.send(&below.options(stamp(13, 0)));
    w.tcp_with(Flags::SYN | Flags::ACK);
}

#[test]
fn time_wait_syn_without_a_listener_leaves_it() {
    let mut w = World::new();
    let listener = w.listen();
    let client = time_wait(&mut w, Some(listener));
    w.close(listener);
    w.send(&client.segment(Flags::SYN).at(client.nxt + 1_000));
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
    assert_eq!(w.stack.usage().time_wait, 1);
}

#[test]
fn time_wait_reset_ends_it_early() {
    let mut w = World::new();
    let client = time_wait(&mut w, None);
    w.send(&client.rst().at(client.nxt + 70_000));
    assert_eq!(w.stack.usage().time_wait, 1);
    w.send(&client.rst());
    assert_eq!(w.stack.usage().time_wait, 0);
    w.silent();
}

#[test]
fn time_wait_at_the_limit_forgets_the_oldest() {
    let mut w = World::with(|s| s.config.limits.time_wait_max = 3);
    let listener = w.listen();
    let clients: Vec<Client> = (0..4)
        .map(|_| {
            w.advance(SECOND);
            time_wait(&mut w, Some(listener))
        })
        .collect();
    assert_eq!(w.stack.usage().time_wait, 3);
    assert_eq!(w.stack.counters().time_wait_evicted, 1);
    w.send(&clients[0].ack());
    w.tcp_with(Flags::RST);
    w.send(&clients[1].ack());
    w.silent();
}

#[test]
fn fin_wait_1_crossing_fin_closes_both_at_once() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.close(socket);
    let fin = w.tcp_with(FIN_ACK);
    // The peer sent its FIN before ours arrived.
    w.send(&client.fin());
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
    assert_eq!(w.stack.usage().time_wait, 0);
    client.take(&fin);
    w.send(&client.ack());
    assert_eq!(w.stack.usage().time_wait, 1);
}

#[test]
fn fin_wait_2_held_by_the_application_stays() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.app.shutdown(socket);
    w.settle();
    let fin = w.tcp_with(FIN_ACK);
    client.take(&fin);
    w.send(&client.ack());
    w.advance(3_600 * SECOND);
    w.send(&client.data(b"late, but welcome"));
    assert_eq!(w.read(socket), b"late, but welcome");
}

#[test]
fn orphan_late_data_is_reset() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.close(socket);
    let fin = w.tcp_with(FIN_ACK);
    client.take(&fin);
    w.send(&client.data(b"nobody will read this"));
    w.tcp_with(Flags::RST);
    assert_eq!(w.stack.usage().flows, 0);
}

#[test]
fn established_close_with_unread_data_resets() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.send(&client.data(b"unread"));
    w.peer.forget();
    w.close(socket);
    let reset = w.tcp_with(Flags::RST | Flags::ACK);
    assert_eq!(reset.seq, client.rcv);
    let usage = w.stack.usage();
    assert_eq!((usage.flows, usage.small_chunks), (0, 0));
}

#[test]
fn established_close_after_reading_all_is_orderly() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.send(&client.data(b"read"));
    w.peer.forget();
    assert_eq!(w.app.read(socket), b"read");
    w.close(socket);
    w.tcp_with(FIN_ACK);
}

#[test]
fn established_close_sends_what_was_written_first() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let bytes: Vec<u8> = (0..30_000u32).map(|n| n as u8).collect();
    assert_eq!(w.app.write(socket, &bytes), bytes.len());
    w.app.close(socket);
    w.settle();
    let mut got = Vec::new();
    let mut finished = false;
    while !finished {
        let segments = w.peer.take_tcp();
        assert!(!segments.is_empty(), "{} bytes came", got.len());
        for segment in segments {
            finished |= segment.flags.contains(Flags::FIN);
            got.extend(client.take(&segment));
        }
        w.send(&client.ack());
    }
    assert_eq!(got, bytes);
}

#[test]
fn established_abort_resets_and_forgets_what_was_not_sent() {
    let mut w = World::new();
    let (client, socket) = w.established();
    w.app.write(socket, &[1; 60_000]);
    w.app.abort(socket);
    w.settle();
    let segments = w.peer.take_tcp();
    assert!(segments.last().unwrap().flags.contains(Flags::RST));
    let usage = w.stack.usage();
    assert_eq!(
        (usage.flows, usage.small_chunks, usage.large_chunks),
        (0, 0, 0)
    );
    w.send(&client.ack());
    w.tcp_with(Flags::RST);
}

#[test]
fn established_reset_at_the_edge_fails_it() {
    let mut w = World::new();
    let (client, socket) = w.established();
    w.send(&client.rst());
    assert_eq!(w.app.errno(socket), Some(Errno::CONNRESET));
    assert!(w.app.has(socket, SocketState::CLOSED));
    assert_eq!(w.app.take_events(), [socket]);
    w.silent();
    assert_eq!(w.stack.usage().flows, 0);
}

#[test]
fn established_reset_in_the_window_is_challenged_outside_dropped() {
    let mut w = World::new();
    let (client, socket) = w.established();
    w.send(&client.rst().at(client.nxt + 100));
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
    w.send(&client.rst().at(client.nxt + 100_000));
    w.send(&client.rst().at(client.nxt - 1));
    w.silent();
    assert_eq!(w.app.errno(socket), None);
}

#[test]
fn established_syn_is_challenged() {
    let mut w = World::new();
    let (client, socket) = w.established();
    w.send(&client.segment(Flags::SYN).acking(0));
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
    assert_eq!(w.app.errno(socket), None);
}

#[test]
fn reset_connection_still_gives_what_was_read_before() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.send(&client.data(b"kept"));
    w.send(&client.rst());
    assert_eq!(w.read(socket), b"kept");
    let usage = w.stack.usage();
    assert_eq!(usage.small_chunks, 0);
    w.close(socket);
}

#[test]
fn reset_connection_with_unsent_data_gives_it_back_on_close() {
    let mut w = World::new();
    let (client, socket) = w.established();
    w.write(socket, &[1; 50_000]);
    w.send(&client.rst());
    assert_eq!(w.app.write(socket, b"more"), 0, "no room any more");
    w.close(socket);
    let usage = w.stack.usage();
    assert_eq!((usage.small_chunks, usage.large_chunks), (0, 0));
    w.peer.forget();
}
