//! Loss with SACK: the segments that are retransmitted, RACK's waiting time, PRR's pace, D-SACK,
//! reneging.

use tcp::{CongestionAlgorithm, Effects};

use crate::peer::{Peer, Variant, conversation};
use crate::states::established_sack;

/// A connection with ten segments in flight and nothing more to send; ACKs come 100 ms later.
fn ten_in_flight(v: Variant) -> Peer {
    let mut p = established_sack(v);
    p.write(10_000);
    p.expect_data(1, 10_001, 1000, 1, true);
    p.wait_ms(100);
    p
}

/// A connection with ten segments in flight and ten more waiting.
fn twenty_written(v: Variant) -> Peer {
    let mut p = established_sack(v);
    p.write(20_000);
    p.expect_data(1, 10_001, 1000, 1, false);
    p.wait_ms(100);
    p
}

#[test]
fn established_sack_of_three_segments() {
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 1 <sack 1001:2001>");
        p.inject(". 1:1(0) ack 1 <sack 1001:3001>");
        p.expect_nothing();
        let info = p.conn.info();
        assert_eq!((info.ca_state, info.sacked, info.lost), (1, 2, 0));
        p.inject(". 1:1(0) ack 1 <sack 1001:4001>");
        p.expect(". 1:1001(1000) ack 1");
        p.expect_nothing();
        let info = p.conn.info();
        assert_eq!((info.ca_state, info.sacked, info.lost), (3, 3, 1));
        assert_eq!((info.retrans, info.snd_ssthresh, info.snd_cwnd), (1, 5, 7));
        assert_eq!((info.unacked, info.delivered), (10, 4));
        p.inject(". 1:1(0) ack 10001");
        let info = p.conn.info();
        assert_eq!((info.ca_state, info.sacked, info.lost), (0, 0, 0));
        // The window is the threshold, plus the growth in Open by the rest of the ACK.
        assert_eq!((info.retrans, info.snd_cwnd, info.delivered), (0, 6, 11));
    });
}

#[test]
fn established_sack_of_three_segments_at_once() {
    // One block proves as much as three ACKs, which were compressed or lost (RFC 6675 5).
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 1 <sack 4001:7001>");
        // Three segments are left in flight, so PRR fills up to the threshold of five.
        p.expect_data(1, 2001, 1000, 1, false);
        p.expect_nothing();
        let info = p.conn.info();
        assert_eq!((info.sacked, info.lost, info.retrans), (3, 4, 2));
    });
}

#[test]
fn established_sack_of_one_segment_waits_for_reordering() {
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 1 <sack 8001:9001>");
        p.expect_nothing();
        assert_eq!(p.conn.info().ca_state, 1);
        // RACK waits for a quarter of the least round trip and two milliseconds of slack (RFC 8985
        // 6.2).
        p.expect_silence_ms(26);
        p.wait_ms(1);
        p.expect(". 1:1001(1000) ack 1");
        p.expect_nothing();
        let info = p.conn.info();
        assert_eq!((info.ca_state, info.lost), (3, 8));
        // The SACKed segment proves no loss of segments sent after it.
        p.inject(". 1:1(0) ack 8001 <sack 8001:9001>");
        p.expect_nothing();
    });
}

#[test]
fn established_sack_of_a_segment_sent_a_reordering_window_later() {
    conversation(established_sack, |p| {
        p.write(1_000);
        p.expect("P. 1:1001(1000) ack 1");
        // The wait is a quarter of the round trip that the SACK will show.
        p.wait_ms(25);
        p.write(1_000);
        p.expect("P. 1001:2001(1000) ack 1");
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 1 <sack 1001:2001>");
        // The reordering window has passed already, so the loss is marked at once.
        p.expect("P. 1:1001(1000) ack 1");
        assert_eq!(p.conn.info().lost, 1);
    });
}

#[test]
fn established_sack_reordering_timer_leaves_the_window_to_a_model() {
    let bbr = |v| {
        let mut p = established_sack(v);
        p.call(|conn, cx, _| {
            conn.set_congestion(cx, CongestionAlgorithm::Bbr);
            Effects::NONE
        });
        p.write(10_000);
        p.wait_ms(100);
        p.skip_sent();
        p
    };
    conversation(bbr, |p| {
        p.inject(". 1:1(0) ack 1 <sack 8001:9001>");
        let cwnd = p.cwnd();
        p.wait_ms(28);
        p.expect(". 1:1001(1000) ack 1");
        assert_eq!((p.conn.info().ca_state, p.conn.info().lost), (3, 8));
        assert_eq!(p.cwnd(), cwnd, "PRR is for algorithms without a model");
    });
}

#[test]
fn established_sack_reordering_ends_in_time() {
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 1 <sack 1001:2001>");
        p.wait_ms(20);
        p.inject(". 1:1(0) ack 2001");
        assert_eq!(p.conn.info().ca_state, 0);
        let info = p.conn.info();
        assert_eq!((info.reord_seen, info.reordering), (1, 3));
        assert_eq!(p.cwnd(), 11);
        p.wait_ms(50);
        p.expect_nothing();
    });
}

