//! ESTABLISHED: data both ways, delayed ACKs, Nagle and cork, resets, aborts.

use tcp::{ConnectionError, Effects, IcmpError, RangePool, State, TransmitClass, limits};

use crate::peer::{MS, Peer, Setup, conversation};
use crate::states::{established, fin_wait_1};

#[test]
fn established_data_in_order() {
    conversation(established, |p| {
        p.inject("P. 1:101(100) ack 1");
        p.expect_effects(Effects::READABLE);
        p.expect_received(100);
        p.expect(". 1:1(0) ack 101");
    });
}

#[test]
fn established_data_out_of_order() {
    conversation(established, |p| {
        p.inject(". 1001:2001(1000) ack 1");
        p.expect_effects(Effects::NONE);
        p.expect(". 1:1(0) ack 1");
        p.inject(". 2001:3001(1000) ack 1");
        p.expect(". 1:1(0) ack 1");
        p.inject(". 1:1001(1000) ack 1");
        p.expect_effects(Effects::READABLE);
        p.expect_received(3000);
        p.expect(". 1:1(0) ack 3001");
        p.expect_nothing();
    });
}

#[test]
fn established_each_out_of_order_segment_of_a_turn_earns_a_duplicate_ack() {
    conversation(established, |p| {
        p.polls = false;
        p.inject(". 1001:2001(1000) ack 1");
        p.inject(". 2001:3001(1000) ack 1");
        p.inject(". 3001:4001(1000) ack 1");
        p.poll();
        for _ in 0..3 {
            p.expect(". 1:1(0) ack 1");
        }
        p.expect_nothing();
    });
}

#[test]
fn established_gap_filled_within_a_turn_earns_one_ack() {
    conversation(established, |p| {
        p.polls = false;
        p.inject(". 1001:2001(1000) ack 1");
        p.inject(". 2001:3001(1000) ack 1");
        p.inject(". 1:1001(1000) ack 1");
        p.poll();
        p.expect(". 1:1(0) ack 3001");
        p.expect_nothing();
    });
}

#[test]
fn established_data_overlapping_both_sides() {
    conversation(established, |p| {
        p.inject(". 1:501(500) ack 1");
        p.inject(". 1001:1501(500) ack 1");
        p.skip_sent();
        // The segment is old at its front, new in the middle, and held already at its end.
        p.inject(". 301:1301(1000) ack 1");
        p.expect_received(1500);
        p.expect(". 1:1(0) ack 1501");
    });
}

#[test]
fn established_data_old() {
    conversation(established, |p| {
        p.inject(". 1:501(500) ack 1");
        p.skip_sent();
        p.inject(". 1:501(500) ack 1");
        p.expect(". 1:1(0) ack 501");
        p.inject(". 1:501(500) ack 1");
        p.expect(". 1:1(0) ack 501");
        p.expect_received(500);
    });
}

#[test]
fn established_data_beyond_window() {
    conversation(established, |p| {
        p.inject(". 60001:61001(1000) ack 1");
        p.expect(". 1:1(0) ack 1");
        p.expect_received(0);
        assert_eq!(p.counters.drop_outside_window, 1);
    });
}

#[test]
fn established_data_partly_beyond_window() {
    conversation(established, |p| {
        p.inject(". 1:1001(1000) ack 1");
        p.skip_sent();
        // Unread data waits, so the segment is refused as a whole, with its FIN.
        p.inject("F. 59501:69501(10000) ack 1");
        p.expect(". 1:1(0) ack 1001");
        assert_eq!(p.counters.drop_outside_window, 1);
        // No data waits, so the segment is taken as a whole: there is room, although less was
        // promised.
        p.read_all();
        p.inject("F. 59501:69501(10000) ack 1");
        p.expect(". 1:1(0) ack 1001");
        p.inject(". 1001:59501(58500) ack 1");
        p.expect_received(69_500);
        p.expect_state(State::CloseWait);
    });
}

