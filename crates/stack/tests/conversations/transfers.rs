//! A listener closes while other processes listen at its address: its unaccepted connections move
//! to another stack.

use packetio::host::{Transfer, Wish};
use ring::socket_block::{SocketId, SocketState};
use wire::tcp::Flags;

use crate::common::hosted::HostEnd;
use crate::common::{Client, SECOND, World};
use crate::limits::aimed_at_one_bucket;

/// A stack at whose address another process listens too.
fn sharing() -> (World, HostEnd) {
    let host = HostEnd::shared();
    let world = World::with(|setup| setup.host = Some(host.clone()));
    (world, host)
}

/// Two stacks at one address; the first has an unaccepted connection.
fn waiting() -> (World, HostEnd, Client) {
    let (mut old, host) = sharing();
    let listener = old.listen();
    let mut client = old.client();
    old.handshake(&mut client);
    old.silent();
    assert!(old.app.is_listener(listener));
    (old, host, client)
}

/// Carries a connection from one stack to the other, and the answer back.
fn carry(from: &HostEnd, (new, to): (&mut World, &HostEnd)) {
    let sent = from.talk().sent.pop_front().expect("a connection");
    to.talk().coming.push_back(sent);
    new.settle();
    let answer = to.talk().sent.pop_front().expect("an answer");
    from.talk().coming.push_back(answer);
}

/// A stack with a shared address, whose memory one connection has filled.
fn full() -> (World, HostEnd) {
    let host = HostEnd::shared();
    let mut w = World::with(|setup| {
        setup.host = Some(host.clone());
        let limits = &mut setup.config.limits;
        (limits.small_chunks, limits.large_chunks) = (16, 16);
    });
    let listener = w.listen();
    // Skips the port that the connection from elsewhere uses.
    let (_, mut client) = (w.client(), w.client());
    w.handshake(&mut client);
    accepted(&mut w, listener);
    for _ in 0..100 {
        w.send(&client.data(&[3; 1_000]));
    }
    assert!(w.stack.counters().rx_no_buffer > 0);
    w.peer.forget();
    (w, host)
}

fn accepted(w: &mut World, listener: SocketId) -> SocketId {
    w.app.accept(listener).expect("a connection")
}

fn listener_of(w: &World) -> SocketId {
    let mut all = w.app.sockets_open().into_iter();
    all.find(|id| w.app.is_listener(*id)).expect("a listener")
}

#[test]
fn closed_listener_hands_its_connection_to_another_stack() {
    let (mut old, host, mut client) = waiting();
    old.send(&client.data(b"request"));
    old.tcp_with(Flags::ACK);
    let listener = listener_of(&old);
    old.close(listener);
    old.silent();
    assert_eq!(old.stack.counters().transfers_sent, 1);
    assert!(old.stack.is_transferring());

    let (mut new, to) = sharing();
    let listener = new.listen();
    carry(&host, (&mut new, &to));
    let ack = new.tcp_with(Flags::ACK);
    assert_eq!(ack.ack, client.nxt, "the peer's segments come here now");
    old.settle();
    assert!(!old.stack.is_transferring());
    assert_eq!(old.stack.usage().flows, 0);

    let socket = accepted(&mut new, listener);
    assert_eq!(new.app.read(socket), b"request");
    new.app.write(socket, b"answer");
    new.settle();
    let answer = new.tcp();
    assert_eq!(answer.payload, b"answer");
    assert_eq!(answer.seq, client.rcv);
    new.unchecked = true;
}

#[test]
fn connection_that_the_peer_has_closed_moves_with_its_fin() {
    let (mut old, host, mut client) = waiting();
    old.send(&client.data(b"last"));
    old.send(&client.fin());
    let listener = listener_of(&old);
    old.close(listener);
    let (mut new, to) = sharing();
    let listener = new.listen();
    carry(&host, (&mut new, &to));
    old.settle();
    let socket = accepted(&mut new, listener);
    assert_eq!(new.app.read(socket), b"last");
    assert!(new.app.has(socket, SocketState::EOF));
    new.unchecked = true;
}

