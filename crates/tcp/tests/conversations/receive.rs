//! Reactions to arriving data: SACK and D-SACK, the time of ACKs, refused segments, and the data
//! that is dropped when memory is short.

use tcp::{Buffers, Config, Effects, Memory};

use crate::peer::{MS, Peer, Setup, Variant, conversation};
use crate::states::{established, established_sack, established_sack_timestamps};

#[test]
fn established_sack_newest_first() {
    conversation(established_sack, |p| {
        p.inject("P. 1001:2001(1000) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 1001:2001>");
        p.inject("P. 2001:3001(1000) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 1001:3001>");
        p.inject("P. 5001:6001(1000) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 5001:6001 1001:3001>");
        // The segment joins the two ranges: one block, the newest. From the fourth SACK on, SACKs
        // may be held back for others.
        p.inject("P. 3001:5001(2000) ack 1");
        p.expect_nothing();
        p.wait_ms(1);
        p.expect(". 1:1(0) ack 1 <sack 1001:6001>");
        p.inject("P. 1:1001(1000) ack 1");
        p.expect(". 1:1(0) ack 6001 <>");
        p.expect_received(6000);
        assert_eq!(p.ranges.in_use(), 0);
    });
}

#[test]
fn established_sack_oldest_of_five_is_not_reported() {
    let gaps = |p: &mut Peer, stamp: &str| {
        for at in [2001, 4001, 6001, 8001, 10_001] {
            p.inject(&format!(". {at}:{}(1000) ack 1{stamp}", at + 1000));
        }
        p.wait_ms(5);
        p.take_sent();
        // The segment touches a range that was forgotten, so it is reported alone, as in Linux.
        p.inject(&format!(". 3001:3101(100) ack 1{stamp}"));
        p.wait_ms(5);
    };
    conversation(established_sack, |p| {
        gaps(p, "");
        p.expect(". 1:1(0) ack 1 <sack 3001:3101 10001:11001 8001:9001 6001:7001>");
    });
    conversation(established_sack_timestamps, |p| {
        gaps(p, " <TS val 100 ecr 1000>");
        let sent = p.take_sent();
        assert_eq!(sent, [". 1:1(0) ack 1"]);
    });
}

#[test]
fn established_duplicate_is_reported_first() {
    conversation(established_sack, |p| {
        for at in [1001, 4001, 7001] {
            p.inject(&format!("P. {at}:{}(1000) ack 1", at + 1000));
        }
        p.skip_sent();
        // The segment fills the first gap and repeats two ranges. They do not touch, so only the
        // first one is reported.
        p.inject("P. 1:6001(6000) ack 1");
        p.expect(". 1:1(0) ack 6001 <sack 1001:2001 7001:8001>");
        p.inject("P. 6001:8001(2000) ack 1");
        p.expect(". 1:1(0) ack 8001 <sack 7001:8001>");
        p.inject("P. 1:1001(1000) ack 1");
        p.expect(". 1:1(0) ack 8001 <sack 1:1001>");
        // A duplicate is reported once.
        p.inject("P. 8001:9001(1000) ack 1");
        p.expect(". 1:1(0) ack 9001 <>");
    });
}

#[test]
fn established_duplicate_inside_a_block() {
    conversation(established_sack, |p| {
        p.inject("P. 1001:4001(3000) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 1001:4001>");
        p.inject("P. 2001:3001(1000) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 2001:3001 1001:4001>");
    });
}

#[test]
fn established_duplicates_are_not_reported_when_turned_off() {
    let setup = |v: Variant| {
        let config = Config {
            dsack: false,
            timestamps: false,
            window_scaling: false,
            ..Config::default()
        };
        let setup = Setup {
            config,
            sack: true,
            ..Setup::default()
        };
        Peer::accepted(&setup, v)
    };
    conversation(setup, |p| {
        p.inject("P. 1:1001(1000) ack 1");
        p.skip_sent();
        p.inject("P. 1:1001(1000) ack 1");
        p.expect(". 1:1(0) ack 1001 <>");
    });
}

#[test]
fn established_fin_beyond_a_gap_is_in_its_block() {
    conversation(established_sack, |p| {
        p.inject("F. 1001:2001(1000) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 1001:2002>");
        p.inject(". 1:1001(1000) ack 1");
        p.expect_effects(Effects::READABLE | Effects::EOF);
        assert_eq!(p.take_sent(), [". 1:1(0) ack 2002"]);
    });
}

#[test]
fn established_sacks_wait_for_each_other_after_three() {
    conversation(established_sack, |p| {
        // The receiver sees a round trip of 100 ms, the time in which a window arrives.
        for (at, len) in [(1, 10_000), (10_001, 60_000)] {
            p.inject(&format!(". {at}:{}({len}) ack 1", at + len));
            p.read_all();
            p.wait_ms(100);
        }
        p.take_sent();
        // Each segment is answered while quick ACKs last, and three more times.
        for n in 0..20 {
            let at = 80_001 + n * 1000;
            p.inject(&format!(". {at}:{}(1000) ack 1", at + 1000));
        }
        assert!(p.take_sent().len() >= 3);
        p.wait_ms(2);
        p.take_sent();
        let begin_ns = p.now_ns;
        for at in [100_001, 101_001, 102_001] {
            p.inject(&format!(". {at}:{}(1000) ack 1", at + 1000));
            p.expect_nothing();
        }
        // The SACK leaves after at most a millisecond and the slack.
        let due_ns = begin_ns + MS + MS / 10;
        assert!(p.conn.is_deadline_fine());
        p.wait_until(due_ns - 1);
        p.expect_nothing();
        p.wait_until(due_ns);
        p.expect(". 1:1(0) ack 70001 <sack 80001:103001>");
        p.expect_nothing();
    });
}