#[test]
fn established_ranges_full() {
    conversation(established, |p| {
        for i in 0..5u32 {
            let at = 1001 + 2000 * i;
            p.inject(&format!(". {at}:{}(1000) ack 1", at + 1000));
        }
        assert_eq!(p.skip_sent(), 5);
        for i in 0..5u32 {
            let at = 1 + 2000 * i;
            p.inject(&format!(". {at}:{}(1000) ack 1", at + 1000));
        }
        p.expect_received(10_000);
        assert_eq!(p.counters.bytes_drop_ranges_full, 0);
    });
}

#[test]
fn established_ranges_full_the_furthest_goes() {
    conversation(established, |p| {
        p.ranges = RangePool::new(1);
        for i in 0..=limits::RANGE_BLOCK_RANGES as u32 {
            let at = 1001 + 200 * i;
            p.inject(&format!(". {at}:{}(100) ack 1", at + 100));
        }
        // The last range is the furthest, so it is refused, and so is one still further away.
        assert_eq!(p.counters.bytes_drop_ranges_full, 100);
        // A range nearer than all others replaces the furthest.
        p.inject(". 501:601(100) ack 1");
        assert_eq!(p.counters.bytes_drop_ranges_full, 200);
        let end = 901 + 200 * limits::RANGE_BLOCK_RANGES as u32;
        p.inject(&format!(". 1:{end}({}) ack 1", end - 1));
        p.expect_received(end as usize - 1);
        assert_eq!(p.ranges.in_use(), 0);
    });
}

#[test]
fn established_receive_memory_short() {
    conversation(established, |p| {
        p.rx.memory = 300;
        p.inject(". 1:1001(1000) ack 1");
        p.expect_received(300);
        assert_eq!(p.counters.bytes_drop_no_memory, 700);
        p.rx.memory = 0;
        assert_eq!(p.counters.drop_in_order_no_memory, 0);
        p.inject(". 301:1301(1000) ack 1");
        p.expect_effects(Effects::NONE);
        assert_eq!(p.counters.drop_in_order_no_memory, 1);
        p.skip_sent();
        // The window is shut, but data within the window promised before is taken (RFC 7323 2.4).
        p.rx.memory = usize::MAX;
        p.inject("F. 301:1301(1000) ack 1");
        p.expect_effects(Effects::READABLE | Effects::EOF);
        p.expect_received(1300);
    });
}

#[test]
fn established_fin_with_memory_short_is_not_taken() {
    conversation(established, |p| {
        p.rx.memory = 300;
        p.inject("F. 1:1001(1000) ack 1");
        p.expect_effects(Effects::READABLE);
        p.expect_state(State::Established);
    });
}

#[test]
fn established_quick_acks_then_every_second_segment() {
    conversation(established, |p| {
        let mut seq = 1;
        let mut acks = 0;
        for _ in 0..40 {
            p.inject(&format!(". {seq}:{}(1000) ack 1", seq + 1000));
            seq += 1000;
            p.read_all();
            acks += p.skip_sent();
        }
        // Sixteen quick ACKs, then one for every two segments.
        assert_eq!(acks, 16 + 12);
    });
}

#[test]
fn established_delayed_ack_timer() {
    conversation(established, |p| {
        p.config.quick_acks_max = 0;
        p.inject("P. 1:11(10) ack 1");
        p.expect_after_ms(40, ". 1:1(0) ack 11");
    });
}

#[test]
fn established_ack_rides_on_data() {
    conversation(established, |p| {
        p.config.quick_acks_max = 0;
        p.inject("P. 1:11(10) ack 1");
        p.expect_nothing();
        p.write(20);
        p.expect("P. 1:21(20) ack 11");
        p.wait_ms(100);
        assert_eq!(p.counters.delayed_acks_out, 0);
    });
}

#[test]
fn established_dialogue_delays_acks() {
    conversation(established, |p| {
        p.inject("P. 1:11(10) ack 1");
        p.expect(". 1:1(0) ack 11");
        p.write(10);
        p.expect("P. 1:11(10) ack 11");
        // The answer came at once, so the ACK of the next question waits for its answer.
        p.inject("P. 11:21(10) ack 11");
        p.expect_nothing();
        p.write(10);
        p.expect("P. 11:21(10) ack 21");
        // A missing answer costs the delay once.
        p.inject("P. 21:31(10) ack 21");
        p.expect_after_ms(40, ". 21:21(0) ack 31");
    });
}

