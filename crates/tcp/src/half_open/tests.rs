//! SYN_RECEIVED of the passive path, as conversations.

use crate::buffers::Buffers;

use super::*;
use crate::ecn::EcnGrant;
use crate::test_stack::{
    IRS, ISS, TS_OFFSET, World, full_syn, open, random_segment, said, seg, with_ts,
};

/// A half-open connection whose SYN-ACK has left.
fn half_open(world: &mut World, syn: &Segment) -> HalfOpen {
    let request = SynRequest::of(syn);
    let mut entry = HalfOpen::new(&mut world.cx(), &request, &open());
    let _ = entry.syn_ack(&mut world.cx());
    entry
}

fn handshake(outcome: HalfOpenOutcome) -> Handshake {
    match outcome {
        HalfOpenOutcome::Complete(handshake) => handshake,
        other => panic!("not complete: {other:?}"),
    }
}

#[test]
fn syn_received_says_what_both_offer() {
    let mut world = World::new();
    let request = SynRequest::of(&full_syn(42));
    let mut entry = HalfOpen::new(&mut world.cx(), &request, &open());
    let out = entry.syn_ack(&mut world.cx());
    assert_eq!(said(&out), ("SA".into(), 0, 1));
    assert_eq!(out.window, 65_535);
    let expected = Options {
        mss: Some(1460),
        window_scale: Some(8),
        sack_permitted: true,
        timestamp: Some(Timestamp {
            value: world.ts(),
            echo: 42,
        }),
        ..Options::default()
    };
    assert_eq!(out.options, expected);
}

#[test]
fn syn_received_offers_nothing_that_was_not_asked_for() {
    let mut world = World::new();
    let request = SynRequest::of(&seg("S", 0, 0, 0));
    let mut entry = HalfOpen::new(&mut world.cx(), &request, &open());
    let out = entry.syn_ack(&mut world.cx());
    assert_eq!(
        out.options,
        Options {
            mss: Some(1460),
            ..Options::default()
        }
    );
}

#[test]
fn syn_received_offers_nothing_that_is_turned_off() {
    let mut world = World::new();
    world.config.timestamps = false;
    world.config.sack = false;
    world.config.window_scaling = false;
    let request = SynRequest::of(&full_syn(42));
    let mut entry = HalfOpen::new(&mut world.cx(), &request, &open());
    let out = entry.syn_ack(&mut world.cx());
    assert_eq!(
        out.options,
        Options {
            mss: Some(1460),
            ..Options::default()
        }
    );
}

#[test]
fn syn_received_final_ack_completes() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &full_syn(42));
    world.pass_ms(30);
    let ack = with_ts(seg("A", 1, 1, 0), 50, world.ts() - 30);
    let expected = Handshake {
        iss: ISS,
        irs: IRS,
        una: ISS + 1,
        snd_wnd: 1000 << 7,
        mss: 1460,
        peer_mss: 1400,
        window_scales: Some(WindowScales { ours: 8, peers: 7 }),
        sack: true,
        ecn: EcnGrant::None,
        timestamps: true,
        ts_recent: 50,
        ts_offset: TS_OFFSET,
        rtt_ns: Some(30 * crate::MILLISECOND_NS),
        syn_ack_lost: false,
        repetitions: SynAckRepetitions::default(),
    };
    assert_eq!(handshake(entry.on_segment(&mut world.cx(), &ack)), expected);
}

#[test]
fn syn_received_final_ack_without_options_completes() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &seg("S", 0, 0, 0));
    let done = handshake(entry.on_segment(&mut world.cx(), &seg("A", 1, 1, 0)));
    assert_eq!(
        (done.snd_wnd, done.peer_mss, done.window_scales),
        (1000, 536, None)
    );
    assert!(!done.sack && !done.timestamps);
}