#[test]
fn connection_whose_home_in_the_flow_table_is_full_is_refused() {
    let to = HostEnd::shared();
    let (mut new, _, mut client) = aimed_at_one_bucket(400, |setup| setup.host = Some(to.clone()));
    let (mut old, host) = sharing();
    let listener = old.listen();
    old.handshake(&mut client);
    old.close(listener);
    carry(&host, (&mut new, &to));
    assert_eq!(new.stack.counters().flow_table_full, 1);
    new.silent();
    old.settle();
    assert_eq!(old.stack.counters().transfers_refused, 1);
    assert_eq!(old.tcp_with(Flags::RST).dst_port, client.peer.port());
    new.unchecked = true;
}

#[test]
fn handshake_in_progress_moves_when_it_is_complete() {
    let (mut old, host) = sharing();
    let listener = old.listen();
    let mut client = old.client();
    old.begin_handshake(&mut client);
    old.close(listener);
    assert!(old.stack.is_transferring(), "its ACK is to come");
    assert!(host.talk().sent.is_empty());
    old.send(&client.ack());
    old.silent();
    let (mut new, to) = sharing();
    let listener = new.listen();
    carry(&host, (&mut new, &to));
    old.settle();
    assert!(!old.stack.is_transferring());
    accepted(&mut new, listener);
    new.unchecked = true;
}

#[test]
fn cookie_of_a_listener_that_was_closed_completes_at_another_stack() {
    let host = HostEnd::shared();
    let mut old = World::with(|setup| {
        setup.host = Some(host.clone());
        setup.config.tcp.syn_cookies = tcp::SynCookieUse::Always;
    });
    let listener = old.listen();
    let mut client = old.client();
    old.begin_handshake(&mut client);
    assert_eq!(old.stack.counters().syn_cookies_sent, 1);
    old.close(listener);
    old.send(&client.ack());
    old.silent();
    assert_eq!(old.stack.counters().syn_cookies_accepted, 1);
    old.send(&client.data(b"request"));
    old.silent();
    assert_eq!(host.talk().sent.len(), 1, "the same cookie again");
    let (mut new, to) = sharing();
    let listener = new.listen();
    carry(&host, (&mut new, &to));
    old.settle();
    assert!(!old.stack.is_transferring());
    accepted(&mut new, listener);
    new.unchecked = true;
}

#[test]
fn place_that_was_left_leaves_syns_to_others_and_resets_other_segments_later() {
    let (mut old, host) = sharing();
    let listener = old.listen();
    old.close(listener);
    let mut early = old.client();
    old.send(&early.syn());
    old.silent();
    assert_eq!(old.stack.counters().transfers_quiet, 1);
    let is_told = |host: &HostEnd| {
        let wishes = host.wishes();
        wishes.iter().any(|wish| matches!(wish, Wish::Forget(_, _)))
    };
    assert!(is_told(&host), "the next SYN is for another process");
    old.advance(3 * SECOND);
    old.send(&early.syn());
    old.silent();
    assert!(is_told(&host));
    old.send(&early.data(b"lost"));
    assert!(old.tcp().flags.contains(Flags::RST));
}

#[test]
fn flow_in_time_wait_leaves_its_next_syn_to_others() {
    let (mut old, host) = sharing();
    let listener = old.listen();
    let mut client = old.client();
    old.handshake(&mut client);
    let socket = accepted(&mut old, listener);
    old.close(socket);
    old.tcp_with(Flags::FIN | Flags::ACK);
    client.rcv += 1;
    old.send(&client.fin());
    old.tcp_with(Flags::ACK);
    assert_eq!(old.stack.usage().time_wait, 1);
    old.close(listener);
    old.settle();
    host.wishes();
    client.nxt += 100_000;
    old.send(&client.syn());
    old.silent();
    let asked = host.wishes();
    assert!(asked.iter().any(|wish| matches!(wish, Wish::Forget(_, _))));
}

