//! The tail loss probe (RFC 8985 7): when it leaves, its contents, and the meaning of its ACK.

use crate::peer::{Peer, Variant, conversation};
use crate::states::{established, established_sack};

fn three_in_flight(v: Variant) -> Peer {
    let mut p = established_sack(v);
    p.write(3000);
    p.expect_data(1, 3001, 1000, 1, true);
    p
}

#[test]
fn established_tail_is_probed_with_the_last_segment() {
    conversation(three_in_flight, |p| {
        // The probe leaves after two round trips and two milliseconds.
        p.expect_silence_ms(201);
        p.wait_ms(1);
        p.expect("P. 2001:3001(1000) ack 1");
        assert_eq!(p.counters.loss_probes_out, 1);
        assert_eq!(p.conn.info().ca_state, 0);
        assert_eq!(p.conn.info().retrans, 0);
        // One probe leaves per flight; the timeout then counts from the probe.
        p.expect_silence_ms(299);
        p.wait_ms(1);
        p.expect(". 1:1001(1000) ack 1");
        assert_eq!(p.conn.info().ca_state, 4);
    });
}

#[test]
fn established_single_segment_waits_for_the_delayed_ack() {
    conversation(established_sack, |p| {
        p.write(1000);
        p.expect("P. 1:1001(1000) ack 1");
        // 2 * 100 + 200 ms would be later than the timeout.
        p.expect_silence_ms(299);
        p.wait_ms(1);
        p.expect("P. 1:1001(1000) ack 1");
        assert_eq!(p.counters.loss_probes_out, 1);
        assert_eq!(p.counters.retransmitted_by_loss_probe, 1);
        assert_eq!(p.counters.retransmit_timeouts, 0);
    });
}

#[test]
fn established_probe_prefers_new_data() {
    conversation(established_sack, |p| {
        p.write(12_000);
        p.expect_data(1, 10_001, 1000, 1, false);
        p.wait_ms(202);
        p.expect(". 10001:11001(1000) ack 1");
        p.expect_nothing();
        assert_eq!(p.conn.info().unacked, 11);
        assert_eq!(p.counters.segments_retransmitted, 0);
    });
}

#[test]
fn established_probe_shows_the_loss() {
    conversation(three_in_flight, |p| {
        p.wait_ms(202);
        p.expect("P. 2001:3001(1000) ack 1");
        p.wait_ms(100);
        // Only the probe arrived, so all data before it is lost.
        p.inject(". 1:1(0) ack 1 <sack 2001:3001>");
        p.wait_ms(30);
        assert!(p.skip_sent() > 0);
        assert_eq!(p.conn.info().ca_state, 3);
        assert_eq!(p.conn.info().lost, 2);
        assert_eq!(p.counters.retransmit_timeouts, 0);
    });
}

#[test]
fn established_probe_repaired_the_loss() {
    conversation(three_in_flight, |p| {
        p.wait_ms(202);
        p.expect("P. 2001:3001(1000) ack 1");
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 3001");
        assert_eq!(p.cwnd(), 10);
        p.write(1000);
        p.expect("P. 3001:4001(1000) ack 1");
        p.inject(". 1:1(0) ack 4001");
        // No duplicate was reported, so the last segment had been lost, and congestion control is
        // told.
        assert_eq!(p.counters.loss_probes_repaired, 1);
        assert_eq!((p.cwnd(), p.conn.info().snd_ssthresh), (5, 5));
        assert_eq!(p.conn.info().ca_state, 0);
    });
}

#[test]
fn established_probe_was_needless() {
    conversation(three_in_flight, |p| {
        p.wait_ms(202);
        p.expect("P. 2001:3001(1000) ack 1");
        p.inject(". 1:1(0) ack 3001");
        p.inject(". 1:1(0) ack 3001 <sack 2001:3001>");
        p.write(1000);
        p.skip_sent();
        p.inject(". 1:1(0) ack 4001");
        assert_eq!(p.counters.loss_probes_repaired, 0);
        assert_eq!(p.cwnd(), 10);
    });
}

#[test]
fn established_without_sack_there_is_no_probe() {
    conversation(established, |p| {
        p.write(3000);
        p.expect_data(1, 3001, 1000, 1, true);
        p.expect_silence_ms(299);
        p.wait_ms(1);
        p.expect(". 1:1001(1000) ack 1");
        assert_eq!(p.counters.loss_probes_out, 0);
    });
}

#[test]
fn established_probes_turned_off() {
    conversation(
        |v| {
            let mut p = established_sack(v);
            p.config.tail_loss_probe = false;
            p
        },
        |p| {
            p.write(3000);
            p.skip_sent();
            p.expect_silence_ms(299);
            p.wait_ms(1);
            p.expect(". 1:1001(1000) ack 1");
        },
    );
}

#[test]
fn fin_wait_1_probe_carries_the_fin() {
    conversation(established_sack, |p| {
        p.polls = false;
        p.write(2000);
        p.shutdown();
        p.poll();
        p.polls = true;
        p.expect(". 1:1001(1000) ack 1");
        p.expect("FP. 1001:2001(1000) ack 1");
        p.wait_ms(202);
        p.expect("FP. 1001:2001(1000) ack 1");
        p.inject(". 1:1(0) ack 2002");
        p.expect_nothing();
    });
}