#[test]
fn established_sack_reordering_seen_widens_the_patience() {
    conversation(ten_in_flight, |p| {
        // Segment 1 comes after 2 to 6: a reordering of 6 segments, without loss.
        p.inject(". 1:1(0) ack 1 <sack 1001:3001>");
        p.inject(". 1:1(0) ack 3001");
        assert_eq!(p.conn.info().reord_seen, 1);
        // Three duplicates prove nothing now; only time does.
        p.inject(". 1:1(0) ack 3001 <sack 4001:7001>");
        p.expect_nothing();
        p.wait_ms(26);
        p.expect_nothing();
        p.wait_ms(1);
        p.expect(". 3001:4001(1000) ack 1");
    });
}

/// Two neighbours are retransmitted and SACKed, then one of them comes twice. Its retransmission
/// was needless, so the original was only late.
#[test]
fn established_dsack_of_one_of_two_repetitions_shows_reordering() {
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 1 <sack 4001:7001>");
        p.inject(". 1:1(0) ack 1 <sack 4001:10001>");
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 1001 <sack 4001:10001>");
        p.skip_sent();
        assert_eq!(p.conn.info().total_retrans, 4);
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 1001 <sack 2001:10001>");
        assert_eq!(p.conn.info().reord_seen, 0);
        p.inject(". 1:1(0) ack 1001 <sack 3001:4001 2001:10001>");
        assert_eq!(p.conn.info().reord_seen, 1);
    });
}

#[test]
fn established_sack_reordering_degree() {
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 1 <sack 7001:9001>");
        // An old segment arrives: 9001 - 1001 bytes of reordering.
        p.inject(". 1:1(0) ack 1 <sack 1001:2001 7001:9001>");
        assert_eq!(p.conn.info().reordering, 8);
        assert_eq!(p.conn.info().reord_seen, 1);
    });
}

#[test]
fn established_sack_holes_are_repeated_and_nothing_else() {
    conversation(ten_in_flight, |p| {
        // Segments 1, 4 and 8 are missing.
        p.inject(". 1:1(0) ack 1 <sack 1001:3001>");
        p.inject(". 1:1(0) ack 1 <sack 4001:7001 1001:3001>");
        p.expect(". 1:1001(1000) ack 1");
        p.expect(". 3001:4001(1000) ack 1");
        p.expect_nothing();
        p.inject(". 1:1(0) ack 1 <sack 8001:10001 4001:7001 1001:3001>");
        p.expect(". 7001:8001(1000) ack 1");
        p.expect_nothing();
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 3001 <sack 8001:10001 4001:7001>");
        p.inject(". 1:1(0) ack 7001 <sack 8001:10001>");
        p.inject(". 1:1(0) ack 10001");
        p.expect_nothing();
        assert_eq!(p.conn.info().total_retrans, 3);
        assert_eq!(p.conn.info().bytes_retrans, 3000);
    });
}

#[test]
fn established_sack_limited_transmit() {
    conversation(twenty_written, |p| {
        p.inject(". 1:1(0) ack 1 <sack 1001:2001>");
        p.expect(". 10001:11001(1000) ack 1");
        p.inject(". 1:1(0) ack 1 <sack 1001:3001>");
        p.expect(". 11001:12001(1000) ack 1");
        p.expect_nothing();
        assert_eq!(p.cwnd(), 10);
    });
}

#[test]
fn established_sack_proportional_reduction() {
    conversation(twenty_written, |p| {
        p.inject(". 1:1(0) ack 1 <sack 1001:4001>");
        p.expect(". 1:1001(1000) ack 1");
        // From ten to five: one segment leaves for every two delivered.
        let mut sent = 1;
        for end in [5001, 6001, 7001, 8001, 9001, 10_001] {
            p.inject(&format!(". 1:1(0) ack 1 <sack 1001:{end}>"));
            sent += p.skip_sent();
        }
        // Nine segments were delivered, so five may have left.
        assert_eq!(sent, 5);
        assert_eq!(p.conn.info().snd_ssthresh, 5);
        p.inject(". 1:1(0) ack 10001");
        assert_eq!(p.cwnd(), 5);
        assert_eq!(p.conn.info().ca_state, 0);
    });
}

#[test]
fn established_sack_losses_beyond_half_slow_start_to_the_threshold() {
    // Eight of ten segments are lost. Below the threshold PRR conserves packets, and adds one per
    // ACK that moves SND.UNA without new loss.
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 1 <sack 8001:10001>");
        p.wait_ms(27);
        p.expect(". 1:1001(1000) ack 1");
        p.expect_nothing();
        p.wait_ms(73);
        p.inject(". 1:1(0) ack 1001 <sack 8001:10001>");
        p.expect(". 1001:2001(1000) ack 1");
        p.expect(". 2001:3001(1000) ack 1");
        p.expect_nothing();
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 3001 <sack 8001:10001>");
        p.expect_data(3001, 6001, 1000, 1, false);
        p.expect_nothing();
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 6001 <sack 8001:10001>");
        p.expect_data(6001, 8001, 1000, 1, false);
        p.expect_nothing();
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 10001");
        assert_eq!(p.cwnd(), 5);
    });
}