#[test]
fn place_stays_quiet_while_a_connection_is_on_its_way_and_for_a_while_after() {
    let (mut old, host, mut client) = waiting();
    let listener = listener_of(&old);
    old.close(listener);
    old.advance(3 * SECOND);
    // Nothing has taken the connection yet, and its peer continues.
    let request = client.data(b"request");
    old.send(&request);
    old.silent();
    let Some(Transfer::Connection { number, .. }) = host.talk().sent.pop_front() else {
        panic!("no connection");
    };
    host.talk().coming.push_back(Transfer::Taken { number });
    old.settle();
    old.send(&request);
    old.silent();
    assert_eq!(old.stack.counters().transfers_quiet, 2);
    old.advance(3 * SECOND);
    old.send(&request);
    old.tcp_with(Flags::RST);
}

#[test]
fn connection_that_nobody_takes_is_reset() {
    let (mut old, host, client) = waiting();
    let listener = listener_of(&old);
    old.close(listener);
    let Some(Transfer::Connection { number, .. }) = host.talk().sent.pop_front() else {
        panic!("no connection");
    };
    host.talk().coming.push_back(Transfer::Refused { number });
    old.settle();
    let reset = old.tcp_with(Flags::RST);
    assert_eq!(reset.seq, client.rcv);
    assert_eq!(old.stack.counters().transfers_refused, 1);
}

#[test]
fn stack_without_a_listener_or_with_strange_bytes_refuses() {
    let (mut old, host, _client) = waiting();
    let listener = listener_of(&old);
    old.close(listener);
    let sent = host.talk().sent.pop_front().expect("a connection");
    let (mut new, to) = sharing();
    let strange = Transfer::Connection {
        comes_back: false,
        number: 9,
        local: "10.0.0.1:80".parse().expect("a place"),
        ends: (
            "10.0.0.1:80".parse().expect("an end"),
            "10.0.0.2:40000".parse().expect("an end"),
        ),
        bytes: vec![7; 90],
    };
    to.talk().coming.extend([sent, strange]);
    new.settle();
    let answers: Vec<Transfer> = to.talk().sent.drain(..).collect();
    let refused = |answer: &Transfer| matches!(answer, Transfer::Refused { .. });
    assert!(answers.len() == 2 && answers.iter().all(refused));
    assert_eq!(new.stack.usage().flows, 0);
    old.unchecked = true;
}

#[test]
fn stack_with_too_little_memory_for_what_arrived_refuses_in_silence() {
    for has_fin in [false, true] {
        let (mut old, host, mut client) = waiting();
        for _ in 0..12 {
            old.send(&client.data(&[5; 1_000]));
        }
        if has_fin {
            old.send(&client.fin());
        }
        old.peer.forget();
        let listener = listener_of(&old);
        old.close(listener);

        let (mut new, to) = full();
        let listener = listener_of(&new);
        let before = new.stack.counters().rx_no_buffer;
        let sent = host.talk().sent.pop_front().expect("a connection");
        to.talk().coming.push_back(sent);
        new.settle();
        let answer = to.talk().sent.pop_front();
        let Some(refused @ Transfer::Refused { .. }) = answer else {
            panic!("{answer:?}");
        };
        assert!(new.stack.counters().rx_no_buffer > before);
        assert_eq!(new.stack.counters().transfers_taken, 0);
        assert!(new.app.accept(listener).is_none());
        assert_eq!(new.stack.usage().flows, 1);
        new.silent();
        // The stack that holds all bytes tells the peer that they are lost.
        host.talk().coming.push_back(refused);
        old.settle();
        assert_eq!(old.tcp_with(Flags::RST).seq, client.rcv);
    }
}

#[test]
fn place_that_is_not_shared_resets_as_always() {
    let (mut old, host, _client) = waiting();
    host.talk().is_shared = false;
    let listener = listener_of(&old);
    old.close(listener);
    assert!(old.tcp().flags.contains(Flags::RST));
    assert!(host.talk().sent.is_empty());
}
