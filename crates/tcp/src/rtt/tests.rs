//! The estimator, compared with Linux's form of RFC 6298's formulas, and the least round trip.

use wire::SeqNumber;

use super::{RoundTrip, RtoBounds};
use crate::config::Config;
use crate::{MILLISECOND_NS as MS, SECOND_NS};

fn bounds() -> RtoBounds {
    let config = Config::default();
    RtoBounds {
        ns_min: config.rto_ns_min,
        ns_max: config.rto_ns_max,
    }
}

/// Takes one sample in a round of its own.
fn sample(rtt: &mut RoundTrip, round: u32, rtt_ns: u64) {
    let una = SeqNumber(1000 * round);
    rtt.sample(rtt_ns, una, una + 1000, &bounds());
}

fn fresh() -> RoundTrip {
    RoundTrip::new(Config::default().rto_initial_ns)
}

#[test]
fn first_sample() {
    let mut rtt = fresh();
    assert_eq!(rtt.rto_ns(), 1000 * MS);
    sample(&mut rtt, 0, 100 * MS);
    assert_eq!((rtt.srtt_us, rtt.rttvar_ns()), (100_000, 50 * MS));
    // 100 + max(4 * 50, 200)
    assert_eq!(rtt.rto_ns(), 300 * MS);
}

#[test]
fn steady_samples_end_at_the_floor() {
    let mut rtt = fresh();
    for round in 0..100 {
        sample(&mut rtt, 2 * round, 10 * MS);
    }
    assert_eq!(rtt.srtt_us, 10_000);
    assert_eq!(rtt.rto_ns(), 210 * MS);
}

#[test]
fn later_samples() {
    let mut rtt = fresh();
    sample(&mut rtt, 0, 100 * MS);
    sample(&mut rtt, 1, 180 * MS);
    // SRTT = 7/8 * 100 + 1/8 * 180; deviation = 3/4 * 50 + 1/4 * 80, which counts at once because
    // it grew.
    assert_eq!((rtt.srtt_us, rtt.rttvar_ns()), (110_000, 57_500_000));
    assert_eq!(rtt.rto_ns(), 340 * MS);
    // A shorter round trip moves the deviation by an eighth of the usual amount.
    sample(&mut rtt, 2, 10 * MS);
    assert_eq!(rtt.srtt_us, 97_500);
    // 57.5 ms + (100 - 57.5) / 4 / 8
    assert_eq!(rtt.rttvar_ns(), 58_828_000);
    assert_eq!(rtt.rto_ns(), 97_500_000 + 4 * 58_828_000);
}

#[test]
fn variance_decays_by_a_quarter_each_round() {
    let mut rtt = fresh();
    sample(&mut rtt, 0, 500 * MS);
    assert_eq!(rtt.rto_ns(), 1500 * MS);
    let mut last_ns = rtt.rto_ns();
    for round in 1..30 {
        sample(&mut rtt, 2 * round, 500 * MS);
        assert!(rtt.rto_ns() <= last_ns);
        last_ns = rtt.rto_ns();
    }
    assert!(last_ns < 701 * MS, "{last_ns}");
}

#[test]
fn backoff_doubles_to_the_ceiling_and_a_sample_ends_it() {
    let config = Config::default();
    let mut rtt = fresh();
    sample(&mut rtt, 0, 100 * MS);
    for _ in 0..20 {
        rtt.back_off(&bounds());
    }
    assert_eq!(rtt.rto_ns(), config.rto_ns_max);
    sample(&mut rtt, 0, 100 * MS);
    assert_eq!(rtt.rto_ns(), 300 * MS);
}

#[test]
fn huge_and_tiny_samples() {
    let mut rtt = fresh();
    sample(&mut rtt, 0, 0);
    assert_eq!(rtt.srtt_us, 1);
    sample(&mut rtt, 1, u64::MAX);
    assert_eq!(rtt.rto_ns(), Config::default().rto_ns_max);
}

#[test]
fn least_round_trip_is_forgotten_after_its_window() {
    let config = Config::default();
    let mut rtt = fresh();
    assert_eq!(rtt.min_us(), u32::MAX);
    rtt.note_least(10 * MS, false, 0, &config);
    for second in 1..300u64 {
        rtt.note_least(20 * MS, false, second * SECOND_NS, &config);
        assert_eq!(rtt.min_us(), 10_000);
    }
    rtt.note_least(20 * MS, false, 302 * SECOND_NS, &config);
    assert_eq!(rtt.min_us(), 20_000);
    rtt.note_least(5 * MS, false, 303 * SECOND_NS, &config);
    assert_eq!(rtt.min_us(), 5000);
}

/// The best candidate has left the window, and the next one is exactly as old as the window.
#[test]
fn least_round_trip_as_old_as_its_window_still_counts() {
    let config = Config::default();
    let mut rtt = fresh();
    for (at_ms, sample_ms) in [(0, 10), (75_001, 20), (150_001, 30), (375_001, 90)] {
        rtt.note_least(sample_ms * MS, false, at_ms * MS, &config);
    }
    assert_eq!(rtt.min_us(), 20_000);
}

#[test]
fn least_round_trip_leaves_out_delayed_acks() {
    let config = Config::default();
    let mut rtt = fresh();
    rtt.note_least(10 * MS, false, 0, &config);
    rtt.note_least(50 * MS, true, 400 * SECOND_NS, &config);
    assert_eq!(rtt.min_us(), 10_000);
}

#[test]
fn least_round_trip_hands_over_to_what_was_best_since() {
    let config = Config::default();
    assert_eq!(config.min_rtt_window_ns, 300 * SECOND_NS);
    let mut rtt = fresh();
    // The time in milliseconds, the sample, and the resulting minimum.
    for (at_ms, sample_ms, least_ms) in [
        (0, 10, 10),
        // A quarter of the window has not passed yet, then it has.
        (75_000, 20, 10),
        (75_001, 30, 10),
        // Half of the window has not passed yet, then it has.
        (150_000, 40, 10),
        (150_001, 50, 10),
        // The best candidate leaves, and later that of the later quarters.
        (300_000, 60, 10),
        (300_001, 60, 30),
        (375_001, 60, 30),
        (375_002, 60, 50),
        (450_001, 70, 50),
        (450_002, 70, 60),
        // A better third candidate replaces the one before.
        (600_001, 65, 60),
        (600_002, 80, 60),
        (675_003, 80, 65),
        // The remaining candidate is as old as the window, then older.
        (975_003, 90, 80),
        (975_004, 90, 90),
        // After a pause only this sample is known.
        (1_275_005, 95, 95),
        // A better second candidate.
        (1_350_006, 99, 95),
        (1_400_000, 96, 95),
        (1_575_006, 99, 96),
        (1_600_000, 96, 96),
    ] {
        rtt.note_least(sample_ms * MS, false, at_ms * MS, &config);
        assert_eq!(u64::from(rtt.min_us()), least_ms * 1000, "{at_ms} ms");
    }
}

#[test]
fn timeout_without_its_doublings() {
    let mut rtt = fresh();
    assert_eq!(rtt.undoubled_ns(7 * MS), 7 * MS);
    sample(&mut rtt, 0, 100 * MS);
    rtt.back_off(&bounds());
    assert_eq!(rtt.rto_ns(), 600 * MS);
    assert_eq!(rtt.undoubled_ns(7 * MS), 300 * MS);
}
