//! Connections that wait too long to be accepted, while other processes listen at their address:
//! the stack searches a process of which a call waits, and hands them over.

use packetio::host::{Transfer, Wish};
use ring::socket_block::SocketId;
use stack::limits::{SEEK_AGE_NS, SEEK_PAUSE_NS_MAX, SEEK_URGENT_NS};
use wire::tcp::Flags;

use crate::common::hosted::HostEnd;
use crate::common::{Client, World};

/// A stack at whose address other processes listen, and its listener.
fn sharing() -> (World, HostEnd, SocketId) {
    let host = HostEnd::shared();
    let mut world = World::with(|setup| setup.host = Some(host.clone()));
    let listener = world.listen();
    (world, host, listener)
}

/// Such a stack with a connection that waits too long.
fn waiting() -> (World, HostEnd, SocketId, Client) {
    let (mut w, host, listener) = sharing();
    let mut client = w.client();
    w.handshake(&mut client);
    assert!(host.talk().sent.is_empty(), "it has only come");
    w.advance(SEEK_AGE_NS);
    (w, host, listener, client)
}

/// The number of the stack's question, and whether its process accepts.
fn question(host: &HostEnd) -> (u32, bool) {
    match host.talk().sent.pop_front() {
        Some(Transfer::Seek {
            number, accepts, ..
        }) => (number, accepts),
        other => panic!("no question: {other:?}"),
    }
}

/// Carries a transfer from one stack to the other, and the answer back. True: it said yes.
fn carry((old, from): (&mut World, &HostEnd), (new, to): (&mut World, &HostEnd)) -> bool {
    let sent = from.talk().sent.pop_front().expect("a transfer");
    to.talk().coming.push_back(sent);
    new.settle();
    let answer = to.talk().sent.pop_front().expect("an answer");
    let is_yes = matches!(answer, Transfer::Taken { .. });
    from.talk().coming.push_back(answer);
    old.settle();
    is_yes
}

#[test]
fn connection_unaccepted_moves_to_a_process_with_a_call_that_waits() {
    let (mut old, host, listener, mut client) = waiting();
    let (mut new, to, other) = sharing();
    assert!(
        !carry((&mut old, &host), (&mut new, &to)),
        "no call waits there"
    );
    old.silent();
    let call = new.app.begin_call(other);
    old.advance(SEEK_AGE_NS);
    assert!(carry((&mut old, &host), (&mut new, &to)));
    assert!(carry((&mut old, &host), (&mut new, &to)), "the connection");
    drop(call);
    let counters = old.stack.counters();
    assert_eq!((counters.transfers_sent, counters.resets_sent), (1, 0));
    assert_eq!(old.stack.usage().flows, 0);
    assert!(old.app.accept(listener).is_none());

    old.send(&client.data(b"late"));
    old.silent();
    assert_eq!(old.stack.counters().transfers_quiet, 1);
    client.nxt -= 4;
    new.tcp_with(Flags::ACK);
    let socket = new.app.accept(other).expect("a connection");
    new.send(&client.data(b"late"));
    assert_eq!(new.app.read(socket), b"late");
    new.unchecked = true;
}

#[test]
fn process_that_expects_a_connection_says_no_to_others() {
    let (mut old, host, _, _) = waiting();
    let (mut third, its, _, _) = waiting();
    let (mut new, to, other) = sharing();
    let _call = new.app.begin_call(other);
    assert!(carry((&mut old, &host), (&mut new, &to)));
    assert!(
        !carry((&mut third, &its), (&mut new, &to)),
        "it expects one"
    );
    assert!(carry((&mut old, &host), (&mut new, &to)), "the connection");
    third.advance(SEEK_AGE_NS);
    assert!(!carry((&mut third, &its), (&mut new, &to)), "it has one");
    assert!(new.app.accept(other).is_some());
    third.advance(2 * SEEK_AGE_NS);
    assert!(carry((&mut third, &its), (&mut new, &to)));
    new.unchecked = true;
}

#[test]
fn connection_that_a_watcher_has_for_long_goes_to_a_process_that_is_busy() {
    let (mut watcher, host, _, _) = waiting();
    let (mut busy, to, listener) = sharing();
    // Skips the port that the watcher's connection uses.
    let (_, mut clients) = (busy.client(), [busy.client(), busy.client()]);
    busy.handshake(&mut clients[0]);
    assert!(busy.app.accept(listener).is_some());
    busy.handshake(&mut clients[1]);
    let mut waited_ns = SEEK_AGE_NS;
    while waited_ns < SEEK_URGENT_NS {
        assert!(!carry((&mut watcher, &host), (&mut busy, &to)));
        watcher.advance(SEEK_AGE_NS);
        waited_ns += SEEK_AGE_NS;
        if host.talk().sent.is_empty() {
            watcher.advance(SEEK_PAUSE_NS_MAX);
            waited_ns += SEEK_PAUSE_NS_MAX;
        }
    }
    assert!(carry((&mut watcher, &host), (&mut busy, &to)));
    assert!(carry((&mut watcher, &host), (&mut busy, &to)), "moved");
    assert!(busy.app.accept(listener).is_some());
    assert!(busy.app.accept(listener).is_some(), "the watcher's");
    busy.unchecked = true;
}

