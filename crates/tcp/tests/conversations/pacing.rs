//! Pacing: the data that waits, the segments that do not, and the time at which data departs.

use crate::peer::{MS, Peer, Setup, Variant, conversation};

/// A paced connection with a round trip of 100 ms.
fn paced(variant: Variant) -> Peer {
    let mut setup = Setup::default();
    setup.config.pacing = true;
    setup.config.burst_segments_min = 2;
    let mut p = Peer::accepted_after(&setup, variant, Some(100 * MS));
    p.inject(". 1:1(0) ack 1");
    p
}

/// A paced connection whose first window was acknowledged at once, so that 20 segments may follow.
fn underway(variant: Variant) -> Peer {
    let mut p = paced(variant);
    p.write(60_000);
    assert_eq!(p.skip_sent(), 10);
    p.wait_ms(100);
    p.inject(". 1:1(0) ack 10001");
    p
}

#[test]
fn established_first_window_leaves_at_once() {
    conversation(paced, |p| {
        p.write(10_000);
        assert_eq!(p.skip_sent(), 10);
    });
}

#[test]
fn established_later_windows_leave_in_bursts_of_a_millisecond() {
    conversation(underway, |p| {
        // The rate is twice a window of 20 segments per round trip: 400 kB/s, two segments every 5
        // ms.
        assert_eq!(p.conn.info().pacing_rate, 400_000);
        assert_eq!(p.skip_sent(), 2);
        // The first burst leaves long after the one before, so it takes off half of its own
        // spacing.
        let next_ns = p.now_ns + 5 * MS / 2;
        assert_eq!(p.conn.deadline_ns(), next_ns);
        assert!(p.conn.is_deadline_fine());
        p.wait_until(next_ns - 1);
        p.expect_nothing();
        p.wait_until(next_ns);
        assert_eq!(p.skip_sent(), 2);
        p.wait_ms(4);
        p.expect_nothing();
        p.wait_ms(1);
        assert_eq!(p.skip_sent(), 2);
        for _ in 0..7 {
            p.wait_ms(5);
            assert_eq!(p.skip_sent(), 2);
        }
        // The window is full, so no data waits for its departure.
        assert!(!p.conn.is_deadline_fine());
    });
}

#[test]
fn established_acks_do_not_wait() {
    conversation(underway, |p| {
        p.skip_sent();
        p.inject("P. 1:101(100) ack 10001");
        p.expect(". 12001:12001(0) ack 101");
    });
}

#[test]
fn established_fin_waits_behind_its_data() {
    conversation(underway, |p| {
        p.skip_sent();
        p.shutdown();
        p.expect_nothing();
    });
}

#[test]
fn established_lost_segments_wait_too() {
    conversation(underway, |p| {
        p.wait_ms(5);
        p.skip_sent();
        for _ in 0..3 {
            p.inject(". 1:1(0) ack 10001");
        }
        p.expect_nothing();
        p.wait_ms(5);
        let sent = p.take_sent();
        assert!(sent[0].starts_with(". 10001:11001(1000)"), "{sent:?}");
    });
}

#[test]
fn established_timeout_does_not_wait() {
    conversation(underway, |p| {
        p.wait_ms(60);
        p.skip_sent();
        // The limit is a rate of one segment in ten seconds.
        p.limit_pacing(100);
        p.wait_ms(3000);
        let sent = p.take_sent();
        assert!(
            sent.iter()
                .any(|line| line.starts_with(". 10001:11001(1000)")),
            "{sent:?}"
        );
    });
}

#[test]
fn established_rate_limit_turns_pacing_on() {
    conversation(crate::states::established, |p| {
        p.config.burst_segments_min = 2;
        p.limit_pacing(100_000);
        p.write(30_000);
        assert_eq!(p.skip_sent(), 10);
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 10001");
        assert_eq!(p.skip_sent(), 2);
        p.wait_ms(9);
        p.expect_nothing();
        p.wait_ms(1);
        assert_eq!(p.skip_sent(), 2);
        p.wait_ms(19);
        p.expect_nothing();
        p.wait_ms(1);
        assert_eq!(p.skip_sent(), 2);
        assert_eq!(p.conn.info().max_pacing_rate, 100_000);
    });
}

#[test]
fn established_without_pacing_nothing_waits() {
    conversation(crate::states::established, |p| {
        p.write(30_000);
        assert_eq!(p.skip_sent(), 10);
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 10001");
        assert_eq!(p.skip_sent(), 20);
        assert!(!p.conn.is_deadline_fine());
    });
}

/// As in Linux, a rate of 0 sets no limit, since it would stop the connection for good.
#[test]
fn established_rate_limit_of_nothing_is_none() {
    conversation(crate::states::established, |p| {
        p.limit_pacing(0);
        p.write(30_000);
        assert_eq!(p.skip_sent(), 10);
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 10001");
        assert_eq!(p.skip_sent(), 20);
    });
}

/// An ACK that waits for the application's answer or for more text also waits for the input.
#[test]
fn established_departure_while_input_waits_leaves_the_delayed_ack_alone() {
    let mut setup = Setup::default();
    setup.config.quick_acks_max = 0;
    conversation(
        |variant| Peer::accepted(&setup, variant),
        |p| {
            p.inject("P. 1:101(100) ack 1");
            p.now_ns += 1_000 * MS;
            p.call(|conn, cx, _| conn.on_departure(cx));
            p.expect_nothing();
            p.call(|conn, cx, _| conn.on_timer(cx));
            p.expect(". 1:1(0) ack 101");
        },
    );
}

#[test]
fn established_departure_while_input_waits_leaves_the_timeout_alone() {
    conversation(underway, |p| {
        assert_eq!(p.skip_sent(), 2);
        // The caller did not run for a second. Departure and timeout are due, and ACKs may wait in
        // the input.
        p.now_ns += 1_000 * MS;
        p.call(|conn, cx, _| conn.on_departure(cx));
        p.expect(". 12001:13001(1000) ack 1");
        assert_eq!(p.counters.segments_retransmitted, 0);
        assert!(p.conn.deadline_ns() <= p.now_ns);
        p.skip_sent();
        p.inject(". 1:1(0) ack 12001");
        assert_eq!(p.counters.segments_retransmitted, 0);
        assert_eq!(p.counters.retransmit_timeouts, 0);
    });
}
