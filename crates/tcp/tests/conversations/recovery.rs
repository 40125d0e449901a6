//! Loss: duplicate ACKs, fast retransmit, NewReno's partial ACKs, limited transmit, timeouts.

use tcp::RecordPool;

use crate::peer::{MS, Peer, Variant, conversation};
use crate::states::{established, established_sack, established_timestamps};

/// A connection with ten segments in flight and nothing more to send.
fn ten_in_flight(v: crate::peer::Variant) -> Peer {
    let mut p = established(v);
    p.write(10_000);
    p.expect_data(1, 10_001, 1000, 1, true);
    p
}

#[test]
fn established_three_duplicates() {
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 1");
        p.inject(". 1:1(0) ack 1");
        p.expect_nothing();
        assert_eq!(p.conn.info().ca_state, 1);
        p.inject(". 1:1(0) ack 1");
        p.expect(". 1:1001(1000) ack 1");
        p.expect_nothing();
        assert_eq!(p.counters.retransmitted_by_fast_recovery, 1);
        assert_eq!(p.conn.info().ca_state, 3);
        assert_eq!(p.cwnd(), 7);
        assert_eq!(p.conn.info().snd_ssthresh, 5);
        // Without SACK the state stays until later data is acknowledged (RFC 6582 4.1).
        p.inject(". 1:1(0) ack 10001");
        assert_eq!(p.conn.info().ca_state, 3);
        p.write(1000);
        p.expect("P. 10001:11001(1000) ack 1");
        p.inject(". 1:1(0) ack 11001");
        assert_eq!(p.conn.info().ca_state, 0);
        assert_eq!(p.cwnd(), 5);
    });
}

#[test]
fn established_duplicates_with_data_or_new_windows_do_not_count() {
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 1 win 61000");
        p.inject(". 1:1(0) ack 1 win 62000");
        p.inject("P. 1:11(10) ack 1 win 62000");
        p.inject("P. 11:21(10) ack 1 win 62000");
        p.inject("P. 21:31(10) ack 1 win 62000");
        assert_eq!(p.counters.dup_acks_in, 0);
        assert_eq!(p.conn.info().ca_state, 0);
    });
}

#[test]
fn established_limited_transmit() {
    conversation(ten_in_flight, |p| {
        p.write(5000);
        p.expect_nothing();
        p.inject(". 1:1(0) ack 1");
        p.expect(". 10001:11001(1000) ack 1");
        p.inject(". 1:1(0) ack 1");
        p.expect(". 11001:12001(1000) ack 1");
        p.expect_nothing();
        p.inject(". 1:1(0) ack 1");
        p.expect(". 1:1001(1000) ack 1");
        p.expect_nothing();
        // PRR: one segment leaves for every two delivered, the retransmission included.
        assert_eq!(p.conn.info().snd_ssthresh, 5);
        p.inject(". 1:1(0) ack 1");
        p.expect_nothing();
        p.inject(". 1:1(0) ack 1");
        p.expect(". 12001:13001(1000) ack 1");
        p.inject(". 1:1(0) ack 1");
        p.expect_nothing();
        p.inject(". 1:1(0) ack 1");
        p.expect(". 13001:14001(1000) ack 1");
        p.expect_nothing();
    });
}

#[test]
fn established_partial_acks() {
    conversation(ten_in_flight, |p| {
        // Segments 1, 4 and 6 are lost.
        for _ in 0..7 {
            p.inject(". 1:1(0) ack 1");
        }
        p.expect(". 1:1001(1000) ack 1");
        p.expect_nothing();
        p.inject(". 1:1(0) ack 3001");
        p.expect(". 3001:4001(1000) ack 1");
        p.expect_nothing();
        p.inject(". 1:1(0) ack 5001");
        p.expect(". 5001:6001(1000) ack 1");
        p.expect_nothing();
        p.inject(". 1:1(0) ack 10001");
        p.expect_nothing();
        assert_eq!(p.counters.fast_retransmits, 1);
        assert_eq!(p.cwnd(), 5);
        assert_eq!(p.conn.unacked(), 0);
    });
}

#[test]
fn established_duplicates_at_the_recovery_point() {
    conversation(ten_in_flight, |p| {
        for _ in 0..3 {
            p.inject(". 1:1(0) ack 1");
        }
        p.skip_sent();
        p.inject(". 1:1(0) ack 10001");
        p.write(7000);
        p.expect_data(10_001, 15_001, 1000, 1, false);
        // Needless retransmissions would cause such duplicates, so they show no loss (RFC 6582
        // 4.1).
        for _ in 0..5 {
            p.inject(". 1:1(0) ack 10001");
        }
        p.expect_nothing();
        p.inject(". 1:1(0) ack 11001");
        p.expect(". 15001:16001(1000) ack 1");
        p.expect_nothing();
        for _ in 0..3 {
            p.inject(". 1:1(0) ack 11001");
        }
        // Limited transmit comes first, then the first gap.
        p.expect("P. 16001:17001(1000) ack 1");
        p.expect(". 11001:12001(1000) ack 1");
        assert_eq!(p.counters.fast_retransmits, 2);
    });
}