#[test]
fn syn_received_data_or_fin_completes_and_again_if_kept() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &seg("S", 0, 0, 0));
    handshake(entry.on_segment(&mut world.cx(), &seg("PA", 1, 1, 500)));
    handshake(entry.on_segment(&mut world.cx(), &seg("FA", 1, 1, 0)));
    // The final ACK was lost, and the second segment arrived first.
    handshake(entry.on_segment(&mut world.cx(), &seg("PA", 501, 1, 500)));
}

#[test]
fn syn_received_wrong_ack_is_reset_and_the_entry_stays() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &seg("S", 0, 0, 0));
    for ack in [0, 2, 5000, u32::MAX] {
        let HalfOpenOutcome::Reset(rst) = entry.on_segment(&mut world.cx(), &seg("A", 1, ack, 0))
        else {
            panic!("ACK {ack} was not refused");
        };
        assert_eq!(said(&rst), ("R".into(), ack, 0));
    }
    assert_eq!(world.counters.half_open_bad_ack, 4);
    handshake(entry.on_segment(&mut world.cx(), &seg("A", 1, 1, 0)));
}

#[test]
fn syn_received_syn_again_is_answered_within_the_limit() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &full_syn(42));
    world.pass_ms(300);
    assert_eq!(
        entry.on_segment(&mut world.cx(), &full_syn(342)),
        HalfOpenOutcome::SendSynAck
    );
    let again = entry.syn_ack(&mut world.cx());
    assert_eq!(said(&again), ("SA".into(), 0, 1));
    assert_eq!(
        again.options.timestamp,
        Some(Timestamp {
            value: world.ts(),
            echo: 42
        })
    );
    world.pass_ms(100);
    assert_eq!(
        entry.on_segment(&mut world.cx(), &full_syn(442)),
        HalfOpenOutcome::Drop
    );
    assert_eq!(world.counters.syns_repeated, 2);
    assert_eq!(world.counters.syn_acks_retransmitted, 1);
}

#[test]
fn syn_received_syn_again_puts_the_timer_off() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &full_syn(42));
    let rto_ns = world.config.rto_initial_ns;
    assert_eq!(entry.deadline_ns(), world.now_ns + rto_ns);
    world.pass_ms(600);
    let outcome = entry.on_segment(&mut world.cx(), &full_syn(642));
    assert_eq!(outcome, HalfOpenOutcome::SendSynAck);
    assert_eq!(entry.deadline_ns(), world.now_ns + rto_ns);
    // A SYN that gets no answer does not change the timer.
    let deadline_ns = entry.deadline_ns();
    world.pass_ms(100);
    let outcome = entry.on_segment(&mut world.cx(), &full_syn(742));
    assert_eq!(outcome, HalfOpenOutcome::Drop);
    assert_eq!(entry.deadline_ns(), deadline_ns);
    world.now_ns = deadline_ns - 1;
    assert_eq!(entry.on_timer(&mut world.cx()), HalfOpenOutcome::Drop);
    world.now_ns = deadline_ns;
    let outcome = entry.on_timer(&mut world.cx());
    assert_eq!(outcome, HalfOpenOutcome::SendSynAck);
    assert_eq!(entry.deadline_ns(), world.now_ns + 2 * rto_ns);
}

#[test]
fn syn_received_old_syn_is_challenged() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &full_syn(42));
    let outcome = entry.on_segment(&mut world.cx(), &full_syn(41));
    let HalfOpenOutcome::ChallengeAck(ack) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(said(&ack), ("A".into(), 1, 1));
    assert_eq!(
        (ack.window, ack.options.timestamp.map(|t| t.echo)),
        (255, Some(42))
    );
    assert_eq!(world.counters.drop_paws, 1);
}

#[test]
fn syn_received_other_syn_in_window_returns_to_listen() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &seg("S", 0, 0, 0));
    let outcome = entry.on_segment(&mut world.cx(), &seg("S", 9, 0, 0));
    assert_eq!(outcome, HalfOpenOutcome::Gone(GoneReason::NewSyn));
}