#[test]
fn established_write_is_cut_to_segments() {
    conversation(established, |p| {
        p.write(2500);
        p.expect(". 1:1001(1000) ack 1");
        p.expect(". 1001:2001(1000) ack 1");
        p.expect("P. 2001:2501(500) ack 1");
        p.inject(". 1:1(0) ack 2501");
        p.expect_effects(Effects::WRITABLE);
        assert_eq!(p.conn.unacked(), 0);
        assert_eq!(p.conn.deadline_ns(), u64::MAX);
    });
}

#[test]
fn established_initial_window_limits() {
    conversation(established, |p| {
        p.write(20_000);
        p.expect_data(1, 10_001, 1000, 1, false);
        p.expect_nothing();
        p.inject(". 1:1(0) ack 2001");
        // Without a round-trip delay, data that leaves at once ends with PSH.
        p.expect_data(10_001, 14_001, 1000, 1, true);
        p.expect_nothing();
        assert_eq!(p.cwnd(), 12);
    });
}

#[test]
fn established_nagle_holds_second_small_segment() {
    conversation(established, |p| {
        p.write(10);
        p.expect("P. 1:11(10) ack 1");
        p.write(10);
        p.write(10);
        p.expect_nothing();
        p.inject(". 1:1(0) ack 11");
        p.expect("P. 11:31(20) ack 1");
    });
}

#[test]
fn established_nagle_lets_a_tail_follow_full_segments() {
    conversation(established, |p| {
        // Minshall's variant: only a small segment in flight holds another small one back.
        p.write(1000);
        p.expect("P. 1:1001(1000) ack 1");
        p.write(10);
        p.expect("P. 1001:1011(10) ack 1");
        p.write(10);
        p.expect_nothing();
        p.inject(". 1:1(0) ack 1001");
        p.expect_nothing();
        p.inject(". 1:1(0) ack 1011");
        p.expect("P. 1011:1021(10) ack 1");
    });
}

#[test]
fn established_nodelay() {
    conversation(established, |p| {
        p.write(10);
        p.write(10);
        p.expect("P. 1:11(10) ack 1");
        p.expect_nothing();
        p.call(|conn, cx, _| conn.set_nodelay(cx, true));
        p.expect("P. 11:21(10) ack 1");
        p.write(10);
        p.expect("P. 21:31(10) ack 1");
    });
}

#[test]
fn established_cork() {
    conversation(established, |p| {
        p.call(|conn, cx, _| conn.set_cork(cx, true));
        p.write(40);
        p.wait_ms(50);
        p.write(40);
        p.expect_nothing();
        p.write(1000);
        p.expect(". 1:1001(1000) ack 1");
        p.expect_nothing();
        p.call(|conn, cx, _| conn.set_cork(cx, false));
        p.expect("P. 1001:1081(80) ack 1");
    });
}

#[test]
fn established_cork_times_out() {
    conversation(established, |p| {
        p.call(|conn, cx, _| conn.set_cork(cx, true));
        p.write(40);
        // The probe timer's first interval is the timeout that follows from a handshake of 100 ms.
        p.expect_after_ms(300, "P. 1:41(40) ack 1");
        p.inject(". 1:1(0) ack 41");
        p.write(30);
        p.wait_ms(338);
        p.expect("P. 41:71(30) ack 1");
    });
}

#[test]
fn established_cork_then_nodelay_pushes() {
    conversation(established, |p| {
        p.call(|conn, cx, _| conn.set_cork(cx, true));
        p.write(80);
        p.expect_nothing();
        p.call(|conn, cx, _| conn.set_nodelay(cx, true));
        p.expect("P. 1:81(80) ack 1");
    });
}

#[test]
fn established_fin_passes_cork_and_nagle() {
    conversation(established, |p| {
        p.call(|conn, cx, _| conn.set_cork(cx, true));
        p.write(40);
        p.shutdown();
        p.expect("FP. 1:41(40) ack 1");
    });
}

#[test]
fn established_rst_at_edge() {
    conversation(established, |p| {
        p.inject("R 1:1(0)");
        p.expect_effects(Effects::FAILED | Effects::CLOSED);
        assert_eq!(p.conn.error(), Some(ConnectionError::Reset));
        p.expect_nothing();
    });
}

