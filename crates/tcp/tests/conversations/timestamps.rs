//! Timestamps: echo, PAWS, TS.Recent and its age (RFC 7323).

use crate::peer::{MS, Peer, Variant, conversation};
use crate::states::established_timestamps;

#[test]
fn established_timestamp_is_echoed() {
    conversation(established_timestamps, |p| {
        p.wait_ms(20);
        p.inject("P. 1:101(100) ack 1 <TS val 120 ecr 1000>");
        p.expect(". 1:1(0) ack 101 <TS val 1020 ecr 120>");
    });
}

#[test]
fn established_paws_data() {
    conversation(established_timestamps, |p| {
        p.inject("P. 1:101(100) ack 1 <TS val 98 ecr 1000>");
        p.expect(". 1:1(0) ack 1 <TS val 1000 ecr 100>");
        p.expect_received(0);
        assert_eq!(p.counters.drop_paws, 1);
    });
}

#[test]
fn established_paws_spares_rst() {
    conversation(established_timestamps, |p| {
        p.inject("R. 1:1(0) ack 1 <TS val 98 ecr 1000>");
        assert!(p.is_removed());
    });
}

#[test]
fn established_paws_wraps() {
    conversation(established_timestamps, |p| {
        p.inject("P. 1:2(1) ack 1 <TS val 2147483747 ecr 1000>");
        p.skip_sent();
        // 100 + 2^31 - 1 is the newest value that counts as newer; 4294967295 and 5 follow it.
        p.inject("P. 2:3(1) ack 1 <TS val 4294967295 ecr 1000>");
        p.inject("P. 3:4(1) ack 1 <TS val 5 ecr 1000>");
        p.expect_received(3);
    });
}

#[test]
fn established_ts_recent_ages_out_after_24_days() {
    conversation(established_timestamps, |p| {
        p.wait_ms(24 * 86_400 * 1000 - 5000);
        p.inject("P. 1:2(1) ack 1 <TS val 98 ecr 1000>");
        p.expect_received(0);
        p.wait_ms(10_000);
        p.skip_sent();
        p.inject("P. 1:2(1) ack 1 <TS val 98 ecr 1000>");
        p.expect_received(1);
        // The new value is echoed.
        assert_eq!(p.conn.info().bytes_received, 1);
    });
}

#[test]
fn established_ts_recent_ignores_segments_beyond_last_ack() {
    conversation(established_timestamps, |p| {
        p.inject("P. 101:201(100) ack 1 <TS val 150 ecr 1000>");
        p.expect(". 1:1(0) ack 1 <TS val 1000 ecr 100>");
        p.inject("P. 1:101(100) ack 1 <TS val 140 ecr 1000>");
        p.expect(". 1:1(0) ack 201 <TS val 1000 ecr 140>");
    });
}

#[test]
fn established_delayed_ack_echoes_the_first_segment() {
    conversation(established_timestamps, |p| {
        p.config.quick_acks_max = 0;
        p.inject("P. 1:11(10) ack 1 <TS val 110 ecr 1000>");
        p.wait_ms(5);
        p.inject("P. 11:21(10) ack 1 <TS val 115 ecr 1000>");
        p.expect_nothing();
        p.wait_ms(35);
        // The echo is that of the first segment, so the round trip includes the delay (RFC 7323
        // 4.2).
        p.expect(". 1:1(0) ack 21 <TS val 1040 ecr 110>");
    });
}

#[test]
fn established_ts_recent_ignores_an_invalid_ack() {
    conversation(established_timestamps, |p| {
        p.inject(". 1:1(0) ack 900 <TS val 200 ecr 1000>");
        p.expect(". 1:1(0) ack 1 <TS val 1000 ecr 100>");
        p.inject("P. 1:2(1) ack 1 <TS val 150 ecr 1000>");
        p.expect_received(1);
    });
}

