//! FIN and text in every order: the end of the stream when text beyond the FIN is held, and the
//! report of a FIN that came twice.

use tcp::{Effects, State};

use crate::peer::{Peer, conversation};
use crate::states::{established, established_sack, fin_wait_1, fin_wait_2};

/// Asserts that the stream ended after `bytes`, that nothing is held, and that no ACK reports a
/// range.
fn ended(p: &mut Peer, bytes: usize) {
    p.expect_received(bytes);
    assert_eq!(p.ranges.in_use(), 0);
    p.expect_nothing_held();
}

#[test]
fn established_fin_with_text_beyond_it_held() {
    conversation(established_sack, |p| {
        p.inject(". 1001:2001(1000) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 1001:2001>");
        p.inject("F. 1:1001(1000) ack 1");
        p.expect_effects(Effects::READABLE | Effects::EOF);
        p.expect_state(State::CloseWait);
        p.expect_after_ms(40, ". 1:1(0) ack 1002 <>");
        assert_eq!(p.counters.bytes_drop_beyond_fin, 1000);
        ended(p, 1000);
    });
}

#[test]
fn established_fin_with_text_across_it_held() {
    conversation(established_sack, |p| {
        p.inject(". 501:2001(1500) ack 1");
        p.skip_sent();
        p.inject("F. 1:1001(1000) ack 1");
        p.expect_effects(Effects::READABLE | Effects::EOF);
        p.expect_state(State::CloseWait);
        assert_eq!(p.counters.bytes_drop_beyond_fin, 1000);
        ended(p, 1000);
    });
}

#[test]
fn established_fin_behind_repeated_text_with_text_beyond_it_held() {
    conversation(established, |p| {
        p.inject(". 1:501(500) ack 1");
        p.inject(". 1001:2001(1000) ack 1");
        p.skip_sent();
        p.inject("F. 1:1001(1000) ack 1");
        p.expect_state(State::CloseWait);
        ended(p, 1000);
    });
}

#[test]
fn established_bare_fin_with_text_beyond_it_held() {
    conversation(established_sack, |p| {
        p.inject(". 1001:2001(1000) ack 1");
        p.skip_sent();
        p.inject("F. 1:1(0) ack 1");
        p.expect_effects(Effects::EOF);
        p.expect_state(State::CloseWait);
        assert_eq!(p.counters.bytes_drop_beyond_fin, 1000);
        ended(p, 0);
    });
}

#[test]
fn established_fin_out_of_order_with_text_beyond_it_held() {
    // Text directly behind the FIN, across it, and beyond another gap.
    for held in [". 1001:2001(1000)", ". 701:2001(1300)", ". 1501:2001(500)"] {
        conversation(established_sack, |p| {
            p.inject(&format!("{held} ack 1"));
            p.inject("F. 501:1001(500) ack 1");
            p.skip_sent();
            p.expect_state(State::Established);
            p.inject(". 1:501(500) ack 1");
            p.expect_effects(Effects::READABLE | Effects::EOF);
            p.expect(". 1:1(0) ack 1002 <>");
            p.expect_state(State::CloseWait);
            ended(p, 1000);
        });
    }
}

#[test]
fn established_bare_fin_out_of_order_inside_text_that_is_held() {
    conversation(established_sack, |p| {
        p.inject(". 501:2001(1500) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 501:2001>");
        p.inject("F. 1001:1001(0) ack 1");
        // Text has taken the FIN's number, so the FIN is a duplicate.
        p.expect(". 1:1(0) ack 1 <sack 1001:1002 501:2001>");
        p.inject(". 1:501(500) ack 1");
        p.expect(". 1:1(0) ack 1002 <>");
        p.expect_state(State::CloseWait);
        ended(p, 1000);
    });
}

#[test]
fn established_text_beyond_a_fin_that_is_held() {
    conversation(established_sack, |p| {
        p.inject("F. 501:1001(500) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 501:1002>");
        p.inject(". 1001:2001(1000) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 501:1002>");
        assert_eq!(p.counters.bytes_drop_beyond_fin, 1000);
        p.inject("F. 2001:2001(0) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 501:1002>");
        p.inject(". 1:501(500) ack 1");
        p.expect(". 1:1(0) ack 1002 <>");
        ended(p, 1000);
    });
}