#[test]
fn established_repetition_lost_again() {
    conversation(ten_in_flight, |p| {
        for _ in 0..9 {
            p.inject(". 1:1(0) ack 1");
        }
        p.expect(". 1:1001(1000) ack 1");
        p.expect_after_ms(300, ". 1:1001(1000) ack 1");
        assert_eq!(p.cwnd(), 1);
        p.inject(". 1:1(0) ack 10001");
        p.expect_nothing();
    });
}

#[test]
fn established_timeout_goes_back() {
    conversation(ten_in_flight, |p| {
        p.expect_after_ms(300, ". 1:1001(1000) ack 1");
        assert_eq!(p.conn.info().ca_state, 4);
        assert_eq!(p.conn.info().lost, 10);
        assert_eq!(p.conn.info().retrans, 1);
        p.inject(". 1:1(0) ack 1001");
        p.expect(". 1001:2001(1000) ack 1");
        p.expect(". 2001:3001(1000) ack 1");
        p.expect_nothing();
        // The timer retransmitted one segment, the following ACK two.
        assert_eq!(p.counters.retransmitted_by_timeout, 3);
        // The peer already had the other segments.
        p.inject(". 1:1(0) ack 10001");
        p.write(1000);
        p.expect("P. 10001:11001(1000) ack 1");
        p.inject(". 1:1(0) ack 11001");
        assert_eq!(p.conn.info().ca_state, 0);
        p.expect_nothing();
        assert_eq!(p.conn.info().snd_ssthresh, 5);
    });
}

#[test]
fn established_duplicates_after_timeout_do_not_start_fast_retransmit() {
    conversation(ten_in_flight, |p| {
        p.wait_ms(300);
        p.skip_sent();
        for _ in 0..5 {
            p.inject(". 1:1(0) ack 1");
        }
        p.expect_nothing();
        assert_eq!(p.counters.fast_retransmits, 0);
        p.inject(". 1:1(0) ack 10001");
        p.write(5000);
        p.skip_sent();
        for _ in 0..3 {
            p.inject(". 1:1(0) ack 10001");
        }
        // Nothing beyond `recover` is acknowledged yet (RFC 6582 3.2).
        assert_eq!(p.counters.fast_retransmits, 0);
    });
}

#[test]
fn established_timeouts_in_a_row_keep_the_threshold() {
    conversation(ten_in_flight, |p| {
        p.wait_ms(300);
        assert_eq!(p.conn.info().snd_ssthresh, 5);
        p.wait_ms(600);
        p.wait_ms(1200);
        assert_eq!(p.conn.info().snd_ssthresh, 5);
        assert_eq!(p.conn.info().backoff, 3);
    });
}

#[test]
fn established_fin_is_repeated_with_the_data() {
    conversation(established, |p| {
        p.polls = false;
        p.write(1500);
        p.shutdown();
        p.poll();
        p.polls = true;
        p.skip_sent();
        p.expect_after_ms(300, ". 1:1001(1000) ack 1");
        p.inject(". 1:1(0) ack 1001");
        p.expect("FP. 1001:1501(500) ack 1");
        p.inject(". 1:1(0) ack 1501");
        p.expect_after_ms(600, "F. 1501:1501(0) ack 1");
    });
}

#[test]
fn established_full_last_segment_carries_the_fin_again() {
    conversation(established, |p| {
        p.polls = false;
        p.write(2000);
        p.shutdown();
        p.poll();
        p.polls = true;
        p.expect(". 1:1001(1000) ack 1");
        p.expect("FP. 1001:2001(1000) ack 1");
        p.inject(". 1:1(0) ack 1001");
        p.wait_ms(340);
        p.expect("FP. 1001:2001(1000) ack 1");
    });
}

#[test]
fn established_acks_restart_the_timer() {
    conversation(ten_in_flight, |p| {
        p.wait_ms(200);
        p.inject(". 1:1(0) ack 1001");
        // A sample of 200 ms gives SRTT 112.5 and a variance term of 250: 362.5 ms.
        p.expect_silence_ms(362);
        p.wait_ms(1);
        p.expect(". 1001:2001(1000) ack 1");
    });
}

#[test]
fn established_karn_ignores_repeated_segments() {
    conversation(established, |p| {
        p.write(100);
        p.skip_sent();
        p.wait_ms(300);
        p.expect("P. 1:101(100) ack 1");
        p.wait_ms(1);
        p.inject(". 1:1(0) ack 101");
        assert_eq!(p.conn.info().rtt_ns, 100 * MS);
        assert_eq!(p.conn.info().rto_ns, 600 * MS);
        p.write(100);
        p.skip_sent();
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 201");
        assert_eq!(p.conn.info().rto_ns, 300 * MS);
    });
}

