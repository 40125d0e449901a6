//! Cases in which the window counts as used.

use wire::SeqNumber;

use super::Usage;
use crate::congestion::Window;

fn seq(n: u32) -> SeqNumber {
    SeqNumber(n)
}

#[test]
fn slow_start_needs_half_the_window() {
    let window = Window::new(10);
    let mut usage = Usage::new(seq(0), 0);
    usage.on_flight(seq(0), seq(5000), 5, false);
    assert!(!usage.is_limiting(&window));
    usage.on_flight(seq(0), seq(6000), 6, false);
    assert!(usage.is_limiting(&window));
}

#[test]
fn avoidance_needs_all_of_it() {
    let window = Window {
        ssthresh: 10,
        ..Window::new(10)
    };
    let mut usage = Usage::new(seq(0), 0);
    usage.on_flight(seq(0), seq(9000), 9, false);
    assert!(!usage.is_limiting(&window));
    usage.on_flight(seq(0), seq(10_000), 10, true);
    assert!(usage.is_limiting(&window));
    // The largest flight counts until the data sent then is acknowledged.
    usage.on_flight(seq(2000), seq(11_000), 9, false);
    assert!(usage.is_limiting(&window));
    usage.on_flight(seq(10_000), seq(11_000), 1, false);
    assert!(!usage.is_limiting(&window));
}

#[test]
fn a_window_unused_for_a_timeout_decays() {
    let mut window = Window {
        ssthresh: 20,
        ..Window::new(40)
    };
    let mut usage = Usage::new(seq(0), 0);
    usage.on_flight(seq(0), seq(12_000), 12, false);
    assert!(!usage.is_unused_for(&window, 12, 99, 100));
    assert!(usage.is_unused_for(&window, 8, 100, 100));
    usage.decay(&mut window, 10, 30, 100);
    assert_eq!((window.cwnd, window.ssthresh), (26, 30));
    assert!(!usage.is_unused_for(&window, 8, 199, 100));
}

/// An equal number of segments in flight does not begin the round anew.
#[test]
fn round_ends_where_the_largest_flight_was_first_reached() {
    let window = Window::new(10);
    let mut usage = Usage::new(seq(0), 0);
    usage.on_flight(seq(0), seq(6000), 6, false);
    usage.on_flight(seq(1000), seq(7000), 6, false);
    // All of the first flight is acknowledged, so a new round begins.
    usage.on_flight(seq(6000), seq(7000), 1, false);
    assert!(!usage.is_limiting(&window));
}
