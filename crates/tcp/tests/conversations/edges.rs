//! The edges of the receive window and of the send window: the last sequence number within, and the
//! first one beyond.

use tcp::{Effects, State};

use crate::peer::{MS, Peer, Setup, Variant, conversation};
use crate::states::{close_wait, established, established_sack};

/// The first sequence number beyond the window that we advertised last; `nxt`: our RCV.NXT.
fn edge(p: &Peer, nxt: u32) -> u32 {
    nxt + p.conn.info().rcv_wnd
}

#[test]
fn established_reset_at_the_right_edge_is_outside_the_window() {
    conversation(established, |p| {
        let edge = edge(p, 1);
        for seq in [edge, edge + 1] {
            p.inject(&format!("R {seq}:{seq}(0)"));
            p.expect_nothing();
        }
        assert_eq!(p.counters.drop_reset_outside_window, 2);
        assert_eq!(p.counters.drop_reset_in_window, 0);
        let last = edge - 1;
        p.inject(&format!("R {last}:{last}(0)"));
        p.expect(". 1:1(0) ack 1");
        assert_eq!(p.counters.drop_reset_outside_window, 2);
        assert_eq!(p.counters.drop_reset_in_window, 1);
    });
}

/// Ten bytes are sent and wait for an ACK.
fn with_text_out(p: &mut Peer) {
    p.write(10);
    p.skip_sent();
}

#[test]
fn established_text_up_to_the_edge_is_believed_while_text_waits_to_be_read() {
    conversation(established, |p| {
        with_text_out(p);
        p.inject(". 1:1001(1000) ack 1");
        p.skip_sent();
        let edge = edge(p, 1001);
        // With one byte beyond the edge, nothing of the segment counts.
        p.inject(&format!(". 1001:{}({}) ack 11", edge + 1, edge - 1000));
        p.expect_effects(Effects::NONE);
        assert_eq!(p.counters.drop_outside_window, 1);
        p.skip_sent();
        p.inject(&format!(". 1001:{edge}({}) ack 11", edge - 1001));
        assert_eq!(p.counters.drop_outside_window, 1);
        assert!(p.effects.contains(Effects::WRITABLE | Effects::READABLE));
    });
}

#[test]
fn established_ack_with_text_beyond_the_edge_counts_once_all_is_read() {
    conversation(established, |p| {
        with_text_out(p);
        p.inject(". 1:1001(1000) ack 1");
        p.read_all();
        p.skip_sent();
        let edge = edge(p, 1001);
        p.inject(&format!(". 1001:{}({}) ack 11", edge + 1, edge - 1000));
        assert_eq!(p.counters.drop_outside_window, 0);
        assert!(p.effects.contains(Effects::WRITABLE | Effects::READABLE));
    });
}

#[test]
fn close_wait_ack_with_text_beyond_the_edge_does_not_count() {
    conversation(close_wait, |p| {
        with_text_out(p);
        let edge = edge(p, 2);
        p.inject(&format!(". 2:{}({}) ack 11", edge + 1, edge - 1));
        assert_eq!(p.counters.drop_outside_window, 1);
        p.expect_effects(Effects::NONE);
        p.inject(". 2:2(0) ack 11");
        assert!(p.effects.contains(Effects::WRITABLE));
    });
}

#[test]
fn established_text_at_the_edge_came_too_soon_and_an_empty_ack_did_not() {
    conversation(established, |p| {
        with_text_out(p);
        let edge = edge(p, 1);
        p.inject(&format!(". {edge}:{}(1) ack 11", edge + 1));
        assert_eq!(p.counters.drop_outside_window, 1);
        p.expect_effects(Effects::NONE);
        p.expect(". 11:11(0) ack 1");
        p.inject(&format!(". {edge}:{edge}(0) ack 11"));
        assert_eq!(p.counters.drop_outside_window, 1);
        p.expect_effects(Effects::WRITABLE);
    });
}