#[test]
fn search_in_vain_is_repeated_after_longer_and_longer_pauses() {
    let (mut w, host, _, _) = waiting();
    let mut pause_ns = SEEK_AGE_NS;
    for _ in 0..6 {
        let (number, accepts) = question(&host);
        assert!(!accepts);
        host.talk().coming.push_back(Transfer::Refused { number });
        w.settle();
        w.advance(pause_ns - 1);
        assert!(host.talk().sent.is_empty(), "before {pause_ns} ns");
        w.advance(1);
        pause_ns = (2 * pause_ns).min(SEEK_PAUSE_NS_MAX);
    }
    w.silent();
}

#[test]
fn connection_that_the_found_process_does_not_take_returns_to_its_queue() {
    let (mut w, host, listener, mut client) = waiting();
    let (number, _) = question(&host);
    host.talk().coming.push_back(Transfer::Taken { number });
    w.settle();
    let sent = host.talk().sent.pop_front();
    let Some(Transfer::Connection {
        number, comes_back, ..
    }) = sent
    else {
        panic!("no connection: {sent:?}");
    };
    assert!(comes_back && w.app.accept(listener).is_none());
    host.talk().coming.push_back(Transfer::Refused { number });
    w.settle();
    w.tcp_with(Flags::ACK);
    assert_eq!(w.stack.counters().transfers_back, 1);
    let socket = w.app.accept(listener).expect("the connection");
    w.send(&client.data(b"request"));
    assert_eq!(w.app.read(socket), b"request");
    w.unchecked = true;
}

#[test]
fn connection_refused_after_its_listener_closed_goes_to_any_process() {
    let (mut w, host, listener, _) = waiting();
    let (number, _) = question(&host);
    host.talk().coming.push_back(Transfer::Taken { number });
    w.settle();
    let sent = host.talk().sent.pop_front();
    let Some(Transfer::Connection { number, .. }) = sent else {
        panic!("no connection: {sent:?}");
    };
    w.close(listener);
    host.talk().coming.push_back(Transfer::Refused { number });
    w.settle();
    w.silent();
    let again = host.talk().sent.pop_front();
    let Some(Transfer::Connection {
        number, comes_back, ..
    }) = again
    else {
        panic!("not sent again: {again:?}");
    };
    assert!(!comes_back);
    // Nobody takes it, and there is no listener to which it could come back.
    host.talk().coming.push_back(Transfer::Refused { number });
    w.settle();
    w.tcp_with(Flags::RST);
    w.unchecked = true;
}

#[test]
fn connection_accepted_during_the_search_stays() {
    let (mut w, host, listener, mut client) = waiting();
    let (number, _) = question(&host);
    let socket = w.app.accept(listener).expect("the connection");
    host.talk().coming.push_back(Transfer::Taken { number });
    w.settle();
    assert!(host.talk().sent.is_empty());
    w.send(&client.data(b"request"));
    assert_eq!(w.app.read(socket), b"request");
    w.unchecked = true;
}

#[test]
fn connection_reset_by_its_peer_stays_for_the_application() {
    let (mut w, host, listener, client) = waiting();
    w.send(&client.rst());
    let (number, _) = question(&host);
    host.talk().coming.push_back(Transfer::Taken { number });
    w.settle();
    assert!(host.talk().sent.is_empty());
    assert!(w.app.accept(listener).is_some());
    w.unchecked = true;
}

#[test]
fn process_passed_over_says_when_it_accepts() {
    let (mut w, host, listener, _) = waiting();
    let (mut new, to, other) = sharing();
    let _call = new.app.begin_call(other);
    assert!(carry((&mut w, &host), (&mut new, &to)));
    assert!(carry((&mut w, &host), (&mut new, &to)));
    assert_eq!(host.wishes(), []);
    for is_first in [true, false] {
        let mut client = w.client();
        w.handshake(&mut client);
        assert!(w.app.accept(listener).is_some());
        w.settle();
        let wishes = host.wishes();
        let told = wishes.iter().filter(|one| matches!(one, Wish::Accepts(_)));
        assert_eq!(told.count(), usize::from(is_first));
    }
    let mut client = w.client();
    w.handshake(&mut client);
    w.advance(SEEK_AGE_NS);
    assert!(question(&host).1, "its process accepts");
    w.unchecked = true;
    new.unchecked = true;
}

#[test]
fn connection_at_an_address_of_one_process_stays() {
    let (mut w, host, listener) = sharing();
    host.talk().is_shared = false;
    let mut client = w.client();
    w.handshake(&mut client);
    w.advance(SEEK_AGE_NS);
    assert!(host.talk().sent.is_empty());
    assert!(w.app.accept(listener).is_some());
    w.unchecked = true;
}
