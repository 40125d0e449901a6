//! Windows in both directions: ours (edge, scale, silly-window avoidance, updates), and the peer's
//! (shut, shrunk).

use tcp::{Effects, State};

use crate::peer::{MS, Peer, Setup, conversation};
use crate::states::established;

fn small_buffer(v: crate::peer::Variant) -> Peer {
    let setup = Setup {
        recv_space: 4000,
        ..Setup::default()
    };
    Peer::accepted(&setup, v)
}

#[test]
fn established_window_closes_and_opens() {
    conversation(small_buffer, |p| {
        p.inject("P. 1:1001(1000) ack 1");
        p.expect(". 1:1(0) ack 1001 win 2000");
        p.inject("P. 1001:2001(1000) ack 1");
        // The buffer is half full, so quick ACKs have ended.
        p.expect_after_ms(40, ". 1:1(0) ack 2001 win 1000");
        p.inject("P. 2001:3001(1000) ack 1");
        p.wait_ms(200);
        p.expect(". 1:1(0) ack 3001 win 0");
        // The ACK of a probe with data; the data is refused.
        p.inject(". 3001:3002(1) ack 1");
        p.expect(". 1:1(0) ack 3001 win 0");
        p.expect_received(3000);
        // A little room gives no update, but a segment of the peer does.
        p.read_until_left(2900);
        p.expect_nothing();
        p.read_until_left(2000);
        p.expect(". 1:1(0) ack 3001 win 1000");
    });
}

#[test]
fn established_right_edge_stays_until_it_pays() {
    conversation(small_buffer, |p| {
        p.inject(". 1:1001(1000) ack 1");
        p.expect(". 1:1(0) ack 1001 win 2000");
        p.read_until_left(900);
        // The window stays as it is while it differs from the room by less than a segment.
        p.inject(". 1001:1101(100) ack 1");
        p.expect_after_ms(40, ". 1:1(0) ack 1101 win 2000");
        p.read_all();
        p.inject(". 1101:1601(500) ack 1");
        p.skip_sent();
        let edge = 1601 + p.conn.info().rcv_wnd;
        p.inject(". 1601:1701(100) ack 1");
        p.wait_ms(200);
        assert!(1701 + p.conn.info().rcv_wnd >= edge);
    });
}

#[test]
fn established_fin_into_shut_window() {
    conversation(small_buffer, |p| {
        p.inject(". 1:4001(4000) ack 1");
        // The reader does not keep up, so quick ACKs have ended.
        p.expect_after_ms(40, ". 1:1(0) ack 4001 win 0");
        p.inject("F. 4001:4001(0) ack 1");
        p.expect_effects(Effects::EOF);
        p.expect(". 1:1(0) ack 4002 win 0");
    });
}

#[test]
fn established_ack_and_rst_into_shut_window() {
    conversation(small_buffer, |p| {
        p.write(10);
        p.skip_sent();
        p.inject(". 1:4001(4000) ack 1");
        p.skip_sent();
        // An ACK into a shut window is taken (RFC 9293 MUST-66).
        p.inject(". 4001:4001(0) ack 11");
        p.expect_effects(Effects::WRITABLE);
        p.inject("R 4001:4001(0)");
        assert!(p.is_removed());
    });
}

#[test]
fn established_scaled_window_is_not_retracted_by_rounding() {
    let setup = Setup {
        scales: Some((8, 7)),
        window: 500,
        ..Setup::default()
    };
    conversation(
        |v| Peer::accepted(&setup, v),
        |p| {
            p.inject("P. 1:2(1) ack 1");
            // 59860 bytes were promised from 1 on, up to 59861: 233 units would end before that.
            p.expect(". 1:1(0) ack 2 win 234");
            p.inject("P. 2:102(100) ack 1");
            p.expect(". 1:1(0) ack 102 win 234");
            p.inject("P. 102:302(200) ack 1");
            p.expect(". 1:1(0) ack 302 win 234");
        },
    );
}

