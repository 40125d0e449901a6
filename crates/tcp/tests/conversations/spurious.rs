//! Needless reductions: Eifel by timestamps (RFC 3522), F-RTO (RFC 5682), D-SACK (RFC 3708).

use crate::peer::{Peer, Variant, conversation};
use crate::states::{established, established_sack, established_sack_timestamps};

/// A connection with ten segments of 988 bytes in flight, whose ACKs are late.
fn ten_with_timestamps(v: Variant) -> Peer {
    let mut p = established_sack_timestamps(v);
    p.write(9880);
    p.expect_data(1, 9881, 988, 1, true);
    p
}

#[test]
fn established_fast_retransmit_undone_by_timestamp() {
    conversation(ten_with_timestamps, |p| {
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 1 <TS val 200 ecr 1000,sack 989:3953>");
        p.expect(". 1:989(988) ack 1");
        assert_eq!(p.conn.info().ca_state, 3);
        p.wait_ms(10);
        // The ACK is for the original: its echo is older than the retransmission.
        p.inject(". 1:1(0) ack 3953 <TS val 210 ecr 1000>");
        p.inject(". 1:1(0) ack 9881 <TS val 211 ecr 1000>");
        let info = p.conn.info();
        assert_eq!(info.ca_state, 0);
        assert_eq!(info.snd_ssthresh, u32::MAX);
        assert!(info.snd_cwnd >= 10, "{}", info.snd_cwnd);
        assert!(p.counters.undone_full + p.counters.undone_partial > 0);
    });
}

#[test]
fn established_fast_retransmit_stays_if_the_repetition_arrived() {
    conversation(ten_with_timestamps, |p| {
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 1 <TS val 200 ecr 1000,sack 989:9881>");
        p.expect(". 1:989(988) ack 1");
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 9881 <TS val 300 ecr 1100>");
        assert_eq!(p.conn.info().ca_state, 0);
        assert_eq!(p.cwnd(), 5);
        assert_eq!(p.counters.undone_full, 0);
    });
}

#[test]
fn established_timeout_undone_by_timestamp() {
    conversation(ten_with_timestamps, |p| {
        p.config.tail_loss_probe = false;
        p.wait_ms(300);
        p.skip_sent();
        p.wait_ms(300);
        p.skip_sent();
        assert_eq!(p.conn.info().ca_state, 4);
        p.inject(". 1:1(0) ack 989 <TS val 200 ecr 1000>");
        let info = p.conn.info();
        assert_eq!(info.ca_state, 0);
        assert_eq!(info.lost, 0);
        assert!(info.snd_cwnd >= 10, "{}", info.snd_cwnd);
        assert_eq!(p.counters.undone_loss, 1);
        p.expect_nothing();
    });
}

/// A connection with a timeout after ten segments, without timestamps and without loss probe.
fn timed_out(setup: impl Fn(Variant) -> Peer) -> impl Fn(Variant) -> Peer {
    move |v| {
        let mut p = setup(v);
        p.config.tail_loss_probe = false;
        p.write(12_000);
        p.expect_data(1, 10_001, 1000, 1, false);
        p.wait_ms(300);
        p.expect(". 1:1001(1000) ack 1");
        p.expect_nothing();
        assert_eq!(p.conn.info().ca_state, 4);
        assert_eq!((p.cwnd(), p.conn.info().snd_ssthresh), (1, 5));
        p
    }
}

#[test]
fn established_timeout_spurious_by_sack_of_an_original() {
    conversation(timed_out(established_sack), |p| {
        p.wait_ms(50);
        // Data arrives that was never retransmitted, so nothing was lost (RFC 5682 3.1, with SACK).
        p.inject(". 1:1(0) ack 1 <sack 1001:2001>");
        let info = p.conn.info();
        assert!(info.ca_state <= 1, "{}", info.ca_state);
        assert_eq!((info.snd_ssthresh, info.lost), (u32::MAX, 0));
        assert_eq!(p.counters.timeouts_spurious, 1);
        // Ten segments are in flight again, the retransmission among them.
        p.expect_nothing();
        p.inject(". 1:1(0) ack 3001");
        p.expect(". 10001:11001(1000) ack 1");
    });
}

#[test]
fn established_timeout_spurious_by_new_data() {
    conversation(timed_out(established), |p| {
        p.wait_ms(50);
        // Step 2.b: an ACK that advances lets two new segments leave instead of retransmissions.
        p.inject(". 1:1(0) ack 1001");
        p.expect(". 10001:11001(1000) ack 1");
        p.expect("P. 11001:12001(1000) ack 1");
        p.expect_nothing();
        // Step 3.b: the next ACK advances by data that was never retransmitted, so the timeout was
        // spurious.
        p.inject(". 1:1(0) ack 2001");
        let info = p.conn.info();
        assert_eq!(info.ca_state, 0);
        assert_eq!(info.snd_ssthresh, u32::MAX);
        assert_eq!(p.counters.timeouts_spurious, 1);
        p.expect_nothing();
    });
}

#[test]
fn established_timeout_real_by_duplicate_after_new_data() {
    conversation(timed_out(established), |p| {
        p.wait_ms(50);
        p.inject(". 1:1(0) ack 1001");
        assert_eq!(p.skip_sent(), 2);
        // Step 3.a: the new data arrived behind a gap.
        p.inject(". 1:1(0) ack 1001");
        assert_eq!(p.conn.info().ca_state, 4);
        p.expect(". 1001:2001(1000) ack 1");
        assert_eq!(p.counters.timeouts_spurious, 0);
    });
}

#[test]
fn established_duplicate_ends_the_test_of_a_timeout() {
    conversation(timed_out(established_sack), |p| {
        p.wait_ms(50);
        p.inject(". 1:1(0) ack 1001");
        assert_eq!(p.skip_sent(), 2);
        // The duplicate SACKs nothing, but shows that data is missing.
        p.inject(". 1:1(0) ack 1001");
        p.expect_nothing();
        // Originals arrive, which would have proved the timeout needless.
        p.inject(". 1:1(0) ack 4001");
        assert_eq!(p.conn.info().ca_state, 4);
        assert_eq!(p.conn.info().snd_ssthresh, 5);
        assert_eq!(p.counters.timeouts_spurious, 0);
    });
}

#[test]
fn established_timeout_without_new_data_repeats() {
    conversation(established, |p| {
        p.write(10_000);
        p.skip_sent();
        p.wait_ms(300);
        p.expect(". 1:1001(1000) ack 1");
        p.inject(". 1:1(0) ack 1001");
        p.expect(". 1001:2001(1000) ack 1");
        p.expect(". 2001:3001(1000) ack 1");
        p.expect_nothing();
    });
}

#[test]
fn established_frto_turned_off() {
    let setup = |v| {
        let mut p = established(v);
        p.config.frto = false;
        p
    };
    conversation(timed_out(setup), |p| {
        p.inject(". 1:1(0) ack 1001");
        p.expect(". 1001:2001(1000) ack 1");
        p.expect(". 2001:3001(1000) ack 1");
        p.expect_nothing();
    });
}
