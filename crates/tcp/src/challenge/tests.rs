//! The limits on challenge ACKs.

use super::*;
use crate::MILLISECOND_NS;
use std::collections::BTreeSet;
use std::vec::Vec;

fn config(per_second: u32) -> Config {
    Config {
        challenge_acks_per_second_max: per_second,
        ..Config::default()
    }
}

/// ACKs that pass in each of `seconds` seconds when one is requested every 100 µs.
fn pass_per_second(limiter: &mut ChallengeLimiter, config: &Config, seconds: u64) -> Vec<u32> {
    (0..seconds)
        .map(|second| {
            (0..10_000)
                .filter(|n| limiter.allow(second * SECOND_NS + n * SECOND_NS / 10_000, config))
                .count() as u32
        })
        .collect()
}

#[test]
fn challenge_quota_is_kept_on_average() {
    let passed = pass_per_second(&mut ChallengeLimiter::new(7), &config(100), 200);
    let mean = passed.iter().sum::<u32>() / 200;
    assert!((80..=120).contains(&mean), "{mean}");
    assert!(passed.iter().all(|&n| n <= 400));
}

#[test]
fn challenge_quota_differs_by_period_and_seed() {
    let one = pass_per_second(&mut ChallengeLimiter::new(1), &config(100), 50);
    let other = pass_per_second(&mut ChallengeLimiter::new(2), &config(100), 50);
    assert_ne!(one, other);
    assert!(one.iter().collect::<BTreeSet<_>>().len() > 20);
}

#[test]
fn challenge_limit_zero_and_none() {
    assert!(!ChallengeLimiter::new(1).allow(5, &config(0)));
    let mut limiter = ChallengeLimiter::new(1);
    assert!((0..1_000_000).all(|_| limiter.allow(5, &config(u32::MAX))));
}

#[test]
fn gate_lets_one_pass_per_interval() {
    let mut gate = AckGate::default();
    let interval = 500 * MILLISECOND_NS;
    let mut at = |ms: u64| gate.allow(ms * MILLISECOND_NS, interval);
    assert!(at(0));
    assert!(!at(499));
    assert!(at(501));
    assert!(!at(1000));
    assert!(at(1001));
    // The 32-bit clock wraps.
    assert!(at((1 << 32) - 10));
    assert!(!at((1 << 32) + 400));
    assert!(at((1 << 32) + 600));
}

#[test]
fn period_lasts_from_half_a_second_to_one_and_a_half() {
    let mut limiter = ChallengeLimiter::new(3);
    let mut now_ns = 0;
    for _ in 0..1000 {
        let _ = limiter.allow(now_ns, &config(100));
        let length_ns = limiter.period_ends_ns - now_ns;
        assert!(
            (SECOND_NS / 2..SECOND_NS * 3 / 2).contains(&length_ns),
            "{length_ns}"
        );
        now_ns = limiter.period_ends_ns;
    }
}