#[test]
fn established_text_up_to_a_held_fin_is_kept() {
    conversation(established_sack, |p| {
        p.inject("F. 3001:3001(0) ack 1");
        p.skip_sent();
        p.inject(". 2001:3001(1000) ack 1");
        p.skip_sent();
        assert_eq!(p.counters.bytes_out_of_order, 1000);
        assert_eq!(p.counters.bytes_drop_no_memory, 0);
        // Nothing is accepted beyond the FIN.
        p.inject(". 2501:3002(501) ack 1");
        p.skip_sent();
        assert_eq!(p.counters.bytes_drop_beyond_fin, 501);
        p.inject(". 1:2001(2000) ack 1");
        p.expect_effects(Effects::READABLE | Effects::EOF);
        p.expect(". 1:1(0) ack 3002");
        p.expect_received(3000);
    });
}

#[test]
fn established_window_shuts_step_by_step_while_nobody_reads() {
    conversation(established, |p| {
        let mut windows = Vec::new();
        for n in 0..90u32 {
            let at = 1 + 1000 * n;
            p.inject(&format!("P. {at}:{}(1000) ack 1", at + 1000));
            p.wait_ms(200);
            p.skip_sent();
            windows.push(p.conn.info().rcv_wnd);
        }
        // The edge stays in place until the window is shut, and the window then stays shut.
        let shut = windows.iter().position(|window| *window == 0);
        assert_eq!(shut, Some(77));
        assert!(windows[54..77].is_sorted_by(|a, b| *a == b + 1000));
        assert!(windows[77..].iter().all(|window| *window == 0));
    });
}

fn small_buffer(v: Variant) -> Peer {
    let setup = Setup {
        recv_space: 4000,
        ..Setup::default()
    };
    Peer::accepted(&setup, v)
}

/// The application has read, and the ACK that opens the window has not left: text of the peer's
/// probe is refused, but not a FIN, which takes no room.
#[test]
fn established_shut_window_refuses_text_until_its_update_leaves() {
    conversation(small_buffer, |p| {
        p.inject(". 1:4001(4000) ack 1");
        p.wait_ms(200);
        p.expect(". 1:1(0) ack 4001 win 0");
        p.polls = false;
        p.read_all();
        p.inject("P. 4001:4011(10) ack 1");
        p.expect_received(4000);
        let counted = &p.counters;
        let refused = (counted.drop_outside_window, counted.bytes_outside_window);
        assert_eq!(refused, (1, 10));
        p.inject("F. 4001:4001(0) ack 1");
        p.expect_state(State::CloseWait);
        p.poll();
        p.expect(". 1:1(0) ack 4002");
    });
}

/// The windows after each of 60 segments of `len` bytes that nobody reads, on a connection that
/// scales windows by a shift of four.
fn windows_of(p: &mut Peer, len: u32) -> Vec<u32> {
    let mut at = 1;
    let windows = (0..60).map(|_| {
        p.inject(&format!("P. {at}:{}({len}) ack 1", at + len));
        p.wait_ms(200);
        p.skip_sent();
        at += len;
        p.conn.info().rcv_wnd
    });
    windows.collect()
}

#[test]
fn established_scaled_window_shuts_before_it_is_silly() {
    let setup = |recv_space| {
        move |v| {
            let setup = Setup {
                scales: Some((2, 7)),
                recv_space,
                window: 500,
                ..Setup::default()
            };
            Peer::accepted(&setup, v)
        }
    };
    conversation(setup(32_000), |p| {
        let windows = windows_of(p, 1000);
        assert_eq!(windows[26..29], [3660, 2660, 12_736]);
        // The window is what was promised, and no more.
        assert_eq!(windows[38..41], [2748, 1748, 748]);
        assert!(windows[41..].iter().all(|window| *window == 748));
    });
    conversation(setup(8_000), |p| {
        let windows = windows_of(p, 300);
        assert_eq!(windows[24..27], [380, 3924, 3624]);
        assert_eq!(windows[37..39], [324, 24]);
        assert!(windows[38..].iter().all(|window| *window == 24));
    });
}

#[test]
fn established_window_update_leaves_when_the_window_doubles() {
    conversation(small_buffer, |p| {
        p.inject(". 1:2001(2000) ack 1");
        p.wait_ms(200);
        p.skip_sent();
        assert_eq!(p.conn.info().rcv_wnd, 1000);
        p.read_until_left(1_700);
        p.expect_nothing();
        p.read_until_left(1_600);
        p.expect(". 1:1(0) ack 2001 win 2000");
        // Half of the buffer is promised, so the peer does not wait for an update.
        p.read_all();
        p.expect_nothing();
    });
}

