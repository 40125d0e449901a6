//! The estimator against RFC 6298's formulas.

use super::RoundTrip;
use crate::MILLISECOND_NS as MS;
use crate::config::Config;

#[test]
fn first_sample() {
    let config = Config::default();
    let mut rtt = RoundTrip::new(config.rto_initial_ns);
    assert_eq!(rtt.rto_ns(), 1000 * MS);
    rtt.sample(100 * MS, &config);
    assert_eq!((rtt.srtt_us, rtt.rttvar_us), (100_000, 50_000));
    // 100 + max(4 * 50, 200)
    assert_eq!(rtt.rto_ns(), 300 * MS);
    assert_eq!(rtt.min_us, 100_000);
}

#[test]
fn steady_samples_end_at_the_floor() {
    let config = Config::default();
    let mut rtt = RoundTrip::new(config.rto_initial_ns);
    for _ in 0..100 {
        rtt.sample(10 * MS, &config);
    }
    assert_eq!(rtt.srtt_us, 10_000);
    assert_eq!(rtt.rto_ns(), 210 * MS);
}

#[test]
fn second_sample() {
    let config = Config::default();
    let mut rtt = RoundTrip::new(config.rto_initial_ns);
    rtt.sample(100 * MS, &config);
    rtt.sample(180 * MS, &config);
    // RTTVAR = 3/4 * 50 + 1/4 * 80; SRTT = 7/8 * 100 + 1/8 * 180
    assert_eq!((rtt.srtt_us, rtt.rttvar_us), (110_000, 57_500));
    assert_eq!(rtt.rto_ns(), 340 * MS);
}

#[test]
fn backoff_doubles_to_the_ceiling_and_a_sample_ends_it() {
    let config = Config::default();
    let mut rtt = RoundTrip::new(config.rto_initial_ns);
    rtt.sample(100 * MS, &config);
    for _ in 0..20 {
        rtt.back_off(&config);
    }
    assert_eq!(rtt.rto_ns(), config.rto_ns_max);
    rtt.sample(100 * MS, &config);
    assert_eq!(rtt.rto_ns(), 300 * MS);
}

#[test]
fn huge_and_tiny_samples() {
    let config = Config::default();
    let mut rtt = RoundTrip::new(config.rto_initial_ns);
    rtt.sample(0, &config);
    assert_eq!(rtt.srtt_us, 1);
    rtt.sample(u64::MAX, &config);
    assert_eq!(rtt.rto_ns(), config.rto_ns_max);
}
