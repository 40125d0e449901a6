//! ECN (RFC 3168): requests, grants, marked segments, echoes and their answers; DCTCP's receiver
//! (RFC 8257).

use tcp::{Config, CongestionAlgorithm, EcnGrant, EcnUse, State};

use crate::peer::{MS, Peer, Setup, Variant, conversation};

fn setup(ecn: EcnUse) -> Setup {
    let mut setup = Setup {
        ecn: EcnGrant::Classic,
        ..Setup::default()
    };
    setup.config.ecn = ecn;
    setup
}

/// Our SYN has requested ECN.
fn asking(variant: Variant) -> Peer {
    let mut p = Peer::connecting(&setup(EcnUse::Always), variant);
    p.expect("[noecn] SEW 0:0(0) <mss 1460>");
    p
}

/// Both sides agreed on ECN.
fn agreed(variant: Variant) -> Peer {
    let mut p = Peer::accepted(&setup(EcnUse::WhenAsked), variant);
    p.inject(". 1:1(0) ack 1");
    assert!(p.conn.info().ecn);
    p
}

/// Both sides agreed on ECN, and ACKs are delayed from the start.
fn patient(variant: Variant) -> Peer {
    let mut setup = setup(EcnUse::WhenAsked);
    setup.config.quick_acks_max = 0;
    let mut p = Peer::accepted(&setup, variant);
    p.inject(". 1:1(0) ack 1");
    p
}

fn dctcp(variant: Variant) -> Peer {
    let mut setup = setup(EcnUse::WhenAsked);
    setup.config = Config {
        quick_acks_max: 0,
        congestion: CongestionAlgorithm::Dctcp,
        ..setup.config
    };
    let mut p = Peer::accepted(&setup, variant);
    p.inject(". 1:1(0) ack 1");
    p
}

#[test]
fn syn_sent_grant() {
    conversation(asking, |p| {
        p.inject("SE. 0:0(0) ack 1 <mss 1000>");
        p.expect("[noecn] . 1:1(0) ack 1");
        p.write(1000);
        p.expect("[ect0] P. 1:1001(1000) ack 1");
        assert!(p.conn.info().ecn);
    });
}

#[test]
fn syn_sent_no_grant() {
    for answer in ["S. 0:0(0) ack 1 <mss 1000>", "SEW. 0:0(0) ack 1 <mss 1000>"] {
        conversation(asking, |p| {
            p.inject(answer);
            p.expect("[noecn] . 1:1(0) ack 1");
            p.write(1000);
            p.expect("[noecn] P. 1:1001(1000) ack 1");
            assert!(!p.conn.info().ecn);
        });
    }
}

#[test]
fn syn_sent_timeout_asks_no_more() {
    conversation(asking, |p| {
        p.expect_after_ms(1000, "[noecn] S 0:0(0) <mss 1460>");
        // A grant for the first SYN may still arrive.
        p.inject("SE. 0:0(0) ack 1 <mss 1000>");
        p.expect(". 1:1(0) ack 1");
        assert!(p.conn.info().ecn);
    });
}

#[test]
fn syn_sent_unasked_grant() {
    conversation(crate::states::syn_sent, |p| {
        p.inject("SE. 0:0(0) ack 1 <mss 1000>");
        p.expect(". 1:1(0) ack 1");
        assert!(!p.conn.info().ecn);
    });
}

#[test]
fn syn_sent_crossing_syns() {
    for (syn, answer, on) in [
        ("SEW 0:0(0) <mss 1000>", "SE. 0:0(0) ack 1 <mss 1460>", true),
        ("S 0:0(0) <mss 1000>", "S. 0:0(0) ack 1 <mss 1460>", false),
    ] {
        conversation(asking, |p| {
            p.inject(syn);
            p.expect(answer);
            p.expect_state(State::SynReceived);
            assert_eq!(p.conn.info().ecn, on);
        });
    }
}

#[test]
fn syn_sent_dctcp_asks_with_a_capable_syn() {
    let mut setup = setup(EcnUse::Never);
    setup.config.congestion = CongestionAlgorithm::Dctcp;
    conversation(
        |variant| Peer::connecting(&setup, variant),
        |p| {
            p.expect("[ect0] SEW 0:0(0) <mss 1460>");
            p.inject("SE. 0:0(0) ack 1 <mss 1000>");
            p.expect("[ect0] . 1:1(0) ack 1");
        },
    );
}

#[test]
fn established_acks_and_repetitions_are_not_capable() {
    conversation(agreed, |p| {
        p.write(1000);
        p.expect("[ect0] P. 1:1001(1000) ack 1");
        p.inject("[ect0] P. 1:101(100) ack 1");
        p.expect("[noecn] . 1001:1001(0) ack 101");
        p.wait_ms(3000);
        let sent = p.take_sent();
        assert!(!sent.is_empty());
        assert!(sent.iter().all(|line| line.starts_with("P.")), "{sent:?}");
    });
}

