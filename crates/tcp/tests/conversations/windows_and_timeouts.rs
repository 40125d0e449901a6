//! Windows, timeouts and duplicates at their limits: extreme segments of a peer, and the time for
//! which the connection waits.

use tcp::{Effects, IcmpError, Keepalive, State};

use crate::peer::{MS, Peer, Setup, Variant, conversation};
use crate::states::{established, fin_wait_2, syn_received, syn_sent};

fn keep_alive(p: &mut Peer) {
    let keepalive = Keepalive {
        idle_ns: 10_000 * MS,
        interval_ns: 1000 * MS,
        probes_max: 3,
    };
    p.call(|conn, cx, _| conn.set_keepalive(cx, Some(keepalive)));
}

#[test]
fn syn_sent_keepalive_begins_with_the_connection() {
    conversation(syn_sent, |p| {
        keep_alive(p);
        p.inject("S. 0:0(0) ack 1 <mss 1000>");
        p.expect_effects(Effects::CONNECTED);
        p.expect(". 1:1(0) ack 1");
        p.expect_after_ms(10_000, ". 0:0(0) ack 1");
    });
}

#[test]
fn syn_received_keepalive_begins_with_the_connection() {
    conversation(syn_received, |p| {
        keep_alive(p);
        p.inject(". 1:1(0) ack 1");
        p.expect_effects(Effects::CONNECTED);
        p.expect_after_ms(10_000, ". 0:0(0) ack 1");
    });
}

/// A window that is too small to send into is probed. A still smaller one does not restart the
/// wait.
#[test]
fn established_silly_window_that_shrinks_leaves_the_probe_timer_alone() {
    conversation(established, |p| {
        p.inject(". 1:1(0) ack 1 win 0");
        p.inject(". 1:1(0) ack 1 win 200");
        p.write(1000);
        p.expect_nothing();
        let deadline_ns = p.conn.deadline_ns();
        p.wait_ms(100);
        p.inject("P. 1:11(10) ack 1 win 200");
        p.inject("P. 11:21(10) ack 1 win 100");
        p.skip_sent();
        assert_eq!(p.conn.info().snd_wnd, 100);
        assert_eq!(p.conn.deadline_ns(), deadline_ns);
    });
}

/// An old ICMP error does not explain a later timeout.
#[test]
fn established_progress_forgets_soft_errors() {
    conversation(established, |p| {
        p.config.retries_max = 3;
        p.write(100);
        p.expect("P. 1:101(100) ack 1");
        let seq = p.conn.una();
        p.call(|conn, cx, _| conn.on_icmp_error(cx, IcmpError::HostUnreachable, seq));
        p.inject(". 1:1(0) ack 101");
        p.write(100);
        p.wait_ms(1_000_000);
        assert_eq!(p.conn.error(), Some(tcp::ConnectionError::TimedOut));
    });
}

/// A receiver that invents duplicates does not get more data in flight than it could have received.
#[test]
fn established_invented_duplicates_open_no_floodgate() {
    conversation(established, |p| {
        p.write(59_000);
        p.expect_data(1, 10_001, 1000, 1, false);
        p.polls = false;
        for _ in 0..60 {
            p.inject(". 1:1(0) ack 1");
        }
        p.poll();
        let sent = p.skip_sent();
        assert!(sent <= 11, "{sent} segments at once");
    });
}

/// A receiver invents duplicates while the retransmissions of a timeout prevent fast retransmit.
#[test]
fn established_invented_duplicates_behind_a_guard() {
    conversation(established, |p| {
        p.write(10_000);
        p.wait_ms(400);
        p.skip_sent();
        p.inject(". 1:1(0) ack 10001");
        p.write(49_000);
        let first = p.skip_sent() as u32;
        p.polls = false;
        for _ in 0..60 {
            p.inject(". 1:1(0) ack 10001");
        }
        p.poll();
        let sent = p.skip_sent() as u32;
        assert!(sent <= first + 1, "{first} then {sent} segments at once");
    });
}

/// The retransmission of a lost segment carries the newest ACK, so its window counts although its
/// sequence number is old.
#[test]
fn established_repeated_text_with_a_new_ack_brings_its_window() {
    conversation(established, |p| {
        // Only a larger window, or a shut one, is believed of a segment without news.
        p.inject(". 1:1(0) ack 1 win 0");
        p.inject(". 1:1(0) ack 1 win 2000");
        p.write(10_000);
        p.expect_data(1, 2001, 1000, 1, false);
        // Its text 1:1001 is lost.
        p.inject(". 1001:1001(0) ack 1001 win 2000");
        p.expect(". 2001:3001(1000) ack 1");
        p.inject("P. 1:1001(1000) ack 3001 win 2000");
        p.expect_data(3001, 5001, 1000, 1001, true);
    });
}

