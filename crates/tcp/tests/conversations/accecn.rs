//! Accurate ECN (RFC 9768): marks that are counted, reported and believed. The handshakes are
//! tested by packet scripts.

use tcp::{EcnGrant, EcnMode, EcnUse};

use crate::peer::{Peer, Setup, Variant, conversation};

const FIRST: &str = "[ect0] W. 1:1(0) ack 1 <ECN e1b 1 ceb 0 e0b 1>";

fn setup() -> Setup {
    let mut setup = Setup {
        ecn: EcnGrant::ACCURATE,
        ..Setup::default()
    };
    setup.config.ecn = EcnUse::Accurate;
    setup
}

/// Accurate ECN is agreed on, and the peer sends options.
fn agreed(variant: Variant) -> Peer {
    let mut p = Peer::accepted(&setup(), variant);
    p.inject(FIRST);
    assert_eq!(p.conn.info().accurate_ecn.mode, EcnMode::Accurate);
    p
}

/// Accurate ECN is agreed on, and ACKs are delayed from the start.
fn patient(variant: Variant) -> Peer {
    let mut setup = setup();
    setup.config.quick_acks_max = 0;
    let mut p = Peer::accepted(&setup, variant);
    p.inject(FIRST);
    p
}

#[test]
fn established_marks_are_counted() {
    conversation(agreed, |p| {
        for (at, ace) in [6, 7, 0, 1, 2, 3, 4, 5, 6].into_iter().enumerate() {
            let seq = 1 + 1000 * at as u32;
            let end = seq + 1000;
            p.inject(&format!("[ce] .5 {seq}:{end}(1000) ack 1"));
            let ceb = 1000 * (at + 1);
            p.expect(&format!(
                "[ect0] .{ace} 1:1(0) ack {end} <ECN e1b 1 ceb {ceb} e0b 1>"
            ));
        }
        assert_eq!(p.conn.info().accurate_ecn.received_ce, 9);
        assert_eq!(p.conn.info().accurate_ecn.received_bytes, [0, 0, 9000]);
    });
}

#[test]
fn established_change_is_acknowledged_at_once() {
    conversation(patient, |p| {
        p.inject("[ect0] .5 1:1001(1000) ack 1");
        // The codepoint changed from the SYN's to that of the third ACK.
        p.expect("[ect0] .5 1:1(0) ack 1001 <ECN e1b 1 ceb 0 e0b 1001>");
        p.inject("[ect0] .5 1001:2001(1000) ack 1");
        p.expect_nothing();
        p.inject("[ce] .5 2001:2101(100) ack 1");
        p.expect("[ect0] .6 1:1(0) ack 2101 <ECN e1b 1 ceb 100 e0b 2001>");
        p.inject("[ect0] .5 2101:2201(100) ack 1");
        p.expect("[ect0] .6 1:1(0) ack 2201 <ECN e1b 1 ceb 100 e0b 2101>");
        p.inject("[ect0] .5 2201:2301(100) ack 1");
        p.expect_nothing();
    });
}

#[test]
fn established_six_untold_marks_are_acknowledged_at_once() {
    conversation(patient, |p| {
        p.inject("[ce] .5 1:11(10) ack 1");
        p.expect("[ect0] .6 1:1(0) ack 11 <ECN e1b 1 ceb 10 e0b 1>");
        for seq in [11, 21, 31, 41, 51] {
            p.inject(&format!("[ce] .5 {seq}:{}(10) ack 1", seq + 10));
            p.expect_nothing();
        }
        p.inject("[ce] .5 61:71(10) ack 1");
        p.expect("[ect0] .4 1:1(0) ack 71 <ECN e1b 1 ceb 70 e0b 1>");
    });
}

/// The next option is due after a third of the round trip of 100 ms.
#[test]
fn established_option_without_news_comes_three_times_a_round_trip() {
    conversation(patient, |p| {
        // Options are sent on news, not with every segment.
        p.config.accecn_option = 1;
        p.call(|conn, cx, _| conn.set_nodelay(cx, true));
        // The first options report what the handshake has changed.
        for at in [1, 501, 1001] {
            p.write(500);
            p.expect(&format!("[ect0] P.5 {at}:{}(500) ack 1", at + 500));
        }
        p.wait_ms(33);
        p.write(500);
        p.expect("[ect0] P.5 1501:2001(500) ack 1 <>");
        p.wait_ms(1);
        p.write(500);
        p.expect("[ect0] P.5 2001:2501(500) ack 1 <ECN e1b 1 ceb 0 e0b 1>");
    });
}