/// A connection whose peer has a window of 2300 bytes, no whole number of segments.
fn odd_window(v: Variant) -> Peer {
    let setup = Setup {
        window: 2300,
        ..Setup::default()
    };
    let mut p = Peer::accepted(&setup, v);
    p.inject(". 1:1(0) ack 1");
    p
}

#[test]
fn established_rest_that_the_window_cuts_waits_for_room() {
    conversation(odd_window, |p| {
        p.write(3500);
        p.expect_data(1, 2001, 1000, 1, false);
        p.expect_nothing();
        p.inject(". 1:1(0) ack 1001 win 1600");
        p.expect_nothing();
        p.inject(". 1:1(0) ack 1001 win 2000");
        p.expect(". 2001:3001(1000) ack 1");
        p.expect_nothing();
    });
}

#[test]
fn established_rest_that_the_window_cuts_leaves_in_the_burst_of_full_segments() {
    let setup = |burst_segments_min| {
        move |v| {
            let mut setup = Setup {
                window: 2300,
                ..Setup::default()
            };
            setup.config.burst_segments_min = burst_segments_min;
            let mut p = Peer::accepted(&setup, v);
            p.inject(". 1:1(0) ack 1");
            p
        }
    };
    conversation(setup(4), |p| {
        p.write(3500);
        p.expect_data(1, 2301, 1000, 1, true);
        p.expect_nothing();
    });
    // The burst ends before the remaining small segment.
    conversation(setup(2), |p| {
        p.write(3500);
        p.expect_data(1, 2001, 1000, 1, true);
        p.expect_nothing();
    });
    // A small segment is in flight, so Nagle's algorithm holds the next one back.
    conversation(setup(4), |p| {
        p.write(10);
        p.expect("P. 1:11(10) ack 1");
        p.write(3500);
        p.expect_data(11, 2011, 1000, 1, true);
        p.expect_nothing();
    });
}

/// Sends ten segments, then takes three duplicate ACKs and an ACK of everything. Without SACK the
/// state stays until later data is acknowledged.
fn recovered(p: &mut Peer) {
    p.config.tail_loss_probe = false;
    p.write(10_000);
    p.skip_sent();
    for _ in 0..3 {
        p.inject(". 1:1(0) ack 1");
    }
    p.skip_sent();
    p.wait_ms(100);
    p.inject(". 1:1(0) ack 10001");
    p.skip_sent();
}

#[test]
fn established_timeout_behind_a_recovery_reduces_again() {
    conversation(established, |p| {
        recovered(p);
        assert_eq!(p.conn.info().ca_state, 3);
        assert_eq!((p.cwnd(), p.conn.info().snd_ssthresh), (5, 5));
        p.write(5_000);
        p.skip_sent();
        p.wait_ms(400);
        p.expect(". 10001:11001(1000) ack 1");
        assert_eq!(p.conn.info().ca_state, 4);
        assert_eq!((p.cwnd(), p.conn.info().snd_ssthresh), (1, 2));
    });
}

#[test]
fn established_timeout_leaves_what_is_younger_than_a_round_trip() {
    conversation(established_sack, |p| {
        p.config.tail_loss_probe = false;
        p.write(1_000);
        p.wait_ms(100);
        p.inject(". 1:1(0) ack 1001");
        p.skip_sent();
        let begin_ns = p.now_ns;
        for (at_ms, bytes) in [
            (0, 2_000),
            (150, 1_000),
            (199, 1_000),
            (200, 1_000),
            (201, 1_000),
        ] {
            p.wait_until(begin_ns + at_ms * MS);
            p.write(bytes);
        }
        p.skip_sent();
        p.wait_until(begin_ns + 299 * MS);
        assert_eq!(p.conn.info().lost, 0);
        p.wait_until(begin_ns + 300 * MS);
        // The round trip takes 100 ms, so segments sent 201 ms after the first may still arrive.
        assert_eq!(p.conn.info().lost, 5);
        p.expect(". 1001:2001(1000) ack 1");
    });
}
