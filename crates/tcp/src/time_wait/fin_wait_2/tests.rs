//! FIN_WAIT_2 of a connection without an application, as conversations. RCV.NXT is 100, the window
//! 50,000 bytes; our FIN was at 200 (SND.NXT is 201).

use wire::Ecn;
use wire::tcp::Timestamp;

use crate::SECOND_NS;
use crate::handshake::TimeWaitEntry;
use crate::limits::{COARSE_SHIFT, TS_RECENT_AGE_MAX_OF_RESET, coarse};
use crate::segment::SegmentOut;
use crate::test_stack::{IRS, ISS, TS_OFFSET, World, random_segment, said, seg, with_ts};
use crate::time_wait::{TimeWait, TimeWaitOutcome};

fn entry_of(world: &World, ts_recent: Option<u32>) -> TimeWaitEntry {
    TimeWaitEntry {
        fin_wait_2: true,
        ecn_capable: false,
        snd_nxt: ISS + 201,
        rcv_nxt: IRS + 100,
        rcv_wnd: 50_000,
        window: 195,
        timestamps: ts_recent.is_some(),
        ts_recent: ts_recent.unwrap_or(0),
        ts_recent_at: coarse(world.now_ns),
        ts_offset: TS_OFFSET,
        deadline_ns: world.now_ns + 60 * SECOND_NS,
    }
}

fn entry(world: &World, ts_recent: Option<u32>) -> TimeWait {
    TimeWait::new(&entry_of(world, ts_recent))
}

fn ack(outcome: TimeWaitOutcome) -> SegmentOut {
    match outcome {
        TimeWaitOutcome::Ack(ack) => ack,
        other => panic!("no ACK: {other:?}"),
    }
}

#[test]
fn fin_wait_2_fin_is_acked_and_becomes_time_wait() {
    let mut world = World::new();
    let mut entry = entry(&world, Some(70));
    world.pass_ms(10_000);
    let fin = with_ts(seg("FA", 100, 201, 0), 75, 0);
    let out = ack(entry.on_segment(&mut world.cx(), &fin));
    assert_eq!(said(&out), ("A".into(), 201, 101));
    assert_eq!((out.window, out.ecn), (195, Ecn::NotEct));
    // The ACK echoes the timestamp of the FIN.
    assert_eq!(
        out.options.timestamp,
        Some(Timestamp {
            value: world.ts(),
            echo: 75
        })
    );
    assert!(!entry.is_fin_wait_2());
    assert_eq!(
        entry.deadline_ns(),
        world.now_ns + world.config.time_wait_ns
    );
    assert_eq!(world.counters.time_waits, 1);
    // The entry is now in TIME_WAIT: a repeated FIN is acknowledged, and its timestamp is not
    // taken.
    let again = with_ts(seg("FA", 100, 201, 0), 80, 0);
    let out = ack(entry.on_segment(&mut world.cx(), &again));
    assert_eq!(out.options.timestamp.map(|stamp| stamp.echo), Some(75));
}

#[test]
fn fin_wait_2_fin_behind_old_data_is_acked() {
    let mut world = World::new();
    let mut entry = entry(&world, None);
    let out = ack(entry.on_segment(&mut world.cx(), &seg("FPA", 50, 201, 50)));
    assert_eq!(said(&out), ("A".into(), 201, 101));
}

#[test]
fn fin_wait_2_fin_of_an_accurate_ecn_connection_is_acked_ecn_capable() {
    let mut world = World::new();
    let mut entry = TimeWait::new(&TimeWaitEntry {
        ecn_capable: true,
        ..entry_of(&world, None)
    });
    // A segment outside the window is not acknowledged.
    let out = ack(entry.on_segment(&mut world.cx(), &seg("PA", 50, 201, 50)));
    assert_eq!(out.ecn, Ecn::NotEct);
    let out = ack(entry.on_segment(&mut world.cx(), &seg("FA", 100, 201, 0)));
    assert_eq!(out.ecn, Ecn::Ect0);
}

#[test]
fn fin_wait_2_new_data_is_reset() {
    for data in ["PA 100 10", "PA 90 20", "PA 40000 10", "FPA 100 10"] {
        let mut words = data.split(' ');
        let flags = words.next().unwrap();
        let [seq, len] = [(); 2].map(|()| words.next().unwrap().parse().unwrap());
        let mut world = World::new();
        let mut entry = entry(&world, None);
        let outcome = entry.on_segment(&mut world.cx(), &seg(flags, seq, 201, len));
        assert_eq!(outcome, TimeWaitOutcome::Reset, "{data}");
        assert_eq!(world.counters.bytes_drop_orphan, u64::from(len));
    }
}

#[test]
fn fin_wait_2_fin_ahead_is_reset() {
    let mut world = World::new();
    let mut entry = entry(&world, None);
    let outcome = entry.on_segment(&mut world.cx(), &seg("FA", 101, 201, 0));
    assert_eq!(outcome, TimeWaitOutcome::Reset);
}

