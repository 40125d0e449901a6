//! Delays and round trips that a stack gathers in histograms, for those who look in from outside.

use stack::activity::Histogram;
use wire::tcp::Flags;

use crate::common::{MILLIS, SECOND, World};

/// How many values, and their sum.
fn counted(histogram: &Histogram) -> (u64, u64) {
    (histogram.buckets.iter().sum(), histogram.sum)
}

/// A world in which no connection is packed: packed ones are not sampled.
fn unpacked() -> World {
    World::with(|setup| setup.config.limits.warm_sockets = 64)
}

#[test]
fn accepted_delay_ends_when_the_application_takes_the_connection() {
    let mut w = World::new();
    let listener = w.listen();
    for _ in 0..3 {
        let mut client = w.client();
        w.handshake(&mut client);
        w.now_ns += MILLIS;
    }
    w.turn();
    assert_eq!(counted(&w.stack.activity().accept_ns), (0, 0));
    assert!(w.app.accept(listener).is_some());
    w.turn();
    assert_eq!(counted(&w.stack.activity().accept_ns), (1, 3 * MILLIS));
    w.now_ns += 5 * MILLIS;
    while w.app.accept(listener).is_some() {}
    w.turn();
    assert_eq!(counted(&w.stack.activity().accept_ns), (3, 16 * MILLIS));
}

#[test]
fn established_round_trip_is_sampled_while_the_connection_is_active() {
    let mut w = unpacked();
    let listener = w.listen();
    // The ACK of a SYN-ACK that was sent twice measures nothing.
    let mut unmeasured = w.client();
    w.begin_handshake(&mut unmeasured);
    w.advance(SECOND);
    w.tcp_with(Flags::SYN | Flags::ACK);
    w.send(&unmeasured.ack());
    let mut client = w.client();
    w.begin_handshake(&mut client);
    w.now_ns += 30 * MILLIS;
    w.send(&client.ack());
    while w.app.accept(listener).is_some() {}
    let sampled = |w: &mut World, recent_ns: u64| {
        w.stack.sample_round_trips(recent_ns);
        counted(&w.stack.activity().round_trip_ns)
    };
    assert_eq!(sampled(&mut w, 0), (1, 30 * MILLIS));
    w.now_ns += MILLIS;
    w.turn();
    assert_eq!(sampled(&mut w, MILLIS - 1), (1, 30 * MILLIS));
    assert_eq!(sampled(&mut w, MILLIS), (2, 60 * MILLIS));
    assert_eq!(sampled(&mut w, SECOND), (3, 90 * MILLIS));
}

/// A look is at sixteen slots, and the next one goes on behind them.
#[test]
fn established_round_trips_are_sampled_in_turn() {
    const CONNECTIONS: u64 = 24;
    let mut w = unpacked();
    let listener = w.listen();
    let mut sum_ns = 0;
    for nth in 0..CONNECTIONS {
        let mut client = w.client();
        w.begin_handshake(&mut client);
        w.now_ns += (nth + 1) * MILLIS;
        sum_ns += (nth + 1) * MILLIS;
        w.send(&client.ack());
        assert!(w.app.accept(listener).is_some());
    }
    // The slot of no socket, and the listener's, are looked at too.
    let slots = CONNECTIONS + 2;
    for look in 1..=slots {
        w.stack.sample_round_trips(u64::MAX);
        if look * 16 % slots == 0 {
            let rounds = look * 16 / slots;
            let expected = (rounds * CONNECTIONS, rounds * sum_ns);
            assert_eq!(counted(&w.stack.activity().round_trip_ns), expected);
        }
    }
}
