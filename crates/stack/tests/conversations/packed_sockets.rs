//! Packed sockets: a quiet connection is packed when slots are needed, invisibly for peer and
//! application.

use ring::socket_block::SocketId;
use stack::Limits;
use stack::context::SocketOption;
use wire::tcp::Flags;

use crate::common::{Client, SECOND, World};

type Ends = Vec<(Client, SocketId)>;

/// A world with `count` connections that have been quiet for two seconds. One socket may stay
/// unpacked, and a connection is quiet after a second.
fn quiet(count: usize, change: impl FnOnce(&mut Limits)) -> (World, Ends) {
    let mut w = World::with(|setup| {
        setup.config.limits.warm_sockets = 1;
        setup.config.limits.pack_after_ns = SECOND;
        change(&mut setup.config.limits);
    });
    let listener = w.listen();
    let mut ends = Ends::new();
    for _ in 0..count {
        let mut client = w.client();
        w.handshake(&mut client);
        let socket = w.app.accept(listener).expect("the handshake is complete");
        ends.push((client, socket));
    }
    w.advance(2 * SECOND);
    turns(&mut w);
    (w, ends)
}

/// Runs turns, in each of which the packing cursor takes a few steps.
fn turns(w: &mut World) {
    for _ in 0..64 {
        w.turn();
    }
}

#[test]
fn established_quiet_is_packed_and_answers_as_ever() {
    let (mut w, mut ends) = quiet(8, |_| {});
    assert_eq!(w.stack.usage().dormant, 8);
    assert_eq!(w.stack.usage().sockets, 9);
    for (client, socket) in &mut ends {
        w.send(&client.data(b"request"));
        assert_eq!(w.read(*socket), b"request");
        w.write(*socket, b"response");
        let response = w.peer.take_tcp().pop().expect("the response");
        assert_eq!(response.ack, client.nxt);
        assert_eq!(client.take(&response), b"response");
        w.send(&client.ack());
    }
    // Connections that exchanged payload are packed after a second.
    turns(&mut w);
    assert_eq!(w.stack.usage().dormant, 0);
    w.advance(2 * SECOND);
    turns(&mut w);
    assert_eq!(w.stack.usage().dormant, 8);
}

#[test]
fn established_busy_are_looked_at_again_after_a_while() {
    const HUNDREDTH: u64 = SECOND / 100;
    let mut w = World::with(|setup| {
        setup.config.limits.warm_sockets = 1;
        setup.config.limits.pack_after_ns = SECOND;
    });
    let listener = w.listen();
    for _ in 0..20 {
        let mut client = w.client();
        w.handshake(&mut client);
        let socket = w.app.accept(listener).expect("the handshake is complete");
        w.send(&client.data(b"request"));
        assert_eq!(w.read(socket), b"request");
        w.peer.forget();
    }
    let dormant_after = |w: &mut World, ns: u64| {
        w.advance(ns);
        turns(w);
        w.stack.usage().dormant
    };
    assert_eq!(dormant_after(&mut w, 95 * HUNDREDTH), 0);
    // All connections are quiet now, but the cursor has just passed them and pauses for a tenth of
    // a second.
    assert_eq!(dormant_after(&mut w, 8 * HUNDREDTH), 0);
    assert_eq!(dormant_after(&mut w, 3 * HUNDREDTH), 20);
}

#[test]
fn established_packed_is_reset_by_its_peer() {
    let (mut w, ends) = quiet(2, |_| {});
    assert_eq!(w.stack.usage().dormant, 2);
    w.send(&ends[0].0.rst());
    assert!(w.app.take_events().contains(&ends[0].1));
    assert_eq!(w.stack.usage().flows, 1);
}

#[test]
fn established_with_keepalive_is_packed_and_probes_in_time() {
    let (mut w, ends) = quiet(1, |_| {});
    let times = tcp::connection::Keepalive {
        idle_ns: 10 * SECOND,
        interval_ns: SECOND,
        probes_max: 3,
    };
    w.app
        .option(ends[0].1, SocketOption::KeepAlive(Some(times)));
    w.settle();
    turns(&mut w);
    assert_eq!(w.stack.usage().dormant, 1);
    w.advance(10 * SECOND);
    let probe = w.tcp_with(Flags::ACK);
    assert_eq!(probe.seq, ends[0].0.rcv.wrapping_sub(1));
}

#[test]
fn established_with_bytes_unread_is_not_packed() {
    let (mut w, ends) = quiet(2, |_| {});
    let mut client = ends.into_iter().next().expect("two were made");
    w.send(&client.0.data(b"unread"));
    w.advance(2 * SECOND);
    turns(&mut w);
    assert_eq!(w.stack.usage().dormant, 1);
    assert_eq!(w.read(client.1), b"unread");
    turns(&mut w);
    assert_eq!(w.stack.usage().dormant, 2);
}

#[test]
fn established_quiet_stays_as_it_is_at_the_limit_of_blocks() {
    let (mut w, ends) = quiet(4, |limits| limits.packed_blocks = 5);
    let usage = w.stack.usage();
    assert_eq!((usage.dormant, usage.packed_blocks), (2, 4));
    assert!(w.stack.counters().pack_refused > 0, "and that is counted");
    w.close(ends[0].1);
    w.close(ends[1].1);
    w.peer.forget();
}

#[test]
fn established_few_are_never_packed() {
    // The listener takes a slot too.
    for few in [6, 64] {
        let (w, _) = quiet(4, |limits| limits.warm_sockets = few);
        assert_eq!(w.stack.usage().dormant, 0, "{few}");
    }
    let (w, _) = quiet(4, |limits| limits.warm_sockets = 5);
    assert_eq!(w.stack.usage().dormant, 2, "a step packs two");
}

#[test]
fn established_quiet_are_packed_two_a_turn() {
    let mut w = World::with(|setup| {
        setup.config.limits.warm_sockets = 1;
        setup.config.limits.pack_after_ns = SECOND;
    });
    let listener = w.listen();
    for _ in 0..8 {
        let mut client = w.client();
        w.handshake(&mut client);
        assert!(w.app.accept(listener).is_some());
    }
    // Connections without payload are quiet after a tenth of the time.
    w.now_ns += SECOND / 10 - 1;
    turns(&mut w);
    assert_eq!(w.stack.usage().dormant, 0);
    w.now_ns += 1;
    for packed in [2, 4, 6, 8, 8] {
        w.turn();
        assert_eq!(w.stack.usage().dormant, packed);
    }
}