#[test]
fn established_text_in_order_past_a_fin_that_is_held() {
    conversation(established_sack, |p| {
        p.inject("F. 501:1001(500) ack 1");
        p.skip_sent();
        p.inject(". 1:1201(1200) ack 1");
        // The held FIN does not count, since text goes beyond it.
        p.expect(". 1:1(0) ack 1201 <sack 501:1002>");
        p.expect_state(State::Established);
        p.expect_received(1200);
    });
}

#[test]
fn established_nearer_of_two_fins_ends_the_stream() {
    conversation(established_sack, |p| {
        p.inject("F. 501:1501(1000) ack 1");
        p.inject("F. 501:1001(500) ack 1");
        p.skip_sent();
        p.inject(". 1:501(500) ack 1");
        p.expect_state(State::CloseWait);
        ended(p, 1000);
    });
}

#[test]
fn fin_wait_1_fin_with_text_beyond_it_held() {
    conversation(fin_wait_1, |p| {
        p.inject(". 1001:2001(1000) ack 1");
        p.skip_sent();
        p.inject("F. 1:1001(1000) ack 1");
        p.expect(". 2:2(0) ack 1002");
        p.expect_state(State::Closing);
        ended(p, 1000);
    });
}

#[test]
fn fin_wait_1_fin_with_ack_of_fin_and_text_beyond_it_held() {
    conversation(fin_wait_1, |p| {
        p.inject(". 1001:2001(1000) ack 1");
        p.skip_sent();
        p.inject("F. 1:1001(1000) ack 2");
        p.expect(". 2:2(0) ack 1002");
        p.expect_state(State::TimeWait);
        ended(p, 1000);
    });
}

#[test]
fn fin_wait_2_fin_with_text_beyond_it_held() {
    conversation(fin_wait_2, |p| {
        p.inject(". 1001:2001(1000) ack 2");
        p.skip_sent();
        p.inject("F. 1:1001(1000) ack 2");
        p.expect(". 2:2(0) ack 1002");
        p.expect_state(State::TimeWait);
        ended(p, 1000);
    });
}

#[test]
fn established_fin_out_of_order_again() {
    conversation(established_sack, |p| {
        p.inject("F. 501:1001(500) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 501:1002>");
        // The FIN is part of the duplicate, whether all of the segment or only its end comes again.
        p.inject("F. 501:1001(500) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 501:1002 501:1002>");
        p.inject("F. 801:1001(200) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 801:1002 501:1002>");
        // From the fourth SACK on, SACKs may be held back for others.
        p.inject("F. 1001:1001(0) ack 1");
        p.wait_ms(1);
        p.expect(". 1:1(0) ack 1 <sack 1001:1002 501:1002>");
        p.inject(". 501:1001(500) ack 1");
        p.wait_ms(1);
        p.expect(". 1:1(0) ack 1 <sack 501:1001 501:1002>");
        p.inject("F. 301:1001(700) ack 1");
        p.wait_ms(1);
        p.expect(". 1:1(0) ack 1 <sack 501:1002 301:1002>");
    });
}

#[test]
fn established_bare_fin_out_of_order_again() {
    conversation(established_sack, |p| {
        p.inject("F. 501:501(0) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 501:502>");
        p.inject("F. 501:501(0) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 501:502 501:502>");
        // The text before the FIN is new, the FIN is a duplicate.
        p.inject("F. 301:501(200) ack 1");
        p.expect(". 1:1(0) ack 1 <sack 501:502 301:502>");
    });
}

#[test]
fn close_wait_fin_again_is_reported_whole() {
    conversation(established_sack, |p| {
        p.inject("F. 1:1001(1000) ack 1");
        p.wait_ms(50);
        p.skip_sent();
        p.inject("F. 1:1001(1000) ack 1");
        p.expect(". 1:1(0) ack 1002 <sack 1:1002>");
        p.inject("F. 501:1001(500) ack 1");
        p.expect(". 1:1(0) ack 1002 <sack 501:1002>");
        p.inject("F. 1001:1001(0) ack 1");
        p.expect(". 1:1(0) ack 1002 <sack 1001:1002>");
        p.inject(". 1:1001(1000) ack 1");
        p.expect(". 1:1(0) ack 1002 <sack 1:1001>");
    });
}
