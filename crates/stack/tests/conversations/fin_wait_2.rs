//! Compact entries in FIN_WAIT_2: the application has closed, our FIN is acknowledged, and the
//! peer's FIN is missing.

use std::net::SocketAddr;

use ring::socket_block::SocketId;
use stack::context::SocketOption;
use wire::tcp::Flags;

use crate::common::{Client, PEER_V6, PORT, SECOND, STACK_V6, World};

const FIN_ACK: Flags = Flags::FIN.union(Flags::ACK);

/// A connection that was accepted and closed, whose FIN the peer has acknowledged.
fn left(w: &mut World, listener: SocketId) -> Client {
    left_with(w, listener, |_, _| {})
}

fn left_with(
    w: &mut World,
    listener: SocketId,
    before: impl FnOnce(&mut World, SocketId),
) -> Client {
    let mut client = w.client();
    w.handshake(&mut client);
    let socket = w.app.accept(listener).unwrap();
    before(w, socket);
    w.close(socket);
    client.take(&w.tcp_with(FIN_ACK));
    w.send(&client.ack());
    w.silent();
    client
}

/// Number of connections without the listener, of compact entries, and of those in FIN_WAIT_2.
fn held(w: &World) -> (usize, usize, usize) {
    let usage = w.stack.usage();
    (usage.sockets - 1, usage.time_wait, usage.fin_wait_2)
}

#[test]
fn fin_wait_1_orphan_whose_fin_is_acked_gives_its_socket_back() {
    let mut w = World::new();
    let listener = w.listen();
    left(&mut w, listener);
    assert_eq!(held(&w), (0, 1, 1));
    assert_eq!(w.stack.counters().fin_wait_2_entered, 1);
}

#[test]
fn fin_wait_2_close_gives_its_socket_back() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.app.shutdown(socket);
    w.settle();
    client.take(&w.tcp_with(FIN_ACK));
    w.send(&client.ack());
    assert_eq!(held(&w), (1, 0, 0));
    w.close(socket);
    assert_eq!(held(&w), (0, 1, 1));
    w.silent();
}

#[test]
fn fin_wait_1_orphan_answered_by_a_fin_takes_no_detour() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.close(socket);
    client.take(&w.tcp_with(FIN_ACK));
    w.send(&client.fin());
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
    assert_eq!(held(&w), (0, 1, 0));
    assert_eq!(w.stack.counters().fin_wait_2_entered, 0);
}

#[test]
fn fin_wait_2_entry_ends_without_the_peer() {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = left(&mut w, listener);
    w.advance(59 * SECOND);
    assert_eq!(held(&w), (0, 1, 1));
    w.advance(2 * SECOND);
    assert_eq!(held(&w), (0, 0, 0));
    assert_eq!(w.stack.tcp_counters().fin_wait_2_expired, 1);
    w.silent();
    w.send(&client.fin());
    w.tcp_with(Flags::RST);
}

#[test]
fn fin_wait_2_entries_end_each_in_its_own_time() {
    let mut w = World::new();
    let listener = w.listen();
    for seconds in [40, 20, 60, 30] {
        left_with(&mut w, listener, |w, socket| {
            let wait = SocketOption::FinWait2(Some(seconds * SECOND));
            w.app.option(socket, wait);
            w.settle();
        });
    }
    for left in [4, 3, 2, 1, 1, 0] {
        assert_eq!(held(&w), (0, left, left));
        w.advance(if left == 4 { 21 } else { 10 } * SECOND);
    }
}

#[test]
fn fin_wait_2_entry_fin_becomes_time_wait_for_a_minute() {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = left(&mut w, listener);
    w.advance(50 * SECOND);
    w.send(&client.fin());
    let ack = w.tcp_with(Flags::ACK);
    assert_eq!((ack.seq, ack.ack), (client.rcv, client.nxt));
    assert_eq!(held(&w), (0, 1, 0));
    w.advance(59 * SECOND);
    assert_eq!(held(&w), (0, 1, 0));
    w.advance(2 * SECOND);
    assert_eq!(held(&w), (0, 0, 0));
    assert_eq!(w.stack.tcp_counters().fin_wait_2_expired, 0);
}

#[test]
fn fin_wait_2_entry_fin_at_once_becomes_time_wait() {
    // Both FINs are exchanged in one turn, so both waits would end at the same time.
    let mut w = World::new();
    let listener = w.listen();
    let mut client = w.client();
    w.handshake(&mut client);
    let socket = w.app.accept(listener).unwrap();
    w.close(socket);
    client.take(&w.tcp_with(FIN_ACK));
    for segment in [client.ack(), client.fin()] {
        let frame = w.peer.frame(&segment);
        w.peer.transmit(&frame);
    }
    w.settle();
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
    assert_eq!(held(&w), (0, 1, 0));
    w.advance(61 * SECOND);
    assert_eq!(held(&w), (0, 0, 0));
}

#[test]
fn fin_wait_2_entry_data_is_reset() {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = left(&mut w, listener);
    w.send(&client.data(b"nobody will read this"));
    assert_eq!(w.tcp_with(Flags::RST).seq, client.rcv);
    assert_eq!(held(&w), (0, 0, 0));
}