#[test]
fn established_rst_in_window() {
    conversation(established, |p| {
        p.inject("R 2:2(0)");
        p.expect(". 1:1(0) ack 1");
        p.expect_state(State::Established);
        assert_eq!(p.counters.challenge_acks_out, 1);
        // The true peer answers the challenge with a RST at the edge.
        p.inject("R 1:1(0)");
        assert!(p.is_removed());
    });
}

#[test]
fn established_rst_outside_window() {
    conversation(established, |p| {
        p.inject("R 60001:60001(0)");
        p.inject("R 0:0(0)");
        p.expect_nothing();
        p.expect_state(State::Established);
        assert_eq!(p.counters.drop_reset_outside_window, 2);
    });
}

#[test]
fn established_rst_with_data_at_edge() {
    conversation(established, |p| {
        p.inject("R. 1:5(4) ack 1");
        assert!(p.is_removed());
    });
}

#[test]
fn established_syn() {
    conversation(established, |p| {
        p.inject("S 1:1(0)");
        p.expect(". 1:1(0) ack 1");
        p.expect_state(State::Established);
        // The limit is per connection.
        p.inject("S 900000:900000(0)");
        p.expect_nothing();
        p.wait_ms(500);
        p.inject("S 900000:900000(0)");
        p.expect(". 1:1(0) ack 1");
        assert_eq!(p.counters.drop_syn_synchronized, 3);
    });
}

#[test]
fn established_ack_beyond_sent() {
    conversation(established, |p| {
        p.inject("P. 1:101(100) ack 2");
        p.expect(". 1:1(0) ack 1");
        p.expect_received(0);
        assert_eq!(p.counters.drop_ack_beyond_sent, 1);
    });
}

#[test]
fn established_ack_too_old() {
    conversation(established, |p| {
        // So much data was sent that only the window limits how late an ACK may be.
        p.write(61_000);
        for ack in (1001..=61_001).step_by(10_000) {
            p.inject(&format!(". 1:1(0) ack {ack}"));
        }
        p.inject("P. 1:101(100) ack 61001");
        p.skip_sent();
        // MAX.SND.WND is 60000.
        p.inject("P. 101:201(100) ack 1000");
        p.expect(". 61001:61001(0) ack 101");
        p.expect_received(100);
        assert_eq!(p.counters.drop_ack_too_old, 1);
        p.inject("P. 101:201(100) ack 1001");
        p.expect_received(200);
    });
}

#[test]
fn established_segment_without_ack() {
    conversation(established, |p| {
        p.inject("P 1:101(100)");
        p.expect_nothing();
        p.expect_received(0);
        assert_eq!(p.counters.drop_no_ack, 1);
    });
}

#[test]
fn established_empty_segments_outside_window_are_answered_seldom() {
    conversation(established, |p| {
        p.inject(". 0:0(0) ack 1");
        p.expect(". 1:1(0) ack 1");
        p.inject(". 0:0(0) ack 1");
        p.expect_nothing();
        p.wait_ms(500);
        p.inject(". 0:0(0) ack 1");
        p.expect(". 1:1(0) ack 1");
    });
}

#[test]
fn established_abort() {
    conversation(established, |p| {
        p.write(100);
        p.skip_sent();
        p.polls = false;
        p.abort();
        p.expect_effects(Effects::CLOSED);
        assert_eq!(p.class(), TransmitClass::Control);
        assert_eq!(p.conn.error(), Some(ConnectionError::Aborted));
        p.poll();
        p.expect("R. 101:101(0) ack 1");
    });
}

#[test]
fn established_urgent() {
    conversation(established, |p| {
        p.inject("PU. 1:101(100) ack 1 urg 150");
        p.expect_effects(Effects::READABLE | Effects::URGENT);
        assert_eq!(p.conn.urgent(), Some(50));
        p.inject("P. 101:201(100) ack 1");
        assert_eq!(p.conn.urgent(), None);
        p.expect_received(200);
    });
}

#[test]
fn established_icmp_is_only_remembered() {
    conversation(established, |p| {
        p.write(100);
        p.skip_sent();
        let seq = p.conn.una();
        p.call(|conn, cx, _| conn.on_icmp_error(cx, IcmpError::PortUnreachable, seq));
        p.expect_state(State::Established);
        p.expect_effects(Effects::NONE);
    });
}