#[test]
fn established_gap_partly_filled_is_told_at_once() {
    conversation(established_sack, |p| {
        p.inject("P. 2001:3001(1000) ack 1");
        p.skip_sent();
        p.inject("P. 1:1001(1000) ack 1");
        p.expect(". 1:1(0) ack 1001 <sack 2001:3001>");
        p.inject("P. 1001:2001(1000) ack 1");
        p.expect(". 1:1(0) ack 3001 <>");
    });
}

#[test]
fn established_every_second_segment_is_acknowledged_once_quick_acks_are_spent() {
    conversation(established, |p| {
        let mut at = 1;
        let mut silent = 0;
        for _ in 0..60 {
            p.inject(&format!(". {at}:{}(1000) ack 1", at + 1000));
            p.read_all();
            at += 1000;
            silent += usize::from(p.skip_sent() == 0);
        }
        assert!((20..=30).contains(&silent), "{silent}");
    });
}

#[test]
fn established_quick_ack_off_delays_and_on_answers() {
    conversation(established, |p| {
        p.call(|conn, cx, _| conn.set_quick_ack(cx, false));
        p.inject("P. 1:101(100) ack 1");
        p.expect_nothing();
        p.read_all();
        p.expect_nothing();
        // The bytes have been read, so their ACK is due.
        p.call(|conn, cx, _| conn.set_quick_ack(cx, true));
        p.expect(". 1:1(0) ack 101");
    });
}

#[test]
fn established_memory_short_the_furthest_goes_first() {
    conversation(established_sack, |p| {
        for at in [2001, 4001, 6001] {
            p.inject(&format!(". {at}:{}(1000) ack 1", at + 1000));
        }
        p.skip_sent();
        p.memory = Memory::Pressure;
        p.inject(". 1:1001(1000) ack 1");
        assert!(p.counters.bytes_out_of_order_shed >= 1000);
        p.expect_received(1000);
        // Bytes in order are never dropped; dropped ranges may come again.
        p.memory = Memory::Ample;
        p.inject(". 1001:7001(6000) ack 1");
        p.expect_received(7000);
        assert_eq!(p.ranges.in_use(), 0);
    });
}

#[test]
fn established_memory_exhausted_nothing_out_of_order_is_taken() {
    conversation(established_sack, |p| {
        p.memory = Memory::Exhausted;
        p.inject(". 2001:3001(1000) ack 1");
        p.expect(". 1:1(0) ack 1 <>");
        assert_eq!(p.counters.bytes_drop_no_memory, 1000);
        p.inject(". 1:1001(1000) ack 1");
        p.expect_received(1000);
    });
}

#[test]
fn established_failed_connection_holds_no_range() {
    conversation(established_sack, |p| {
        p.inject(". 2001:3001(1000) ack 1");
        p.skip_sent();
        assert_eq!(p.ranges.in_use(), 1);
        p.inject("R 1:1(0)");
        assert!(p.is_removed());
        assert_eq!(p.ranges.in_use(), 0);
    });
}

#[test]
fn established_buffer_grows_with_what_is_read() {
    let setup = |v: Variant| {
        let setup = Setup {
            scales: Some((8, 7)),
            window: 500,
            ..Setup::default()
        };
        let mut p = Peer::accepted(&setup, v);
        p.config.recv_buffer_moderate = true;
        p
    };
    conversation(setup, |p| {
        let before = p.conn.recv_buffer();
        let mut at = 1;
        for _ in 0..8 {
            // A window arrives in each round trip of 50 ms and is read at once.
            let end = at + p.conn.info().rcv_wnd;
            while at + 1000 <= end {
                p.inject(&format!(". {at}:{}(1000) ack 1", at + 1000));
                p.read_all();
                at += 1000;
            }
            p.wait_ms(50);
            p.skip_sent();
        }
        let after = p.conn.recv_buffer();
        assert!(after > 2 * before, "{before} {after}");
        assert!(after <= p.config.recv_buffer.bytes_max);
    });
}

#[test]
fn established_send_buffer_follows_the_congestion_window() {
    conversation(established, |p| {
        let before = p.conn.send_buffer();
        let twenty = 20 * ((1000u32 + 640).next_power_of_two() + 256);
        assert_eq!(before, twenty.max(Buffers::of(&p.config).send_bytes));
        let locked = p.config.clone();
        p.call(|conn, cx, _| {
            conn.set_send_buffer(cx, 21_000);
            Effects::NONE
        });
        assert_eq!(p.conn.send_buffer(), 42_000);
        assert_eq!(locked, p.config);
    });
}