#[test]
fn syn_received_other_syn_outside_the_window_is_challenged() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &seg("S", 0, 0, 0));
    let outcome = entry.on_segment(&mut world.cx(), &seg("S", 70_000, 0, 0));
    let HalfOpenOutcome::ChallengeAck(ack) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(said(&ack), ("A".into(), 1, 1));
    // No second answer leaves within half a second.
    assert_eq!(
        entry.on_segment(&mut world.cx(), &seg("S", 70_000, 0, 0)),
        HalfOpenOutcome::Drop
    );
    assert_eq!(world.counters.challenge_acks_limited, 1);
}

#[test]
fn syn_received_rst_counts_only_at_the_exact_number() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &seg("S", 0, 0, 0));
    assert_eq!(
        entry.on_segment(&mut world.cx(), &seg("R", 0, 0, 0)),
        HalfOpenOutcome::Drop
    );
    assert_eq!(
        entry.on_segment(&mut world.cx(), &seg("R", 70_000, 0, 0)),
        HalfOpenOutcome::Drop
    );
    assert_eq!(world.counters.drop_reset_outside_window, 2);
    let outcome = entry.on_segment(&mut world.cx(), &seg("R", 2, 0, 0));
    assert!(matches!(outcome, HalfOpenOutcome::ChallengeAck(_)));
    let outcome = entry.on_segment(&mut world.cx(), &seg("R", 1, 0, 0));
    assert_eq!(outcome, HalfOpenOutcome::Gone(GoneReason::Reset));
}

#[test]
fn syn_received_rst_is_never_too_old() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &full_syn(42));
    let rst = with_ts(seg("R", 1, 0, 0), 1, 0);
    assert_eq!(
        entry.on_segment(&mut world.cx(), &rst),
        HalfOpenOutcome::Gone(GoneReason::Reset)
    );
}

#[test]
fn syn_received_old_or_forged_timestamp_is_challenged() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &full_syn(42));
    let sent = world.ts();
    let old = with_ts(seg("A", 1, 1, 0), 41, sent);
    assert!(matches!(
        entry.on_segment(&mut world.cx(), &old),
        HalfOpenOutcome::ChallengeAck(_)
    ));
    world.pass_ms(600);
    for echo in [sent - 1, sent + 1] {
        let forged = with_ts(seg("A", 1, 1, 0), 43, echo);
        assert!(!matches!(
            entry.on_segment(&mut world.cx(), &forged),
            HalfOpenOutcome::Complete(_)
        ));
    }
    assert_eq!(world.counters.half_open_bad_echo, 2);
    handshake(entry.on_segment(&mut world.cx(), &with_ts(seg("A", 1, 1, 0), 43, sent)));
    // Some peers leave the option out, or echo 0.
    handshake(entry.on_segment(&mut world.cx(), &seg("A", 1, 1, 0)));
    handshake(entry.on_segment(&mut world.cx(), &with_ts(seg("A", 1, 1, 0), 43, 0)));
}

#[test]
fn syn_received_challenges_are_limited_but_for_text() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &full_syn(42));
    let echo = world.ts();
    let mut is_challenged = |flags, len| {
        let old = with_ts(seg(flags, 1, 1, len), 41, echo);
        let outcome = entry.on_segment(&mut world.cx(), &old);
        matches!(outcome, HalfOpenOutcome::ChallengeAck(_))
    };
    assert!(is_challenged("A", 0));
    assert!(!is_challenged("A", 0));
    // Text is answered each time, and so is a FIN.
    assert!(is_challenged("PA", 1));
    assert!(is_challenged("PA", 1));
    assert!(is_challenged("FA", 0));
    assert_eq!(world.counters.challenge_acks_limited, 1);
}