#[test]
fn fin_wait_2_entry_over_ipv6() {
    let mut w = World::new();
    let listener = w.listen_at(SocketAddr::new(STACK_V6, PORT), 16);
    let mut client = w.client_from(PEER_V6, SocketAddr::new(STACK_V6, PORT));
    w.handshake(&mut client);
    let socket = w.app.accept(listener).unwrap();
    w.close(socket);
    client.take(&w.tcp_with(FIN_ACK));
    w.send(&client.ack());
    assert_eq!(held(&w), (0, 1, 1));
    // A window update is ignored; then the peer closes.
    w.send(&client.ack().window(100));
    w.silent();
    w.send(&client.fin());
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
    assert_eq!(held(&w), (0, 1, 0));
}

#[test]
fn fin_wait_2_entry_syn_is_reset_and_the_next_one_opens() {
    let mut w = World::new();
    let listener = w.listen();
    let client = left(&mut w, listener);
    let syn = client.segment(Flags::SYN).acking(0).at(client.nxt + 1000);
    w.send(&syn);
    w.tcp_with(Flags::RST | Flags::ACK);
    assert_eq!(held(&w), (0, 0, 0));
    w.send(&syn);
    w.tcp_with(Flags::SYN | Flags::ACK);
    let reset = syn.clone().at(syn.seq + 1).with(Flags::RST);
    w.send(&reset);
}

#[test]
fn fin_wait_2_entries_are_no_orphans() {
    let mut w = World::with(|s| s.config.limits.orphans_max = 1);
    let listener = w.listen();
    let (mut half_closed, half) = {
        let mut client = w.client();
        w.handshake(&mut client);
        (client, w.app.accept(listener).unwrap())
    };
    w.app.shutdown(half);
    w.settle();
    half_closed.take(&w.tcp_with(FIN_ACK));
    w.send(&half_closed.ack());
    for _ in 0..3 {
        left(&mut w, listener);
    }
    // One connection is an orphan: its FIN is not acknowledged.
    let mut client = w.client();
    w.handshake(&mut client);
    let socket = w.app.accept(listener).unwrap();
    w.close(socket);
    client.take(&w.tcp_with(FIN_ACK));
    // A connection that only waits for the peer's FIN is not an orphan and may close.
    w.close(half);
    w.silent();
    assert_eq!(held(&w), (1, 4, 4));
    assert_eq!(w.stack.counters().orphans_refused, 0);
}

#[test]
fn fin_wait_2_close_with_a_long_wait_is_an_orphan_first() {
    let mut w = World::new();
    let listener = w.listen();
    left_with(&mut w, listener, |w, socket| {
        let wait = SocketOption::FinWait2(Some(90 * SECOND));
        w.app.option(socket, wait);
        w.settle();
    });
    assert_eq!(held(&w), (1, 0, 0));
    w.advance(31 * SECOND);
    assert_eq!(held(&w), (0, 1, 1));
    w.advance(30 * SECOND);
    assert_eq!(held(&w), (0, 0, 0));
}

#[test]
fn fin_wait_2_entry_makes_room_at_the_expense_of_time_wait() {
    let mut w = World::with(|s| s.config.limits.time_wait_max = 3);
    let listener = w.listen();
    let mut first = left(&mut w, listener);
    for _ in 0..2 {
        let mut client = left(&mut w, listener);
        w.send(&client.fin());
        w.tcp_with(Flags::ACK);
    }
    assert_eq!(held(&w), (0, 3, 1));
    left(&mut w, listener);
    left(&mut w, listener);
    assert_eq!(held(&w), (0, 3, 3));
    assert_eq!(w.stack.counters().time_wait_evicted, 2);
    assert_eq!(w.stack.counters().fin_wait_2_evicted, 0);
    // All entries wait for a FIN, so the oldest is evicted.
    left(&mut w, listener);
    assert_eq!(held(&w), (0, 3, 3));
    assert_eq!(w.stack.counters().fin_wait_2_evicted, 1);
    w.send(&first.fin());
    w.tcp_with(Flags::RST);
}

#[test]
fn time_wait_finds_no_room_among_entries_in_fin_wait_2() {
    let mut w = World::with(|s| s.config.limits.time_wait_max = 2);
    let listener = w.listen();
    let mut clients = [left(&mut w, listener), left(&mut w, listener)];
    // Both sides close in one exchange.
    let mut client = w.client();
    w.handshake(&mut client);
    let socket = w.app.accept(listener).unwrap();
    w.close(socket);
    client.take(&w.tcp_with(FIN_ACK));
    w.send(&client.fin());
    assert_eq!(w.tcp_with(Flags::ACK).ack, client.nxt);
    assert_eq!(held(&w), (0, 2, 2));
    assert_eq!(w.stack.counters().time_wait_evicted, 1);
    // Entries that still wait enter TIME_WAIT in place.
    for client in &mut clients {
        w.send(&client.fin());
        w.tcp_with(Flags::ACK);
    }
    assert_eq!(held(&w), (0, 2, 0));
}

#[test]
fn fin_wait_2_entries_are_reset_when_the_stack_ends() {
    let mut w = World::new();
    let listener = w.listen();
    let clients = [left(&mut w, listener), left(&mut w, listener)];
    assert_eq!(w.stack.abort_some(0), None);
    w.settle();
    for client in clients {
        let reset = w.tcp_with(Flags::RST | Flags::ACK);
        assert_eq!((reset.seq, reset.ack), (client.rcv, client.nxt));
        assert_eq!(reset.dst, client.peer.ip());
    }
}
