//! Keep-alive, and a port that has no room.

use tcp::{ConnectionError, Effects, Keepalive, State};

use crate::peer::{MS, Peer, Variant, conversation};
use crate::states::{established, fin_wait_2};

fn kept_alive(v: Variant) -> Peer {
    let mut p = established(v);
    let keepalive = Keepalive {
        idle_ns: 10_000 * MS,
        interval_ns: 1000 * MS,
        probes_max: 3,
    };
    p.call(|conn, cx, _| conn.set_keepalive(cx, Some(keepalive)));
    p
}

#[test]
fn established_is_silent_by_default() {
    conversation(established, |p| {
        assert_eq!(p.conn.deadline_ns(), u64::MAX);
        p.expect_silence_ms(100_000_000);
    });
}

/// The timer that ends FIN_WAIT_2 does not belong to keep-alive.
#[test]
fn fin_wait_2_keepalive_turned_off_leaves_the_end_of_the_wait() {
    conversation(fin_wait_2, |p| {
        p.close();
        let deadline_ns = p.conn.deadline_ns();
        assert_ne!(deadline_ns, u64::MAX);
        p.call(|conn, cx, _| conn.set_keepalive(cx, None));
        assert_eq!(p.conn.deadline_ns(), deadline_ns);
    });
}

#[test]
fn established_keepalive_answered() {
    conversation(kept_alive, |p| {
        p.expect_after_ms(10_000, ". 0:0(0) ack 1");
        p.wait_ms(30);
        p.inject(". 1:1(0) ack 1");
        p.expect_after_ms(10_000, ". 0:0(0) ack 1");
        p.expect_state(State::Established);
    });
}

#[test]
fn established_keepalive_unanswered() {
    conversation(kept_alive, |p| {
        p.expect_after_ms(10_000, ". 0:0(0) ack 1");
        p.expect_after_ms(1000, ". 0:0(0) ack 1");
        p.expect_after_ms(1000, ". 0:0(0) ack 1");
        p.expect_after_ms(1000, "R. 1:1(0) ack 1");
        assert_eq!(p.conn.error(), Some(ConnectionError::TimedOut));
        p.expect_effects(Effects::FAILED | Effects::CLOSED);
    });
}

#[test]
fn established_keepalive_waits_while_data_flows() {
    conversation(kept_alive, |p| {
        p.wait_ms(9000);
        p.inject("P. 1:2(1) ack 1");
        p.skip_sent();
        p.expect_silence_ms(9999);
        p.wait_ms(1);
        p.expect(". 0:0(0) ack 2");
    });
}

#[test]
fn established_keepalive_turned_off() {
    conversation(kept_alive, |p| {
        p.call(|conn, cx, _| conn.set_keepalive(cx, None));
        p.expect_silence_ms(100_000);
    });
}

#[test]
fn established_keepalive_of_the_peer_is_answered() {
    conversation(established, |p| {
        p.inject(". 0:0(0) ack 1");
        p.expect(". 1:1(0) ack 1");
        p.wait_ms(1000);
        // A keep-alive probe may carry one octet of garbage (RFC 9293 MAY-6).
        p.inject(". 0:1(1) ack 1");
        p.expect(". 1:1(0) ack 1");
    });
}

#[test]
fn established_keepalive_of_the_peer_is_answered_though_a_probe_of_our_own_is_due() {
    conversation(kept_alive, |p| {
        p.polls = false;
        p.inject(". 0:0(0) ack 1");
        p.wait_ms(10_000);
        p.poll();
        p.expect(". 1:1(0) ack 1");
        p.expect(". 0:0(0) ack 1");
    });
}

fn blocked(p: &mut Peer) {
    p.polls = false;
    p.write(100);
    p.call(|conn, cx, _| conn.on_port_blocked(cx));
}

#[test]
fn established_port_blocked_for_all() {
    conversation(established, |p| {
        blocked(p);
        p.wait_ms(7000);
        p.expect_state(State::Established);
        p.wait_ms(2000);
        assert_eq!(p.conn.error(), Some(ConnectionError::TimedOut));
    });
}

/// Segments of other connections leave, so this one waits for its turn and does not give up.
#[test]
fn established_port_blocked_while_others_leave() {
    conversation(established, |p| {
        blocked(p);
        for _ in 0..100 {
            p.counters.segments_out += 1;
            p.wait_ms(400);
        }
        p.expect_state(State::Established);
        p.polls = true;
        p.poll();
        p.expect("P. 1:101(100) ack 1");
    });
}
