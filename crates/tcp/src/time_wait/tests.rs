//! TIME_WAIT, as conversations. The peer's FIN was at 100 (RCV.NXT is 101), ours at 200 (SND.NXT is
//! 201).

use super::*;
use crate::test_stack::{IRS, ISS, TS_OFFSET, World, random_segment, said, seg, with_ts};
use crate::{MILLISECOND_NS, SECOND_NS};

fn entry(world: &World, ts_recent: Option<u32>) -> TimeWait {
    TimeWait::new(&TimeWaitEntry {
        fin_wait_2: false,
        ecn_capable: false,
        snd_nxt: ISS + 201,
        rcv_nxt: IRS + 101,
        rcv_wnd: 50_000,
        window: 195,
        timestamps: ts_recent.is_some(),
        ts_recent: ts_recent.unwrap_or(0),
        ts_recent_at: coarse(world.now_ns),
        ts_offset: TS_OFFSET,
        deadline_ns: world.now_ns + world.config.time_wait_ns,
    })
}

fn ack(outcome: TimeWaitOutcome) -> SegmentOut {
    match outcome {
        TimeWaitOutcome::Ack(ack) => ack,
        other => panic!("no ACK: {other:?}"),
    }
}

fn is_reuse(outcome: &TimeWaitOutcome) -> bool {
    matches!(outcome, TimeWaitOutcome::Reuse { .. })
}

#[test]
fn time_wait_fin_again_is_acked_and_restarts_the_wait() {
    let mut world = World::new();
    let mut entry = entry(&world, Some(70));
    world.pass_ms(10_000);
    let fin = with_ts(seg("FA", 100, 201, 0), 75, 0);
    let out = ack(entry.on_segment(&mut world.cx(), &fin));
    assert_eq!(said(&out), ("A".into(), 201, 101));
    assert_eq!(out.window, 195);
    assert_eq!(
        out.options.timestamp,
        Some(Timestamp {
            value: world.ts(),
            echo: 70
        })
    );
    assert_eq!(entry.deadline_ns(), world.now_ns + 60 * SECOND_NS);
    // Every repetition is answered: a FIN cannot be the answer to our ACK.
    ack(entry.on_segment(&mut world.cx(), &fin));
    // The FIN together with the data before it is acknowledged too.
    ack(entry.on_segment(&mut world.cx(), &seg("FPA", 50, 201, 50)));
    assert_eq!(world.counters.time_wait_fins_in, 3);
}

#[test]
fn time_wait_bare_ack_is_dropped_and_restarts() {
    let mut world = World::new();
    let mut entry = entry(&world, None);
    let deadline_ns = entry.deadline_ns();
    world.pass_ms(10);
    assert_eq!(
        entry.on_segment(&mut world.cx(), &seg("A", 101, 201, 0)),
        TimeWaitOutcome::Drop
    );
    assert_eq!(entry.deadline_ns(), deadline_ns + 10 * MILLISECOND_NS);
}

#[test]
fn time_wait_misplaced_ack_is_answered_within_the_limit() {
    let mut world = World::new();
    let mut entry = entry(&world, None);
    ack(entry.on_segment(&mut world.cx(), &seg("A", 90, 201, 0)));
    assert_eq!(
        entry.on_segment(&mut world.cx(), &seg("A", 90, 201, 0)),
        TimeWaitOutcome::Drop
    );
    world.pass_ms(500);
    ack(entry.on_segment(&mut world.cx(), &seg("A", 90, 201, 0)));
}

#[test]
fn time_wait_data_is_acked_and_restarts() {
    let mut world = World::new();
    let mut entry = entry(&world, None);
    let deadline_ns = entry.deadline_ns();
    world.pass_ms(10);
    ack(entry.on_segment(&mut world.cx(), &seg("PA", 50, 201, 50)));
    ack(entry.on_segment(&mut world.cx(), &seg("PA", 101, 201, 50)));
    assert_eq!(entry.deadline_ns(), deadline_ns + 10 * MILLISECOND_NS);
}

#[test]
fn time_wait_segment_without_ack_is_dropped() {
    let mut world = World::new();
    let mut entry = entry(&world, None);
    assert_eq!(
        entry.on_segment(&mut world.cx(), &seg("F", 100, 0, 0)),
        TimeWaitOutcome::Drop
    );
}