#[test]
fn syn_received_segment_outside_the_window_is_challenged() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &seg("S", 0, 0, 0));
    let outcome = entry.on_segment(&mut world.cx(), &seg("A", 66_000, 1, 10));
    assert!(matches!(outcome, HalfOpenOutcome::ChallengeAck(_)));
    // A SYN-ACK of a peer that also opened: its SYN lies before RCV.NXT.
    world.pass_ms(600);
    let outcome = entry.on_segment(&mut world.cx(), &seg("SA", 0, 1, 0));
    assert!(matches!(outcome, HalfOpenOutcome::ChallengeAck(_)));
}

#[test]
fn syn_received_segment_without_ack_is_dropped() {
    let mut world = World::new();
    let mut entry = half_open(&mut world, &seg("S", 0, 0, 0));
    assert_eq!(
        entry.on_segment(&mut world.cx(), &seg("F", 1, 0, 0)),
        HalfOpenOutcome::Drop
    );
    assert_eq!(world.counters.drop_no_ack, 1);
}

#[test]
fn syn_received_closed_window_still_completes() {
    let mut world = World::new();
    let request = SynRequest::of(&seg("S", 0, 0, 0));
    let closed = PassiveOpen {
        buffers: Buffers {
            recv_bytes: 0,
            ..open().buffers
        },
        ..open()
    };
    let mut entry = HalfOpen::new(&mut world.cx(), &request, &closed);
    assert_eq!(entry.syn_ack(&mut world.cx()).window, 0);
    handshake(entry.on_segment(&mut world.cx(), &seg("A", 1, 1, 0)));
    handshake(entry.on_segment(&mut world.cx(), &seg("PA", 1, 1, 10)));
}

#[test]
fn syn_received_timer_repeats_with_backoff_then_gives_up() {
    let mut world = World::new();
    let began_ns = world.now_ns;
    let mut entry = half_open(&mut world, &full_syn(42));
    assert_eq!(entry.on_timer(&mut world.cx()), HalfOpenOutcome::Drop);
    for seconds in [1, 3, 7, 15, 31] {
        world.now_ns = entry.deadline_ns();
        assert_eq!(world.now_ns - began_ns, seconds * crate::SECOND_NS);
        assert_eq!(entry.on_timer(&mut world.cx()), HalfOpenOutcome::SendSynAck);
        let _ = entry.syn_ack(&mut world.cx());
    }
    world.now_ns = entry.deadline_ns();
    assert_eq!(world.now_ns - began_ns, 63 * crate::SECOND_NS);
    assert_eq!(
        entry.on_timer(&mut world.cx()),
        HalfOpenOutcome::Gone(GoneReason::TimedOut)
    );
    assert_eq!(world.counters.syn_acks_retransmitted, 5);
}

/// Only a handshake whose ACK has come waits for data.
#[test]
fn syn_received_deferred_without_an_ack_repeats_and_gives_up_as_ever() {
    let mut world = World::new();
    let request = SynRequest::of(&seg("S", 0, 0, 0));
    let deferred = PassiveOpen {
        defer_accept: 8,
        ..open()
    };
    let mut entry = HalfOpen::new(&mut world.cx(), &request, &deferred);
    for _ in 0..world.config.syn_ack_retries_max {
        world.now_ns = entry.deadline_ns();
        assert_eq!(entry.on_timer(&mut world.cx()), HalfOpenOutcome::SendSynAck);
        let _ = entry.syn_ack(&mut world.cx());
    }
    world.now_ns = entry.deadline_ns();
    assert_eq!(
        entry.on_timer(&mut world.cx()),
        HalfOpenOutcome::Gone(GoneReason::TimedOut)
    );
}