#[test]
fn established_mark_is_echoed_until_cwr() {
    conversation(patient, |p| {
        p.inject("[ect0] . 1:1001(1000) ack 1");
        p.expect_nothing();
        p.inject("[ce] . 1001:2001(1000) ack 1");
        // Two ACKs leave at once after a mark (Linux).
        p.expect("E. 1:1(0) ack 2001");
        p.inject("[ect0] . 2001:3001(1000) ack 1");
        p.expect("E. 1:1(0) ack 3001");
        p.inject("[ect0] . 3001:4001(1000) ack 1");
        p.expect_nothing();
        p.write(500);
        p.expect("[ect0] PE. 1:501(500) ack 4001");
        // CWR ends the echo, and is acknowledged at once.
        p.inject("[ect0] W. 4001:5001(1000) ack 501");
        p.expect(". 501:501(0) ack 5001");
        assert!(p.conn.info().ecn_seen);
        assert_eq!(p.counters.ce_marks_in, 1);
    });
}

#[test]
fn established_mark_on_the_segment_with_cwr_is_echoed_anew() {
    conversation(patient, |p| {
        p.inject("[ce] . 1:1001(1000) ack 1");
        p.inject("[ce] W. 1001:2001(1000) ack 1");
        assert_eq!(
            p.take_sent().last().map(String::as_str),
            Some(".E 1:1(0) ack 2001")
        );
    });
}

#[test]
fn established_mark_out_of_order_is_echoed() {
    conversation(patient, |p| {
        p.inject("[ce] . 1001:2001(1000) ack 1");
        p.expect("E. 1:1(0) ack 1");
    });
}

#[test]
fn established_without_ecn_nothing_is_marked_or_echoed() {
    conversation(crate::states::established, |p| {
        p.inject("[ce] PEW. 1:1001(1000) ack 1");
        p.expect(". 1:1(0) ack 1001");
        p.write(1000);
        p.expect("[noecn] P. 1:1001(1000) ack 1001");
        p.inject("E. 1001:1001(0) ack 1001");
        assert_eq!(p.cwnd(), 10);
        assert!(!p.conn.info().ecn_seen);
    });
}

#[test]
fn established_dctcp_change_of_mark_acknowledges_what_came_before() {
    conversation(dctcp, |p| {
        p.inject("[ect0] . 1:1001(1000) ack 1");
        p.expect_nothing();
        p.inject("[ce] . 1001:2001(1000) ack 1");
        p.expect("[ect0] . 1:1(0) ack 1001");
        p.expect("[ect0] E. 1:1(0) ack 2001");
        p.inject("[ce] . 2001:3001(1000) ack 1");
        p.expect_nothing();
        p.inject("[ect0] . 3001:4001(1000) ack 1");
        p.expect("E. 1:1(0) ack 3001");
        p.expect(". 1:1(0) ack 4001");
    });
}

#[test]
fn established_dctcp_changes_within_one_turn_are_told_apart() {
    conversation(dctcp, |p| {
        p.polls = false;
        p.inject("[ect0] . 1:1001(1000) ack 1");
        p.inject("[ce] . 1001:2001(1000) ack 1");
        p.inject("[ce] . 2001:3001(1000) ack 1");
        p.inject("[ect0] . 3001:4001(1000) ack 1");
        p.poll();
        p.expect(". 1:1(0) ack 1001");
        p.expect("E. 1:1(0) ack 3001");
        p.expect(". 1:1(0) ack 4001");
    });
}

#[test]
fn established_dctcp_more_changes_within_one_turn_than_can_be_told_are_counted() {
    conversation(dctcp, |p| {
        p.polls = false;
        for i in 0..6 {
            let mark = ["[ect0]", "[ce]"][i % 2];
            let (seq, end) = (1 + 1000 * i, 1001 + 1000 * i);
            p.inject(&format!("{mark} . {seq}:{end}(1000) ack 1"));
        }
        assert_eq!(p.counters.mark_changes_merged, 2);
        p.poll();
        p.expect(". 1:1(0) ack 1001");
        p.expect("E. 1:1(0) ack 2001");
        p.expect(". 1:1(0) ack 3001");
        p.expect("E. 1:1(0) ack 6001");
    });
}

/// A connection with a window of ten segments in flight, and more to send.
fn sending(variant: Variant) -> Peer {
    let mut p = agreed(variant);
    p.write(30_000);
    assert_eq!(p.skip_sent(), 10);
    p
}