#[test]
fn time_wait_rst_counts_only_at_the_exact_number() {
    let mut world = World::new();
    let mut entry = entry(&world, Some(70));
    assert_eq!(
        entry.on_segment(&mut world.cx(), &seg("R", 100, 0, 0)),
        TimeWaitOutcome::Drop
    );
    assert_eq!(
        entry.on_segment(&mut world.cx(), &seg("R", 60_000, 0, 0)),
        TimeWaitOutcome::Drop
    );
    assert_eq!(
        entry.on_segment(&mut world.cx(), &seg("R", 102, 0, 0)),
        TimeWaitOutcome::Drop
    );
    // The RST's timestamp does not matter.
    let rst = with_ts(seg("RA", 101, 201, 0), 1, 0);
    assert_eq!(
        entry.on_segment(&mut world.cx(), &rst),
        TimeWaitOutcome::Gone
    );
}

#[test]
fn time_wait_old_segment_is_answered_and_restarts() {
    let mut world = World::new();
    let mut entry = entry(&world, Some(70));
    let deadline_ns = entry.deadline_ns();
    world.pass_ms(10);
    let old = with_ts(seg("FA", 100, 201, 0), 69, 0);
    assert_eq!(
        ack(entry.on_segment(&mut world.cx(), &old))
            .options
            .timestamp
            .unwrap()
            .echo,
        70
    );
    assert_eq!(entry.deadline_ns(), deadline_ns + 10 * MILLISECOND_NS);
    assert_eq!(world.counters.drop_paws, 1);
}

#[test]
fn time_wait_higher_syn_takes_over() {
    let mut world = World::new();
    let mut entry = entry(&world, None);
    let syn = seg("S", 5000, 0, 0);
    let outcome = entry.on_segment(&mut world.cx(), &syn);
    let expected = TimeWaitOutcome::Reuse {
        syn: SynRequest::of(&syn),
        iss_floor: ISS + 201,
    };
    assert_eq!(outcome, expected);
    assert!(is_reuse(
        &entry.on_segment(&mut world.cx(), &seg("S", 101, 0, 0))
    ));
}

#[test]
fn time_wait_lower_syn_is_challenged() {
    let mut world = World::new();
    let mut entry = entry(&world, None);
    let out = ack(entry.on_segment(&mut world.cx(), &seg("S", 100, 0, 0)));
    assert_eq!(said(&out), ("A".into(), 201, 101));
    assert_eq!(
        entry.on_segment(&mut world.cx(), &seg("S", 50, 0, 0)),
        TimeWaitOutcome::Drop
    );
    assert_eq!(world.counters.drop_syn_synchronized, 2);
}

#[test]
fn time_wait_syn_is_judged_by_its_timestamp() {
    let mut world = World::new();
    let mut entry = entry(&world, Some(70));
    let mut reused = |syn: Segment| is_reuse(&entry.on_segment(&mut world.cx(), &syn));
    // Newer: whatever its sequence number.
    assert!(reused(with_ts(seg("S", 0, 0, 0), 71, 0)));
    // The same: by sequence number.
    assert!(reused(with_ts(seg("S", 101, 0, 0), 70, 0)));
    assert!(!reused(with_ts(seg("S", 100, 0, 0), 70, 0)));
    // Older: never.
    assert!(!reused(with_ts(seg("S", 5000, 0, 0), 69, 0)));
    // Without timestamps the sequence number decides.
    assert!(reused(seg("S", 101, 0, 0)));
    assert!(!reused(seg("S", 100, 0, 0)));
}

#[test]
fn time_wait_syn_with_a_timestamp_takes_over_from_none() {
    let mut world = World::new();
    let mut entry = entry(&world, None);
    let syn = with_ts(seg("S", 0, 0, 0), 1, 0);
    assert!(is_reuse(&entry.on_segment(&mut world.cx(), &syn)));
    world.config.timestamps = false;
    assert!(!is_reuse(&entry.on_segment(&mut world.cx(), &syn)));
}

#[test]
fn time_wait_syn_with_ack_or_fin_never_takes_over() {
    let mut world = World::new();
    let mut entry = entry(&world, None);
    assert!(!is_reuse(
        &entry.on_segment(&mut world.cx(), &seg("SA", 5000, 201, 0))
    ));
    assert!(!is_reuse(
        &entry.on_segment(&mut world.cx(), &seg("SF", 5000, 0, 0))
    ));
}

#[test]
fn time_wait_survives_anything() {
    let mut state = 5;
    for _ in 0..2000 {
        let mut world = World::new();
        let mut entry = entry(&world, Some(1000));
        for _ in 0..20 {
            let segment = random_segment(&mut state);
            world.pass_ms(u64::from(segment.window % 700));
            if let TimeWaitOutcome::Ack(out) = entry.on_segment(&mut world.cx(), &segment) {
                assert_eq!(said(&out), ("A".into(), 201, 101));
            }
            assert!(entry.deadline_ns() <= world.now_ns + world.config.time_wait_ns);
        }
    }
}
