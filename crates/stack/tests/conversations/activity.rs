//! Histograms of accept delays and round trips, for observers.

use stack::activity::Histogram;
use wire::tcp::Flags;

use crate::common::{MILLIS, SECOND, World};

/// Number and sum of a histogram's values.
fn counted(histogram: &Histogram) -> (u64, u64) {
    (histogram.buckets.iter().sum(), histogram.sum)
}

/// A world that packs no connection: packed ones are not sampled.
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
    // A retransmitted SYN-ACK yields no round-trip measurement.
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

/// One look samples sixteen slots; the next continues behind them.
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
    // The slots of the listener and of no socket are sampled too.
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
