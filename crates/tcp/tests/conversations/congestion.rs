//! The congestion window: slow start, avoidance, application limits, restart after idleness.

use crate::peer::{Peer, conversation};
use crate::states::established;

/// Acknowledges what is in flight, in ACKs for two segments each.
fn acknowledge_flight(p: &mut Peer) {
    let from = p.conn.nxt().since(p.conn.una());
    let start = p.conn.info().bytes_acked as u32 + 1;
    let mut ack = start;
    while ack < start + from {
        ack = (ack + 2000).min(start + from);
        p.inject(&format!(". 1:1(0) ack {ack}"));
    }
    p.skip_sent();
}

#[test]
fn established_slow_start_doubles() {
    conversation(established, |p| {
        p.config.slow_start_after_idle = false;
        p.write(50_000);
        p.expect_data(1, 10_001, 1000, 1, false);
        for i in 1..=5u32 {
            p.inject(&format!(". 1:1(0) ack {}", 1 + 2000 * i));
            assert_eq!(p.cwnd(), 10 + 2 * i);
        }
    });
}

#[test]
fn established_slow_start_application_limited() {
    // With nine segments out of ten in use, growth stops at eighteen.
    conversation(established, |p| {
        p.write(9000);
        p.skip_sent();
        for (ack, cwnd) in [(2001, 12), (4001, 14), (6001, 16), (8001, 18), (9001, 18)] {
            p.inject(&format!(". 1:1(0) ack {ack}"));
            assert_eq!(p.cwnd(), cwnd);
        }
    });
}

#[test]
fn established_small_exchanges_do_not_grow_the_window() {
    conversation(established, |p| {
        for i in 0..20u32 {
            p.write(100);
            p.skip_sent();
            p.inject(&format!(". 1:1(0) ack {}", 101 + 100 * i));
        }
        assert_eq!(p.cwnd(), 10);
    });
}

#[test]
fn established_congestion_avoidance_adds_one_segment_per_window() {
    conversation(established, |p| {
        p.write(10_000);
        p.skip_sent();
        for _ in 0..3 {
            p.inject(". 1:1(0) ack 1");
        }
        p.skip_sent();
        p.inject(". 1:1(0) ack 10001");
        assert_eq!(p.cwnd(), 5);
        for round in 1..=4 {
            p.write(p.cwnd() * 1000);
            p.skip_sent();
            acknowledge_flight(p);
            assert_eq!(p.cwnd(), 5 + round);
        }
    });
}

#[test]
fn established_restart_after_idle() {
    conversation(established, |p| {
        p.write(10_000);
        p.skip_sent();
        p.inject(". 1:1(0) ack 10001");
        assert_eq!(p.cwnd(), 20);
        p.write(20_000);
        p.skip_sent();
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 30001");
        assert_eq!(p.cwnd(), 40);
        p.wait_ms(1000);
        p.write(40_000);
        assert_eq!(p.skip_sent(), 10);
        assert_eq!(p.cwnd(), 10);
    });
}

#[test]
fn established_closed_window_is_no_pause_until_it_opens() {
    conversation(established, |p| {
        p.write(10_000);
        p.skip_sent();
        p.inject(". 1:1(0) ack 10001");
        p.write(20_000);
        p.skip_sent();
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 30001 win 0");
        assert_eq!(p.cwnd(), 40);
        p.write(40_000);
        // Probing a shut window does not count as a pause either.
        p.wait_ms(2000);
        assert_eq!(p.cwnd(), 40);
        p.skip_sent();
        p.inject(". 1:1(0) ack 30001");
        assert_eq!(p.cwnd(), 10);
        assert_eq!(p.skip_sent(), 10);
    });
}

#[test]
fn established_no_restart_within_the_timeout() {
    conversation(established, |p| {
        p.write(10_000);
        p.skip_sent();
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 10001");
        p.wait_ms(150);
        p.write(20_000);
        assert_eq!(p.skip_sent(), 20);
    });
}

#[test]
fn established_no_restart_when_turned_off() {
    conversation(established, |p| {
        p.config.slow_start_after_idle = false;
        p.write(10_000);
        p.skip_sent();
        p.inject(". 1:1(0) ack 10001");
        p.wait_ms(100_000);
        p.write(20_000);
        assert_eq!(p.skip_sent(), 20);
    });
}