#[test]
fn established_path_mtu_shrinks() {
    conversation(established, |p| {
        p.write(3000);
        p.skip_sent();
        p.call(|conn, cx, _| conn.on_mtu(cx, 500, true));
        assert_eq!(p.conn.send_mss(), 500);
        p.expect(". 1:501(500) ack 1");
        p.expect(". 501:1001(500) ack 1");
        p.expect_data(1001, 3001, 500, 1, true);
        assert_eq!(p.cwnd(), 10);
        p.inject(". 1:1(0) ack 3001");
        p.write(700);
        p.expect(". 3001:3501(500) ack 1");
    });
}

#[test]
fn established_segments_in_the_mss_of_the_smaller_window() {
    let setup = Setup {
        window: 1200,
        ..Setup::default()
    };
    conversation(
        |v| Peer::accepted(&setup, v),
        |p| {
            // Two segments must fit the peer's largest window.
            p.write(3000);
            p.expect(". 1:601(600) ack 1");
            p.expect(". 601:1201(600) ack 1");
            p.expect_nothing();
        },
    );
}

#[test]
fn established_data_class() {
    conversation(established, |p| {
        p.polls = false;
        p.write(10);
        assert_eq!(p.class(), TransmitClass::Data);
        p.poll();
        p.inject("P. 1:11(10) ack 11");
        assert_eq!(p.class(), TransmitClass::Piggyback);
        p.poll();
        p.inject("P. 21:31(10) ack 11");
        assert_eq!(p.class(), TransmitClass::Ack);
        p.poll();
        p.shutdown();
        assert_eq!(p.class(), TransmitClass::Control);
    });
}

#[test]
fn established_retransmission_timeout() {
    conversation(established, |p| {
        p.write(2000);
        p.expect_data(1, 2001, 1000, 1, true);
        // SRTT is 100 ms and the variance term 200 ms, so the timeout is 300 ms.
        p.expect_after_ms(300, ". 1:1001(1000) ack 1");
        p.expect_after_ms(600, ". 1:1001(1000) ack 1");
        p.expect_after_ms(1200, ". 1:1001(1000) ack 1");
        assert_eq!(p.cwnd(), 1);
        p.inject(". 1:1(0) ack 1001");
        p.expect("P. 1001:2001(1000) ack 1");
        // Karn: the doubled timeout stays until a round trip is measured.
        assert_eq!(p.conn.info().rto_ns, 2400 * MS);
    });
}

#[test]
fn established_gives_up() {
    conversation(established, |p| {
        p.write(10);
        p.skip_sent();
        let start_ns = p.now_ns;
        p.wait_ms(2_000_000);
        assert!(p.is_removed());
        assert_eq!(p.conn.error(), Some(ConnectionError::TimedOut));
        assert_eq!(p.skip_sent(), 15);
        assert!(p.now_ns - start_ns > 100_000 * MS);
    });
}

#[test]
fn established_user_timeout() {
    conversation(established, |p| {
        p.conn.set_user_timeout(3000 * MS);
        p.write(10);
        p.skip_sent();
        // The user timeout counts from the first timeout, which a tail loss probe may postpone.
        p.wait_ms(3299);
        p.expect_state(State::Established);
        p.wait_ms(401);
        assert_eq!(p.conn.error(), Some(ConnectionError::TimedOut));
    });
}

#[test]
fn fin_wait_1_orphan_gives_up_sooner() {
    conversation(fin_wait_1, |p| {
        p.close();
        p.wait_ms(400_000);
        assert!(p.is_removed());
        assert_eq!(p.skip_sent(), 8);
    });
}

#[test]
fn established_more_ends_of_records_than_are_kept_are_counted() {
    conversation(established, |p| {
        p.inject(". 1:1(0) ack 1 win 0");
        for record in 1..=13 {
            p.write(10);
            p.call(|conn, cx, _| {
                conn.end_record(cx, record * 10);
                Effects::NONE
            });
        }
        assert_eq!(p.counters.record_ends_forgotten, 2);
    });
}