#[test]
fn established_sack_repetition_lost_is_found_without_timeout() {
    conversation(twenty_written, |p| {
        p.inject(". 1:1(0) ack 1 <sack 1001:4001>");
        p.expect(". 1:1001(1000) ack 1");
        p.wait_ms(1);
        p.inject(". 1:1(0) ack 1 <sack 1001:10001>");
        assert!(p.skip_sent() > 0);
        p.wait_ms(100);
        // Segments that left after the retransmission have arrived, so the retransmission was lost
        // (RFC 8985 1).
        p.inject(". 1:1(0) ack 1 <sack 1001:12001>");
        let sent = p.take_sent();
        assert!(
            sent.contains(&". 1:1001(1000) ack 1".to_string()),
            "{sent:?}"
        );
        assert_eq!(p.counters.retransmissions_lost, 1);
        assert_eq!(p.counters.retransmit_timeouts, 0);
    });
}

#[test]
fn established_sack_old_ack_with_news() {
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 3001");
        p.inject(". 1:1(0) ack 1 <sack 5001:8001>");
        assert_eq!(p.conn.info().sacked, 3);
        p.expect(". 3001:4001(1000) ack 1");
    });
}

#[test]
fn established_sack_blocks_without_sense() {
    conversation(ten_in_flight, |p| {
        // Blocks beyond the sent data, upside down, empty, and of half a segment.
        p.inject(". 1:1(0) ack 1 <sack 9001:12001>");
        p.inject(". 1:1(0) ack 1 <sack 4001:2001>");
        p.inject(". 1:1(0) ack 1 <sack 4001:4001>");
        p.inject(". 1:1(0) ack 1 <sack 2500:3500>");
        let info = p.conn.info();
        assert_eq!((info.sacked, info.lost), (0, 0));
        assert!(p.counters.sack_blocks_discarded >= 2);
        p.expect_nothing();
        // Two and a half segments count as two.
        p.inject(". 1:1(0) ack 1 <sack 2001:4501>");
        assert_eq!(p.conn.info().sacked, 2);
    });
}

#[test]
fn established_sack_reneged() {
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 1 <sack 1001:10001>");
        p.expect(". 1:1001(1000) ack 1");
        p.wait_ms(100);
        // The gap is filled, but the receiver no longer reports the rest: it has dropped it.
        p.inject(". 1:1(0) ack 1001");
        p.expect_nothing();
        assert_eq!(p.conn.info().sacked, 9);
        // Half a round trip of grace passes.
        p.wait_ms(50);
        p.expect(". 1001:2001(1000) ack 1");
        let info = p.conn.info();
        assert_eq!((info.ca_state, info.sacked, info.lost), (4, 0, 9));
        assert_eq!(p.counters.sack_reneged, 1);
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 2001");
        p.expect_data(2001, 4001, 1000, 1, false);
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 4001");
        assert_eq!(p.skip_sent(), 4);
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 10001");
        assert_eq!(p.conn.unacked(), 0);
    });
}

#[test]
fn established_timeout_keeps_what_was_sacked() {
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 1 <sack 5001:6001>");
        p.wait_ms(27);
        p.expect(". 1:1001(1000) ack 1");
        // The retransmission or its ACKs are lost, so the timeout fires.
        p.wait_ms(1000);
        assert!(p.counters.retransmit_timeouts > 0);
        p.skip_sent();
        assert_eq!(p.conn.info().sacked, 1);
        p.inject(". 1:1(0) ack 1001 <sack 5001:6001>");
        p.inject(". 1:1(0) ack 5001 <sack 5001:6001>");
        p.inject(". 1:1(0) ack 6001");
        for line in p.take_sent() {
            assert!(!line.starts_with(". 5001:"), "{line}");
        }
    });
}

#[test]
fn established_dsack_counts_what_was_needless() {
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 1 <sack 1001:4001>");
        p.expect(". 1:1001(1000) ack 1");
        p.inject(". 1:1(0) ack 4001");
        p.wait_ms(50);
        // The original had arrived, and so did the retransmission (RFC 2883 4.1).
        p.inject(". 1:1(0) ack 4001 <sack 1:1001>");
        let info = p.conn.info();
        assert_eq!((info.dsack_dups, info.sacked), (1, 0));
        assert_eq!(p.counters.dsacks_in, 1);
        // Every retransmission was needless, so the reduction is undone.
        assert_eq!(p.counters.undone_dsack, 1);
        assert_eq!(info.snd_ssthresh, u32::MAX);
        assert_eq!(info.ca_state, 0);
        assert!(info.snd_cwnd >= 10, "{}", info.snd_cwnd);
    });
}

#[test]
fn established_dsack_of_what_was_not_repeated_is_not_believed() {
    conversation(ten_in_flight, |p| {
        p.inject(". 1:1(0) ack 4001");
        p.inject(". 1:1(0) ack 4001 <sack 1:1001>");
        // The network duplicated the segment, or the receiver lies (RFC 3708 4).
        assert_eq!(p.counters.dsacks_in, 0);
        assert_eq!(p.conn.info().ca_state, 0);
        p.expect_nothing();
    });
}
