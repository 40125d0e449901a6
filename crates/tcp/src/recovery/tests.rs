//! NewReno's book-keeping; what it does on the wire is in `tests/conversations/recovery.rs`.

use wire::SeqNumber;

use super::{InFlight, LossRecovery, Phase, Recovery, Verdict};

fn flight(una: u32, nxt: u32) -> InFlight {
    InFlight {
        una: SeqNumber(una),
        nxt: SeqNumber(nxt),
        mss: 1000,
    }
}

#[test]
fn pipe_shrinks_with_each_duplicate() {
    let mut recovery = Recovery::new(SeqNumber(0));
    let ten = flight(1, 10_001);
    assert_eq!(recovery.pipe(ten), 10_000);
    assert_eq!(recovery.on_duplicate(ten, 3), Verdict::Steady);
    assert_eq!(recovery.pipe(ten), 9000);
    assert_eq!(recovery.on_duplicate(ten, 3), Verdict::Steady);
    assert_eq!(recovery.on_duplicate(ten, 3), Verdict::Enter);
    // Three have left, one is lost.
    assert_eq!(recovery.pipe(ten), 6000);
    let repeat = recovery.next_repeat().expect("the first segment");
    assert_eq!(
        (repeat.seq, repeat.end, repeat.forced),
        (SeqNumber(1), SeqNumber(1001), true)
    );
    recovery.on_repeated(repeat.end);
    assert_eq!(recovery.pipe(ten), 7000);
    assert_eq!(recovery.next_repeat(), None);
}

#[test]
fn partial_ack_takes_the_segments_that_duplicates_had_counted() {
    let mut recovery = Recovery::new(SeqNumber(0));
    for _ in 0..5 {
        let _ = recovery.on_duplicate(flight(1, 10_001), 3);
    }
    recovery.on_repeated(SeqNumber(1001));
    // 1..4001 acknowledged: one repeated, three counted.
    assert_eq!(
        recovery.on_ack(flight(4001, 10_001), 4000),
        Verdict::Recovering
    );
    assert_eq!(recovery.dup_acks, 2);
    assert_eq!(
        recovery.next_repeat().map(|repeat| repeat.seq),
        Some(SeqNumber(4001))
    );
}

#[test]
fn everything_lost_is_sent_again_in_order() {
    let mut recovery = Recovery::new(SeqNumber(0));
    recovery.on_all_lost(flight(1, 5001));
    assert_eq!(recovery.pipe(flight(1, 5001)), 0);
    recovery.on_repeated(SeqNumber(1001));
    assert_eq!(
        recovery.on_ack(flight(3001, 5001), 3000),
        Verdict::SlowStart
    );
    // What was acknowledged meanwhile is skipped.
    assert_eq!(
        recovery.next_repeat().map(|repeat| repeat.seq),
        Some(SeqNumber(3001))
    );
    assert_eq!(
        recovery.on_ack(flight(5001, 5001), 2000),
        Verdict::SlowStart
    );
    assert_eq!(recovery.phase(), Phase::Open);
    assert_eq!(recovery.lost(), 0);
}

#[test]
fn duplicates_of_what_was_sent_before_the_timeout_do_not_count() {
    let mut recovery = Recovery::new(SeqNumber(0));
    recovery.on_all_lost(flight(1, 5001));
    let _ = recovery.on_ack(flight(5001, 5001), 5000);
    for _ in 0..5 {
        assert_eq!(
            recovery.on_duplicate(flight(5001, 9001), 3),
            Verdict::Steady
        );
    }
    let _ = recovery.on_ack(flight(6001, 9001), 1000);
    let _ = recovery.on_duplicate(flight(6001, 9001), 3);
    let _ = recovery.on_duplicate(flight(6001, 9001), 3);
    assert_eq!(recovery.on_duplicate(flight(6001, 9001), 3), Verdict::Enter);
}

#[test]
fn an_old_recovery_point_does_not_matter_after_gigabytes() {
    let mut recovery = Recovery::new(SeqNumber(0));
    recovery.on_all_lost(flight(1, 5001));
    let _ = recovery.on_ack(flight(5001, 5001), 5000);
    assert!(recovery.is_active());
    let _ = recovery.on_ack(flight(6001, 6001), 1000);
    assert!(!recovery.is_active());
    // Beyond half the sequence space, 5001 seems to lie ahead.
    let far = 0x9000_0000;
    for _ in 0..2 {
        let _ = recovery.on_duplicate(flight(far, far + 9000), 3);
    }
    assert_eq!(
        recovery.on_duplicate(flight(far, far + 9000), 3),
        Verdict::Enter
    );
}