#[test]
fn established_rounding_up_does_not_outgrow_memory() {
    let setup = Setup {
        scales: Some((8, 7)),
        recv_space: 10_240,
        window: 500,
        ..Setup::default()
    };
    conversation(
        |v| Peer::accepted(&setup, v),
        |p| {
            // Bytes arrive one by one and stay unread. Each ACK rounds up, but the edge never
            // exceeds the memory and never goes back.
            let mut edge = 0;
            for seq in 1..=12_000u32 {
                p.inject(&format!("P. {seq}:{}(1) ack 1", seq + 1));
                p.wait_ms(1);
                p.skip_sent();
                let info = p.conn.info();
                let now = info.bytes_received as u32 + info.rcv_wnd;
                assert!(now >= edge && now <= 2 * 20_480, "{seq} {info:?}");
                edge = now;
            }
        },
    );
}

#[test]
fn established_peer_window_limits() {
    let setup = Setup {
        window: 3000,
        ..Setup::default()
    };
    conversation(
        |v| Peer::accepted(&setup, v),
        |p| {
            p.write(10_000);
            p.expect_data(1, 3001, 1000, 1, false);
            p.expect_nothing();
            p.inject(". 1:1(0) ack 1001 win 3000");
            p.expect(". 3001:4001(1000) ack 1");
            // Half a segment would be silly.
            p.inject(". 1:1(0) ack 1001 win 3400");
            p.expect_nothing();
            p.inject(". 1:1(0) ack 1001 win 4000");
            p.expect(". 4001:5001(1000) ack 1");
        },
    );
}

#[test]
fn established_window_shut_is_probed_for_ever() {
    conversation(established, |p| {
        p.write(1000);
        p.skip_sent();
        p.inject(". 1:1(0) ack 1001 win 0");
        p.write(1000);
        p.expect_nothing();
        let mut probes = 0;
        for _ in 0..100 {
            p.wait_ms(120_000);
            let n = p.skip_sent();
            assert!(n > 0);
            probes += n;
            p.inject(". 1:1(0) ack 1001 win 0");
        }
        assert!(probes >= 100);
        p.expect_state(State::Established);
        p.inject(". 1:1(0) ack 1001 win 5000");
        p.expect("P. 1001:2001(1000) ack 1");
    });
}

#[test]
fn established_window_shut_probe_times() {
    conversation(established, |p| {
        p.write(1000);
        p.skip_sent();
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 1001 win 0");
        p.write(1000);
        p.expect_after_ms(300, ". 1000:1000(0) ack 1");
        p.inject(". 1:1(0) ack 1001 win 0");
        p.expect_after_ms(600, ". 1000:1000(0) ack 1");
        p.inject(". 1:1(0) ack 1001 win 0");
        p.expect_after_ms(1200, ". 1000:1000(0) ack 1");
        assert_eq!(p.cwnd(), 10);
        p.inject(". 1:1(0) ack 1001 win 500");
        // 500 bytes are less than half of the largest window (60000), but they are all there is, so
        // the segment leaves when the timer expires.
        p.expect_nothing();
        p.expect_after_ms(300, "P. 1001:1501(500) ack 1");
    });
}

#[test]
fn established_window_shut_unanswered_gives_up() {
    conversation(established, |p| {
        p.write(1000);
        p.skip_sent();
        p.inject(". 1:1(0) ack 1001 win 0");
        p.write(1000);
        p.wait_ms(3_000_000);
        assert!(p.is_removed());
        assert_eq!(p.skip_sent(), 15);
    });
}

#[test]
fn established_window_shut_holds_fin() {
    conversation(established, |p| {
        p.write(1000);
        p.skip_sent();
        p.inject(". 1:1(0) ack 1001 win 0");
        p.shutdown();
        p.expect_nothing();
        p.inject(". 1:1(0) ack 1001 win 100");
        p.expect("F. 1001:1001(0) ack 1");
    });
}

#[test]
fn established_window_shrinks_below_flight() {
    conversation(established, |p| {
        p.write(5000);
        p.skip_sent();
        // A segment without news changes the window only if it is larger, or shut.
        p.inject(". 1:1(0) ack 1 win 0");
        p.inject(". 1:1(0) ack 1 win 2000");
        p.write(5000);
        // No new data fits. Old data is repeated within the window, one segment at first.
        p.expect_nothing();
        p.expect_after_ms(300, ". 1:1001(1000) ack 1");
        p.inject(". 1:1(0) ack 1001 win 1000");
        p.expect(". 1001:2001(1000) ack 1");
        p.inject(". 1:1(0) ack 2001 win 60000");
        p.expect(". 2001:3001(1000) ack 1");
    });
}