#[test]
fn established_timestamps_do_not_disturb_duplicates() {
    conversation(established_timestamps, |p| {
        p.write(9880);
        p.expect_data(1, 9881, 988, 1, true);
        for _ in 0..3 {
            p.inject(". 1:1(0) ack 1 <TS val 130 ecr 1000>");
        }
        p.expect(". 1:989(988) ack 1");
    });
}

/// A machine that slept does not make the peer silent: only the duration of the timeouts counts
/// towards giving up.
#[test]
fn established_clock_jump_between_timeouts_ends_nothing() {
    conversation(ten_in_flight, |p| {
        p.wait_ms(300);
        p.skip_sent();
        p.now_ns += 2_000_000 * MS;
        p.call(|conn, cx, _| conn.on_timer(cx));
        p.expect_state(tcp::State::Established);
        p.inject(". 1:1(0) ack 10001");
        assert_eq!(p.conn.unacked(), 0);
    });
}

/// A connection with ten segments in flight that gets only one record, so they are one run.
fn ten_in_one_record(v: Variant) -> Peer {
    in_one_record(established_sack(v))
}

fn in_one_record(mut p: Peer) -> Peer {
    p.records = RecordPool::new(1, 1);
    p.write(10_000);
    p.expect_data(1, 10_001, 1000, 1, true);
    assert!(p.records.refused() > 0, "and that is counted");
    p
}

#[test]
fn established_timeout_without_a_record_to_spare_goes_on_as_its_acks_let_it() {
    conversation(ten_in_one_record, |p| {
        p.wait_ms(350);
        p.skip_sent();
        p.wait_ms(1_000);
        // The probe did not repair this loss.
        let timeouts = p.counters.retransmit_timeouts;
        p.skip_sent();
        p.inject(". 1:1(0) ack 1001");
        p.expect_data(1001, 3001, 1000, 1, false);
        p.expect_nothing();
        p.inject(". 1:1(0) ack 3001");
        p.expect_data(3001, 7001, 1000, 1, false);
        p.expect_nothing();
        assert_eq!(p.conn.info().retrans, 4);
        p.inject(". 1:1(0) ack 5001");
        p.expect_data(7001, 10_001, 1000, 1, true);
        p.expect_nothing();
        p.inject(". 1:1(0) ack 10001");
        assert_eq!(p.counters.retransmit_timeouts, timeouts);
        let info = p.conn.info();
        assert_eq!((info.unacked, info.lost, info.retrans), (0, 0, 0));
    });
}

#[test]
fn established_timeout_without_a_record_to_spare_begins_anew_with_the_next_one() {
    conversation(ten_in_one_record, |p| {
        p.wait_ms(1_350);
        p.inject(". 1:1(0) ack 1001");
        p.skip_sent();
        // Both retransmissions are lost again.
        p.wait_ms(10_000);
        p.expect(". 1001:2001(1000) ack 1");
        p.skip_sent();
        p.inject(". 1:1(0) ack 2001");
        p.expect_data(2001, 4001, 1000, 1, false);
        p.inject(". 1:1(0) ack 10001");
        assert_eq!(p.conn.info().unacked, 0);
    });
}

/// Without SACK the segment behind a duplicate cannot be told from a lost one, so the whole run is
/// lost.
#[test]
fn established_duplicates_without_sack_and_a_record_to_spare() {
    conversation(
        |v| in_one_record(established(v)),
        |p| {
            for _ in 0..3 {
                p.inject(". 1:1(0) ack 1");
            }
            let info = p.conn.info();
            assert_eq!((info.lost, info.sacked), (10, 0));
            p.expect(". 1:1001(1000) ack 1");
            p.skip_sent();
            p.inject(". 1:1(0) ack 10001");
            assert_eq!(p.conn.info().unacked, 0);
        },
    );
}

/// Owed SACK blocks make a retransmission shorter than the original segment, in a run that cannot
/// be split. The shorter part is acknowledged, then everything, which was only late.
#[test]
fn established_part_of_a_segment_of_an_unsplit_run_acknowledged() {
    conversation(ten_in_one_record, |p| {
        p.inject("P. 101:201(100) ack 1");
        p.wait_ms(350);
        p.skip_sent();
        p.wait_ms(1_000);
        p.expect(". 1:989(988) ack 1 <sack 101:201>");
        p.skip_sent();
        p.inject(". 1:1(0) ack 989");
        p.skip_sent();
        p.inject(". 1:1(0) ack 10001");
        let info = p.conn.info();
        assert_eq!((info.unacked, info.retrans), (0, 0));
    });
}
