//! Answers of a connection on both sides of their boundaries: whether it is quiet, whether a plain
//! ACK is due, whether more data is announced, and which of two limits holds.

use tcp::{Effects, Keepalive, SegmentOut};

use crate::peer::{MS, Peer, conversation};
use crate::states::{close_wait, established, fin_wait_1, syn_sent};

fn is_quiet(p: &Peer) -> bool {
    p.conn.is_quiet()
}

#[test]
fn established_more_is_announced_until_the_next_write() {
    conversation(established, |p| {
        assert!(!p.conn.announces_more());
        p.write(100);
        assert!(!p.conn.announces_more());
        p.call(|conn, cx, _| {
            let run = conn.begin_run();
            conn.note_write_more(cx, 100);
            conn.end_run(cx, Effects::NONE, run)
        });
        assert!(p.conn.announces_more());
    });
}

#[test]
fn established_is_quiet_unless_something_is_owed_held_or_in_flight() {
    conversation(established, |p| {
        assert!(is_quiet(p));
        // Data in flight, then acknowledged.
        p.write(100);
        assert!(!is_quiet(p));
        p.inject(". 1:1(0) ack 101");
        assert!(is_quiet(p));
        // Data arrived, then acknowledged, then read.
        p.inject("P. 1:101(100) ack 101");
        assert!(!is_quiet(p));
        p.wait_ms(1000);
        assert!(!is_quiet(p));
        p.read_all();
        assert!(is_quiet(p));
        // Out of order.
        p.inject("P. 201:301(100) ack 101");
        assert!(!is_quiet(p));
        p.wait_ms(1000);
        assert!(!is_quiet(p));
    });
}

#[test]
fn established_written_behind_a_shut_window_is_not_quiet() {
    conversation(established, |p| {
        p.inject(". 1:1(0) ack 1 win 0");
        assert!(is_quiet(p));
        p.write(100);
        p.expect_nothing();
        assert!(!is_quiet(p));
    });
}

#[test]
fn synchronizing_and_closing_states_are_not_quiet() {
    for way in [syn_sent, fin_wait_1, close_wait] {
        conversation(way, |p| assert!(!is_quiet(p)));
    }
}

#[test]
fn established_ack_that_is_due_is_plain() {
    conversation(established, |p| {
        p.polls = false;
        p.call(|conn, cx, _| {
            assert_eq!(conn.poll_plain_ack(cx).map(SegmentOut::from), None);
            Effects::NONE
        });
        p.inject(". 1:1001(1000) ack 1");
        p.inject(". 1001:2001(1000) ack 1");
        let due = plain_ack(p).expect("an ACK");
        assert_eq!((due.payload_len, due.ack), (0, p.conn.rcv_nxt()));
        assert_eq!(plain_ack(p), None);
    });
}

fn plain_ack(p: &mut Peer) -> Option<SegmentOut> {
    let mut cx = tcp::Cx {
        now_ns: p.now_ns,
        config: &p.config,
        challenge: &mut p.challenge,
        counters: &mut p.counters,
        records: &mut p.records,
        ranges: &mut p.ranges,
        memory: p.memory,
    };
    p.conn.poll_plain_ack(&mut cx).map(SegmentOut::from)
}

/// TCP_KEEPIDLE is set in an idle time, whose silence counts.
#[test]
fn established_shorter_idle_time_counts_from_the_last_segment() {
    let every = |idle_ms: u64| Keepalive {
        idle_ns: idle_ms * MS,
        interval_ns: 1000 * MS,
        probes_max: 3,
    };
    conversation(established, |p| {
        p.call(|conn, cx, _| conn.set_keepalive(cx, Some(every(10_000))));
        p.inject("P. 1:101(100) ack 1");
        p.read_all();
        p.wait_ms(5000);
        p.skip_sent();
        p.call(|conn, cx, _| conn.set_keepalive_idle(cx, Some(every(8000))));
        p.expect_after_ms(3000, ". 0:0(0) ack 101");
    });
}

/// A peer's window with room for a part of the due data.
fn nearly_shut(p: &mut Peer, bytes: u32) {
    p.inject(". 1:1(0) ack 1 win 0");
    p.inject(". 1:1(0) ack 1 win 1000");
    p.write(bytes);
    p.skip_sent();
}

/// Data that Nagle's algorithm would not hold leaves when the cork is removed, even cut by the
/// window.
#[test]
fn established_uncorked_without_delay_is_cut_by_the_window() {
    conversation(established, |p| {
        p.call(|conn, cx, _| conn.set_nodelay(cx, true));
        nearly_shut(p, 900);
        p.call(|conn, cx, _| conn.set_cork(cx, true));
        p.write(300);
        p.expect_nothing();
        p.call(|conn, cx, _| conn.set_cork(cx, false));
        p.expect(". 901:1001(100) ack 1");
        p.expect_nothing();
    });
}

#[test]
fn established_uncorked_is_not_cut_by_the_window() {
    conversation(established, |p| {
        nearly_shut(p, 900);
        p.call(|conn, cx, _| conn.set_cork(cx, true));
        p.write(300);
        p.call(|conn, cx, _| conn.set_cork(cx, false));
        p.expect_nothing();
    });
}

/// A peer that scales its window without a window scale option of ours (RFC 7323 section 2.2) is
/// not believed.
#[test]
fn syn_sent_window_scale_that_was_not_asked_for_is_ignored() {
    conversation(syn_sent, |p| {
        p.inject("S. 0:0(0) ack 1 win 1000 <mss 1000,wscale 7>");
        assert_eq!(p.conn.info().snd_wscale, 0);
        p.inject(". 1:1(0) ack 1 win 1000");
        p.skip_sent();
        // Half of the window leaves at once, as for a peer with so little room.
        p.write(2000);
        p.expect(". 1:501(500) ack 1");
    });
}

#[test]
fn established_nobody_answers_for_ever_is_counted_once() {
    conversation(established, |p| {
        p.write(100);
        p.wait_ms(3_600_000);
        assert!(p.is_removed());
        assert_eq!(p.counters.timed_out, 1);
    });
}

/// A round trip of 100 ms, the shortest seen, acknowledges two segments: a valid sample, no
/// repetition.
#[test]
fn established_delivery_in_the_least_round_trip_is_a_sample() {
    conversation(established, |p| {
        for end in [2001, 4001] {
            p.write(2000);
            p.wait_ms(100);
            p.inject(&format!(". 1:1(0) ack {end}"));
        }
        assert_eq!(p.conn.info().delivery_rate, 20_000);
    });
}