#[test]
fn established_window_shrinks_to_zero_below_flight_does_not_time_out() {
    conversation(established, |p| {
        p.write(2000);
        p.skip_sent();
        for _ in 0..60 {
            p.inject(". 1:1(0) ack 1 win 0");
            p.wait_ms(60_000);
        }
        p.expect_state(State::Established);
        // The first segment was retransmitted many times, although none of it lies in the window.
        assert!(p.skip_sent() > 20);
        p.inject(". 1:1(0) ack 2001 win 60000");
        assert_eq!(p.conn.unacked(), 0);
    });
}

#[test]
fn established_old_window_update_is_ignored() {
    conversation(established, |p| {
        p.write(2000);
        p.skip_sent();
        p.inject(". 1:1(0) ack 2001 win 30000");
        assert_eq!(p.conn.info().snd_wnd, 30_000);
        // An older ACK was overtaken, so neither its window nor its number counts.
        p.inject(". 1:1(0) ack 1001 win 1000");
        assert_eq!(p.conn.info().snd_wnd, 30_000);
    });
}

/// The peer's window is shut. The application writes with TCP_CORK, and clears and sets that option
/// every 100 ms.
fn uncorked_into_a_shut_window(p: &mut Peer, pulls: u32) {
    p.inject(". 1:1(0) ack 1 win 0");
    p.call(|conn, cx, _| conn.set_cork(cx, true));
    p.write(10);
    p.skip_sent();
    for _ in 0..pulls {
        p.wait_ms(100);
        if p.is_removed() {
            return;
        }
        p.call(|conn, cx, _| conn.set_cork(cx, false));
        p.call(|conn, cx, _| conn.set_cork(cx, true));
    }
}

#[test]
fn established_uncorking_into_a_shut_window_leaves_its_probes_alone() {
    conversation(established, |p| {
        uncorked_into_a_shut_window(p, 20);
        // Probes left after 300 ms and 600 ms more; the next is due at 2.1 s.
        p.expect(". 0:0(0) ack 1");
        p.expect(". 0:0(0) ack 1");
        p.expect_nothing();
        assert_eq!(p.counters.window_probes_out, 2);
        p.inject(". 1:1(0) ack 1 win 1000");
        p.call(|conn, cx, _| conn.set_cork(cx, false));
        p.expect("P. 1:11(10) ack 1");
    });
}

#[test]
fn established_uncorking_into_a_shut_window_outlasts_no_user_timeout() {
    conversation(established, |p| {
        p.conn.set_user_timeout(5_000 * MS);
        uncorked_into_a_shut_window(p, 70);
        assert!(p.is_removed(), "a dead peer is noticed");
    });
}

#[test]
fn established_urgent_data_and_nodelay_leave_probes_alone() {
    conversation(established, |p| {
        p.inject(". 1:1(0) ack 1 win 0");
        p.write(10);
        for _ in 0..20 {
            p.wait_ms(100);
            p.call(|conn, cx, _| conn.set_nodelay(cx, true));
            p.call(|conn, cx, _| conn.mark_urgent(cx, 1));
        }
        assert_eq!(p.counters.window_probes_out, 2);
    });
}

#[test]
fn established_places_that_were_acknowledged_are_forgotten() {
    conversation(established, |p| {
        p.write(10);
        p.call(|conn, cx, _| conn.mark_urgent(cx, 10));
        p.call(|conn, cx, _| {
            conn.end_record(cx, 5);
            conn.end_record(cx, 10);
            Effects::NONE
        });
        assert!(p.skip_sent() > 0);
        p.inject(". 1:1(0) ack 8 win 1000");
        assert_eq!(p.conn.check_packing(), None, "something is in flight");
        p.inject(". 1:1(0) ack 11 win 1000");
        // A mark in the acknowledged stream is not packed. It would seem to lie ahead of SND.UNA
        // once 2^31 more bytes are acknowledged.
        assert!(p.conn.check_packing().is_some());
    });
}