#[test]
fn established_zeroed_option_is_not_believed() {
    conversation(
        |variant| Peer::accepted(&setup(), variant),
        |p| {
            p.inject("[ect0] W. 1:1(0) ack 1 <ECN e1b 0 ceb 0 e0b 0>");
            let info = p.conn.info().accurate_ecn;
            assert_eq!((info.option_seen, info.fail_mode), (3, 8));
            p.write(500);
            p.expect("[ect0] P.5 1:501(500) ack 1 <ECN e1b 1 ceb 0 e0b 1>");
            p.inject("[ect0] .6 1:1(0) ack 501 <ECN e1b 0 ceb 500 e0b 0>");
            let info = p.conn.info();
            assert_eq!(info.delivered_ce, 1);
            assert_eq!(info.accurate_ecn.delivered_bytes, [0; 3]);
        },
    );
}

/// Only the first option with counters shows whether its path zeroes options.
#[test]
fn established_option_zeroed_after_a_good_one_is_no_sign_of_the_path() {
    conversation(agreed, |p| {
        let before = p.conn.info().accurate_ecn;
        p.write(500);
        p.expect("[ect0] P.5 1:501(500) ack 1");
        p.inject("[ect0] .5 1:1(0) ack 501 <ECN e1b 0 ceb 0 e0b 0>");
        let after = p.conn.info().accurate_ecn;
        let seen = |info: tcp::AccurateEcnInfo| (info.option_seen, info.fail_mode);
        assert_eq!(seen(after), seen(before));
    });
}

#[test]
fn established_option_goes_back_a_little() {
    conversation(agreed, |p| {
        p.write(1000);
        p.expect("[ect0] .5 1:989(988) ack 1");
        p.inject("[ect0] .5 1:1(0) ack 989 <ECN e1b 1 ceb 0 e0b 989>");
        assert_eq!(p.conn.info().accurate_ecn.delivered_bytes, [0, 988, 0]);
        p.expect("[ect0] P.5 989:1001(12) ack 1");
        p.inject("[ect0] .5 1:1(0) ack 1001 <ECN e1b 1 ceb 0 e0b 501>");
        assert_eq!(p.conn.info().accurate_ecn.delivered_bytes, [0, 500, 0]);
        assert_eq!(p.conn.info().delivered_ce, 0);
    });
}

#[test]
fn established_repetition_is_capable_too() {
    conversation(agreed, |p| {
        p.write(500);
        p.expect("[ect0] P.5 1:501(500) ack 1");
        p.wait_ms(300);
        p.expect("[ect0] P.5 1:501(500) ack 1");
    });
}

#[test]
fn established_ece_alone_is_part_of_a_number() {
    conversation(agreed, |p| {
        p.write(500);
        p.expect("[ect0] P.5 1:501(500) ack 1");
        // ACE is 5: ECE is set, although nothing was marked.
        p.inject("[ect0] .5 1:1(0) ack 501 <ECN e1b 1 ceb 0 e0b 501>");
        let info = p.conn.info();
        assert_eq!((info.delivered_ce, info.ca_state), (0, 0));
    });
}

/// The third ACK reports that our SYN-ACK arrived marked (RFC 9768 3.2.2.1, table 4).
#[test]
fn established_syn_ack_that_arrived_marked_counts_as_one() {
    conversation(
        |variant| {
            let mut setup = setup();
            // Without the fallback, a report of an impossible change to our SYN-ACK is believed
            // too.
            setup.config.ecn_fallback = false;
            Peer::accepted(&setup, variant)
        },
        |p| {
            p.inject("[ect0] .6 1:1(0) ack 1");
            assert_eq!(p.conn.info().delivered_ce, 1);
        },
    );
}

/// Text is no third ACK, so its ACE field counts marks like any later one.
#[test]
fn established_text_in_place_of_the_third_ack_tells_nothing_of_the_syn_ack() {
    conversation(
        |variant| {
            let mut setup = setup();
            setup.config.ecn_fallback = false;
            Peer::accepted(&setup, variant)
        },
        |p| {
            p.inject("[ect0] .6 1:101(100) ack 1");
            assert_eq!(p.conn.info().delivered_ce, 0);
        },
    );
}

/// The answer 0b101 is reserved. A client that requested accurate ECN takes it as a grant (RFC 9768
/// table 2).
#[test]
fn syn_sent_reserved_answer_grants_accurate_ecn() {
    conversation(
        |variant| Peer::connecting(&setup(), variant),
        |p| {
            p.inject("S.5 0:0(0) ack 1 <mss 1000>");
            assert_eq!(p.conn.info().accurate_ecn.mode, EcnMode::Accurate);
        },
    );
}