#[test]
fn established_echo_reduces_the_window_once_a_round_trip() {
    conversation(sending, |p| {
        p.inject("E. 1:1(0) ack 1001");
        let info = p.conn.info();
        assert_eq!((info.ca_state, info.snd_ssthresh), (2, 5));
        // Proportional rate reduction: the window falls with the amount delivered. The first new
        // data carries CWR.
        p.inject("E. 1:1(0) ack 2001");
        let sent = p.take_sent();
        assert_eq!(sent, ["[ect0] .W 10001:11001(1000) ack 1"]);
        for ack in 3..=10 {
            p.inject(&format!("E. 1:1(0) ack {ack}001"));
        }
        assert_eq!(p.conn.info().snd_ssthresh, 5);
        assert_eq!(p.conn.info().ca_state, 2);
        assert!(p.take_sent().iter().all(|line| !line.contains('W')));
        // The ACK covers data sent after the reduction, so the next mark counts again.
        p.inject(". 1:1(0) ack 11001");
        assert_eq!(p.conn.info().ca_state, 0);
        assert_eq!(p.cwnd(), 5);
        p.inject("E. 1:1(0) ack 12001");
        assert_eq!(p.conn.info().ca_state, 2);
        assert_eq!(p.conn.info().snd_ssthresh, 2);
        assert_eq!(p.counters.segments_retransmitted, 0);
    });
}

#[test]
fn established_echo_on_a_duplicate_counts() {
    conversation(sending, |p| {
        p.inject("E. 1:1(0) ack 1");
        assert_eq!(p.conn.info().ca_state, 2);
        assert_eq!(p.conn.info().snd_ssthresh, 5);
    });
}

#[test]
fn established_fast_retransmit_says_cwr_on_new_data_only() {
    conversation(sending, |p| {
        p.inject(". 1:1(0) ack 1");
        p.inject(". 1:1(0) ack 1");
        p.skip_sent();
        p.inject(". 1:1(0) ack 1");
        p.expect("[noecn] . 1:1001(1000) ack 1");
        p.inject(". 1:1(0) ack 12001");
        let sent = p.take_sent();
        assert!(sent[0].starts_with("[ect0] .W 12001:"), "{sent:?}");
        assert!(sent[1..].iter().all(|line| !line.contains('W')), "{sent:?}");
    });
}

#[test]
fn established_timeout_says_cwr() {
    conversation(sending, |p| {
        p.wait_ms(3000);
        let sent = p.take_sent();
        assert!(sent.iter().all(|line| !line.contains('W')), "{sent:?}");
        p.inject(". 1:1(0) ack 10001");
        let sent = p.take_sent();
        assert!(sent[0].starts_with("[ect0] .W 10001:"), "{sent:?}");
    });
}

#[test]
fn established_dctcp_cuts_by_the_share_of_marks() {
    conversation(dctcp, |p| {
        // Alpha begins at one, and rounds without marks lower it.
        let mut end = 1;
        for _ in 0..200 {
            p.write(2000);
            p.skip_sent();
            end += 2000;
            p.wait_ms(1);
            p.inject(&format!(". 1:1(0) ack {end}"));
        }
        let cwnd = p.cwnd();
        p.write(2000);
        p.skip_sent();
        p.inject(&format!("E. 1:1(0) ack {}", end + 2000));
        let info = p.conn.info();
        // One marked round: alpha = 1/16, so the window is cut by a thirty-second.
        assert_eq!(info.snd_ssthresh, (cwnd - cwnd / 32).min(cwnd));
    });
}

/// Sends a hundred bytes from `seq` on, whose ACK comes after the timeout. The peer's timestamp
/// says whether it received the first copy or the last one.
fn late(p: &mut Peer, seq: u32, is_first_copy: bool) {
    let sent_ms = p.now_ns / MS;
    p.write(100);
    p.skip_sent();
    while p.conn.info().ca_state != 4 {
        p.wait_ms(100);
    }
    p.skip_sent();
    let copy_ms = if is_first_copy {
        sent_ms
    } else {
        p.now_ns / MS
    };
    p.inject(&format!(
        ". 1:1(0) ack {} <TS val 200 ecr {copy_ms}>",
        seq + 100
    ));
    assert_eq!(p.conn.info().ca_state, 0);
}

#[test]
fn established_undone_timeout_that_lowered_no_threshold_is_still_told() {
    let setup = |v| {
        let mut setup = setup(EcnUse::WhenAsked);
        setup.timestamps = true;
        setup.sack = true;
        setup.config.tail_loss_probe = false;
        setup.config.frto = false;
        let mut p = Peer::accepted(&setup, v);
        p.inject(". 1:1(0) ack 1 <TS val 100 ecr 1000>");
        p
    };
    conversation(setup, |p| {
        for n in 0..3 {
            late(p, 1 + 100 * n, false);
        }
        // The window is as small as possible, so this timeout lowers nothing.
        assert_eq!(p.conn.info().snd_ssthresh, 2);
        late(p, 301, true);
        assert_eq!(p.counters.undone_loss, 1);
        p.write(100);
        p.expect("[ect0] PW. 401:501(100) ack 1");
    });
}