#[test]
fn fin_wait_2_acks_say_nothing() {
    let mut world = World::new();
    let mut entry = entry(&world, Some(70));
    let deadline_ns = entry.deadline_ns();
    world.pass_ms(10);
    // A window update; an ACK ahead; an ACK of unsent data; the last segment without ACK.
    for segment in [
        seg("A", 100, 201, 0),
        seg("A", 200, 201, 0),
        seg("A", 100, 5000, 0),
        seg("F", 100, 0, 0),
        seg("P", 100, 0, 10),
    ] {
        let outcome = entry.on_segment(&mut world.cx(), &with_ts(segment, 90, 0));
        assert_eq!(outcome, TimeWaitOutcome::Drop);
    }
    assert_eq!(entry.deadline_ns(), deadline_ns);
    // None of their timestamps is taken either.
    let out = ack(entry.on_segment(&mut world.cx(), &seg("PA", 50, 201, 50)));
    assert_eq!(out.options.timestamp.map(|stamp| stamp.echo), Some(70));
}

#[test]
fn fin_wait_2_out_of_place_is_answered_empty_ones_within_the_limit() {
    let mut world = World::new();
    let mut entry = entry(&world, None);
    for _ in 0..3 {
        ack(entry.on_segment(&mut world.cx(), &seg("PA", 50, 201, 50)));
        ack(entry.on_segment(&mut world.cx(), &seg("PA", 60_000, 201, 50)));
    }
    ack(entry.on_segment(&mut world.cx(), &seg("A", 90, 201, 0)));
    for limited in [
        seg("A", 90, 201, 0),
        seg("S", 0, 0, 0),
        seg("R", 60_000, 0, 0),
    ] {
        let outcome = entry.on_segment(&mut world.cx(), &limited);
        assert_eq!(outcome, TimeWaitOutcome::Drop);
    }
    world.pass_ms(500);
    // A RST too, as from Linux.
    ack(entry.on_segment(&mut world.cx(), &seg("R", 60_000, 0, 0)));
    assert!(entry.is_fin_wait_2());
}

#[test]
fn fin_wait_2_rst_in_the_window_ends_it() {
    for seq in [100, 101, 50_099, 50_100] {
        let mut world = World::new();
        world.config.time_wait_outlives_resets = true;
        let mut entry = entry(&world, None);
        let outcome = entry.on_segment(&mut world.cx(), &seg("R", seq, 0, 0));
        assert_eq!(outcome, TimeWaitOutcome::Gone, "{seq}");
    }
}

#[test]
fn fin_wait_2_syn_in_the_window_is_reset_an_old_one_acked() {
    let mut world = World::new();
    let mut one = entry(&world, None);
    let outcome = one.on_segment(&mut world.cx(), &seg("S", 100, 0, 0));
    assert_eq!(outcome, TimeWaitOutcome::Reset);
    let mut other = entry(&world, None);
    ack(other.on_segment(&mut world.cx(), &seg("S", 99, 0, 0)));
    assert_eq!(world.counters.drop_syn_synchronized, 1);
}

#[test]
fn fin_wait_2_old_timestamp_is_answered_whatever_bears_it() {
    let mut world = World::new();
    let mut entry = entry(&world, Some(70));
    let old = with_ts(seg("FA", 100, 201, 0), 69, 0);
    let out = ack(entry.on_segment(&mut world.cx(), &old));
    assert_eq!(said(&out), ("A".into(), 201, 100));
    let rst = with_ts(seg("R", 100, 0, 0), 69, 0);
    ack(entry.on_segment(&mut world.cx(), &rst));
    assert_eq!(world.counters.drop_paws, 2);
    // After a minute, counted in units of 1.07 s, the entry accepts a RST with an old timestamp.
    let old_from = coarse(world.now_ns) + TS_RECENT_AGE_MAX_OF_RESET;
    world.now_ns = (u64::from(old_from) << COARSE_SHIFT) - 1;
    ack(entry.on_segment(&mut world.cx(), &rst));
    world.now_ns += 1;
    assert_eq!(
        entry.on_segment(&mut world.cx(), &rst),
        TimeWaitOutcome::Gone
    );
}

#[test]
fn fin_wait_2_survives_anything() {
    let mut state = 7;
    for _ in 0..2000 {
        let mut world = World::new();
        let mut entry = entry(&world, Some(1000));
        for _ in 0..20 {
            let segment = random_segment(&mut state);
            world.pass_ms(u64::from(segment.window % 700));
            let outcome = entry.on_segment(&mut world.cx(), &segment);
            if let TimeWaitOutcome::Ack(out) = outcome {
                let ack = if entry.is_fin_wait_2() { 100 } else { 101 };
                assert_eq!(said(&out), ("A".into(), 201, ack));
            } else if outcome != TimeWaitOutcome::Drop {
                break;
            }
        }
    }
}