#[test]
fn syn_received_round_trip_obeys_karn() {
    let mut world = World::new();
    let mut plain = half_open(&mut world, &seg("S", 0, 0, 0));
    let mut stamped = half_open(&mut world, &full_syn(42));
    world.pass_ms(1000);
    for entry in [&mut plain, &mut stamped] {
        assert_eq!(entry.on_timer(&mut world.cx()), HalfOpenOutcome::SendSynAck);
        let _ = entry.syn_ack(&mut world.cx());
    }
    let second = world.ts();
    world.pass_ms(20);
    let done = handshake(plain.on_segment(&mut world.cx(), &seg("A", 1, 1, 0)));
    assert_eq!((done.rtt_ns, done.syn_ack_lost), (None, false));
    let ack = with_ts(seg("A", 1, 1, 0), 43, second);
    let done = handshake(stamped.on_segment(&mut world.cx(), &ack));
    assert_eq!(done.rtt_ns, Some(20 * crate::MILLISECOND_NS));
    world.now_ns = plain.deadline_ns();
    assert_eq!(plain.on_timer(&mut world.cx()), HalfOpenOutcome::SendSynAck);
    let _ = plain.syn_ack(&mut world.cx());
    let done = handshake(plain.on_segment(&mut world.cx(), &seg("A", 1, 1, 0)));
    assert_eq!((done.rtt_ns, done.syn_ack_lost), (None, true));
}

#[test]
fn syn_received_survives_anything() {
    let mut state = 99;
    for _ in 0..2000 {
        let mut world = World::new();
        let mut entry = half_open(&mut world, &full_syn(1000));
        for _ in 0..20 {
            let segment = random_segment(&mut state);
            world.pass_ms(u64::from(segment.window % 700));
            if let HalfOpenOutcome::Complete(done) = entry.on_segment(&mut world.cx(), &segment) {
                assert!(segment.has(Flags::ACK) && segment.ack == ISS + 1);
                assert!(!segment.has(Flags::RST));
                assert!(!segment.has(Flags::SYN) || segment.seq == IRS);
                assert_eq!((done.irs, done.iss), (IRS, ISS));
            }
            let _ = entry.on_timer(&mut world.cx());
        }
    }
}

/// The SYN-ACK's ECN answer to a SYN in a packet of this codepoint, and whether the connection will
/// use ECN.
fn granted(
    ecn: crate::EcnUse,
    congestion: crate::CongestionAlgorithm,
    syn: &Segment,
) -> (bool, wire::Ecn, bool) {
    let mut world = World::new();
    world.config.ecn = ecn;
    let open = PassiveOpen {
        congestion,
        ..open()
    };
    let mut entry = HalfOpen::new(&mut world.cx(), &SynRequest::of(syn), &open);
    let out = entry.syn_ack(&mut world.cx());
    let complete = handshake(entry.on_segment(&mut world.cx(), &seg("A", 1, 1, 0)));
    let agreed = complete.ecn == EcnGrant::Classic;
    (out.flags.contains(Flags::ECE), out.ecn, agreed)
}

#[test]
fn syn_received_grants_ecn_to_who_asks() {
    use crate::CongestionAlgorithm::{Cubic, Dctcp};
    use crate::EcnUse;
    use wire::Ecn;
    let asks = seg("SEC", 0, 0, 0);
    let capable = Segment {
        ecn: Ecn::Ect0,
        ..asks.clone()
    };
    let plain = Ecn::NotEct;
    assert_eq!(
        granted(EcnUse::WhenAsked, Cubic, &asks),
        (true, plain, true)
    );
    assert_eq!(granted(EcnUse::Always, Cubic, &asks), (true, plain, true));
    assert_eq!(granted(EcnUse::Never, Cubic, &asks), (false, plain, false));
    let half = seg("SE", 0, 0, 0);
    assert_eq!(granted(EcnUse::Always, Cubic, &half), (false, plain, false));
    // An ECN-capable SYN comes from DCTCP, or is damaged.
    assert_eq!(
        granted(EcnUse::Always, Cubic, &capable),
        (false, plain, false)
    );
    assert_eq!(
        granted(EcnUse::Never, Dctcp, &capable),
        (true, Ecn::Ect0, true)
    );
}