#[test]
fn established_segment_without_timestamp_is_taken() {
    conversation(established_timestamps, |p| {
        p.inject("P. 1:2(1) ack 1");
        p.expect_received(1);
    });
}

#[test]
fn established_reset_carries_a_fresh_timestamp() {
    conversation(established_timestamps, |p| {
        p.inject(". 1:989(988) ack 1 <TS val 201 ecr 1000>");
        p.skip_sent();
        p.wait_ms(1000);
        p.abort();
        p.expect("R. 1:1(0) ack 989 <TS val 2000 ecr 201>");
    });
}

#[test]
fn established_round_trip_by_timestamp_after_retransmission() {
    conversation(established_timestamps, |p| {
        p.write(100);
        p.skip_sent();
        p.wait_ms(300);
        p.expect("P. 1:101(100) ack 1 <TS val 1300 ecr 100>");
        assert_eq!(p.conn.info().rto_ns, 600 * MS);
        p.wait_ms(50);
        // The retransmission was acknowledged after 50 ms by its timestamp. That ends the backoff,
        // although Karn's rule forbids a sample by the clock.
        p.inject(". 1:1(0) ack 101 <TS val 150 ecr 1300>");
        assert!(p.conn.info().rto_ns < 400 * MS);
        assert_eq!(p.conn.info().backoff, 0);
    });
}

/// A connection with TS.Recent 1000 and a timeout of 300 ms; ten bytes wait for an ACK.
fn stamped_at_1000(v: Variant) -> Peer {
    let mut p = established_timestamps(v);
    p.inject(". 1:1(0) ack 1 <TS val 1000 ecr 1000>");
    p.write(10);
    p.skip_sent();
    p
}

#[test]
fn established_ack_that_another_overtook_is_not_answered() {
    // An ACK without news counts as overtaken up to an age of six fifths of the timeout.
    for (old, is_answered) in [
        (". 1:1(0) ack 1 <TS val 999 ecr 1000>", false),
        (". 1:1(0) ack 1 <TS val 640 ecr 1000>", false),
        (". 1:1(0) ack 1 <TS val 639 ecr 1000>", true),
        (". 1:1(0) ack 1 win 59999 <TS val 900 ecr 1000>", false),
        (". 1:1(0) ack 1 win 60001 <TS val 900 ecr 1000>", true),
        (". 1:1(0) ack 1 win 0 <TS val 900 ecr 1000>", true),
        (". 2:2(0) ack 1 <TS val 900 ecr 1000>", true),
        (". 1:1(0) ack 11 <TS val 900 ecr 1000>", true),
        ("P. 1:2(1) ack 1 <TS val 900 ecr 1000>", true),
        ("F. 1:1(0) ack 1 <TS val 900 ecr 1000>", true),
        // Timestamps of one host may go back by one.
        ("P. 1:2(1) ack 1 <TS val 999 ecr 1000>", false),
        ("P. 1:2(1) ack 1 <TS val 998 ecr 1000>", true),
    ] {
        conversation(stamped_at_1000, |p| {
            p.inject(old);
            assert_eq!(p.counters.drop_paws, u64::from(is_answered), "{old}");
            assert_eq!(p.conn.una(), p.conn.nxt() - 10, "{old}");
        });
    }
}

#[test]
fn established_old_ack_behind_text_may_open_the_window() {
    conversation(stamped_at_1000, |p| {
        p.inject("P. 1:101(100) ack 1 <TS val 1000 ecr 1000>");
        p.skip_sent();
        // The text, whose number is lower, brought the present window.
        p.inject(". 101:101(0) ack 1 <TS val 900 ecr 1000>");
        assert_eq!(p.counters.drop_paws, 1);
        p.inject(". 101:101(0) ack 1 <TS val 1000 ecr 1000>");
        p.inject(". 101:101(0) ack 1 <TS val 900 ecr 1000>");
        assert_eq!(p.counters.drop_paws, 1);
    });
}
