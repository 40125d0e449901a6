//! Rates, bursts and the gaps between them.

use wire::SeqNumber;

use super::{Burst, Pacing, RATE_INFINITE, rate_of_giants};
use crate::config::Config;
use crate::congestion::{Congestion, Moment};
use crate::{MILLISECOND_NS, SECOND_NS};

const MSS: u32 = 1000;

fn paced() -> Pacing {
    let config = Config {
        pacing: true,
        ..Config::default()
    };
    let mut pacing = Pacing::new(&config);
    pacing.set_rate(1_000_000);
    pacing
}

/// The position of segment `number` in bursts of two.
fn of_two(number: u32) -> Burst {
    Burst {
        begins: number.is_multiple_of(2),
        left: u16::from(number.is_multiple_of(2)),
    }
}

/// Sends whatever may leave between two instants, with a clock that is read every `grain_ns`.
fn send(pacing: &mut Pacing, from_ns: u64, to_ns: u64, grain_ns: u64) -> u32 {
    let mut segments = 0;
    let mut now_ns = from_ns;
    while now_ns < to_ns {
        while !pacing.holds(now_ns) {
            pacing.on_sent(now_ns, MSS, 100, of_two(segments));
            segments += 1;
        }
        now_ns += grain_ns;
    }
    segments
}

#[test]
fn rate_is_twice_the_window_in_early_slow_start_and_a_fifth_more_after() {
    let config = Config::default();
    let mut pacing = Pacing::new(&config);
    let start = Moment::at_start(&config, 0, SeqNumber(0), 0);
    let mut congestion = Congestion::new(&start, config.congestion, 10);
    pacing.refresh(&config, congestion.window(), 0, MSS, 100_000);
    assert_eq!(pacing.rate, 200_000);
    congestion.hold_threshold(10);
    let window = congestion.window();
    pacing.refresh(&config, window, 0, MSS, 100_000);
    assert_eq!(pacing.rate, 120_000);
    // Recovery may have more in flight than the window.
    pacing.refresh(&config, window, 20, MSS, 100_000);
    assert_eq!(pacing.rate, 240_000);
    pacing.refresh(&config, window, 20, MSS, 0);
    assert_eq!(pacing.rate, RATE_INFINITE);
    pacing.rate_max = 50_000;
    pacing.refresh(&config, window, 20, MSS, 100_000);
    assert_eq!(pacing.rate, 50_000);
}

#[test]
fn rate_at_half_of_the_threshold_is_that_of_congestion_avoidance() {
    let config = Config::default();
    let mut pacing = Pacing::new(&config);
    let start = Moment::at_start(&config, 0, SeqNumber(0), 0);
    let mut congestion = Congestion::new(&start, config.congestion, 10);
    for (threshold, rate) in [(21, 120_000), (22, 200_000)] {
        congestion.hold_threshold(threshold);
        pacing.refresh(&config, congestion.window(), 0, MSS, 100_000);
        assert_eq!(pacing.rate, rate, "half of {threshold}");
    }
}

#[test]
fn the_first_ten_segments_do_not_wait_and_the_burst_of_the_tenth_is_spaced() {
    let mut pacing = paced();
    for sent in 1..=10 {
        assert!(!pacing.holds(0));
        pacing.on_sent(0, MSS, sent, of_two(sent - 1));
    }
    // The ninth and the tenth segment take up a millisecond each.
    assert_eq!(pacing.next_ns(), 2 * MILLISECOND_NS);
}

#[test]
fn a_burst_leaves_at_once() {
    let mut pacing = paced();
    assert_eq!(send(&mut pacing, SECOND_NS, SECOND_NS + 1, 1), 2);
}

#[test]
fn over_time_the_rate_holds_whatever_the_grain_of_the_clock() {
    for grain_ns in [1_000, 100_000, MILLISECOND_NS] {
        let mut pacing = paced();
        let segments = send(&mut pacing, SECOND_NS, 2 * SECOND_NS, grain_ns);
        assert!((990..=1020).contains(&segments), "{segments} at {grain_ns}");
    }
}

#[test]
fn a_caller_that_is_late_makes_up_for_it_within_bounds() {
    let mut pacing = paced();
    pacing.waited = true;
    let segments = send(&mut pacing, SECOND_NS, 2 * SECOND_NS, 4 * MILLISECOND_NS);
    assert!((990..=1020).contains(&segments), "{segments}");
    // Five milliseconds are made up for, and one segment is due now.
    let later_ns = 3 * SECOND_NS;
    assert_eq!(send(&mut pacing, later_ns, later_ns + 1, 1), 6);
}

#[test]
fn a_pause_earns_no_burst() {
    let mut pacing = paced();
    send(&mut pacing, SECOND_NS, SECOND_NS + MILLISECOND_NS, 1000);
    let later_ns = 100 * SECOND_NS;
    let segments = send(&mut pacing, later_ns, later_ns + 10 * MILLISECOND_NS, 1000);
    assert!(segments <= 13, "{segments}");
}

#[test]
fn without_a_rate_nothing_waits() {
    let mut pacing = paced();
    pacing.set_rate(RATE_INFINITE);
    for _ in 0..100 {
        pacing.on_sent(0, MSS, 100, of_two(0));
        assert!(!pacing.holds(0));
    }
}

/// The product of window and microseconds exceeds 64 bits, while the rate fits or is infinite.
#[test]
fn rate_of_a_giant_window_is_exact_or_infinite() {
    let bytes = 240_000_000_000_000;
    assert_eq!(rate_of_giants(bytes, 120, 100_000_000), 2_880_000_000_000);
    assert_eq!(rate_of_giants(bytes, 120, 1), RATE_INFINITE);
}