/// A segment that the peer sent before, with an older ACK, does not set the window back.
#[test]
fn established_window_of_an_older_segment_is_still_ignored() {
    conversation(established, |p| {
        // Only a larger window, or a shut one, is believed of a segment without news.
        p.inject(". 1:1(0) ack 1 win 0");
        p.inject(". 1:1(0) ack 1 win 2000");
        p.write(10_000);
        p.expect_data(1, 2001, 1000, 1, false);
        p.inject(". 1001:1001(0) ack 1001 win 2000");
        p.expect(". 2001:3001(1000) ack 1");
        p.inject("P. 1:501(500) ack 3001 win 2000");
        p.expect_data(3001, 5001, 1000, 501, true);
        p.inject("P. 501:1001(500) ack 3001 win 100");
        assert_eq!(p.conn.info().snd_wnd, 2000);
    });
}

/// The application may set a user timeout that is longer than the default (RFC 9293 MUST-21).
#[test]
fn established_user_timeout_beyond_the_default() {
    conversation(established, |p| {
        p.config.retries_max = 3;
        p.conn.set_user_timeout(100_000 * MS);
        p.write(100);
        p.wait_ms(99_000);
        p.expect_state(State::Established);
        p.wait_ms(2000);
        p.expect_effects(Effects::FAILED | Effects::CLOSED);
    });
}

/// On the passive side RFC 6298 5.7 applies when the SYN-ACK was sent twice and nothing was
/// measured.
#[test]
fn accepted_without_a_round_trip_waits_three_seconds() {
    let unmeasured = |v: Variant| Peer::accepted_after(&Setup::default(), v, None);
    conversation(unmeasured, |p| {
        p.write(100);
        p.expect("P. 1:101(100) ack 1");
        p.expect_after_ms(3000, "P. 1:101(100) ack 1");
    });
}

/// An ACK of numbers from before the connection is a guess, however large the peer's window.
/// Blindly injected data must hit what was sent (RFC 5961 5, as in Linux since 6.7).
#[test]
fn established_ack_of_what_was_never_sent() {
    conversation(established, |p| {
        // 1 - 20000, relative to our initial sequence number.
        p.inject("P. 1:101(100) ack 4294947297");
        p.expect_effects(Effects::NONE);
        p.expect_received(0);
        p.expect(". 1:1(0) ack 1");
        p.expect_nothing();
    });
}

/// Text is taken although its ACK is as old as the connection, so that it covers only our SYN.
#[test]
fn fin_wait_2_text_with_the_oldest_ack() {
    conversation(fin_wait_2, |p| {
        p.inject("P. 1:101(100) ack 1");
        p.expect_effects(Effects::READABLE);
        p.expect_received(100);
    });
}

/// The same holds after data and a FIN, all of which were acknowledged.
#[test]
fn fin_wait_2_text_with_the_oldest_ack_after_data() {
    conversation(established, |p| {
        p.write(1500);
        p.shutdown();
        p.skip_sent();
        p.inject(". 1:1(0) ack 1502");
        p.expect_state(State::FinWait2);
        p.inject("P. 1:101(100) ack 1");
        p.expect_received(100);
    });
}

/// Data beyond a right edge that moved back is no reason to give up, whether the window is shut or
/// not (RFC 9293 SHLD-17).
#[test]
fn established_window_shrinks_below_the_segment_and_does_not_time_out() {
    conversation(established, |p| {
        p.config.retries_max = 3;
        p.write(5000);
        p.expect_data(1, 5001, 1000, 1, true);
        for _ in 0..10 {
            let next_ns = p.conn.deadline_ns();
            p.wait_until(next_ns);
            p.expect_state(State::Established);
            p.skip_sent();
            p.inject(". 1:1(0) ack 1 win 0");
            p.inject(". 1:1(0) ack 1 win 500");
        }
        p.expect_state(State::Established);
    });
}

/// An MSS of 0 counts as no option, as in LISTEN and in Linux.
#[test]
fn syn_sent_mss_of_zero_means_the_default() {
    conversation(syn_sent, |p| {
        p.inject("S. 0:0(0) ack 1 <mss 0>");
        assert_eq!(p.conn.send_mss(), 536);
    });
}

/// No application waits for the data of an orphan, so its peer cannot hold it for ever (as in
/// Linux).
#[test]
fn orphan_window_shut_below_flight_times_out() {
    conversation(established, |p| {
        p.write(5000);
        p.close();
        for _ in 0..40 {
            if p.is_removed() {
                return;
            }
            let next_ns = p.conn.deadline_ns();
            p.wait_until(next_ns);
            if p.skip_sent() > 0 && !p.is_removed() {
                p.inject(". 1:1(0) ack 1 win 0");
            }
        }
        panic!("it is still there");
    });
}
