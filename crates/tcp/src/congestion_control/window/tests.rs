//! Growth of the window, segment by segment.

use super::Window;
use crate::limits::CWND_SEGMENTS_MAX;

fn window(cwnd: u32, ssthresh: u32) -> Window {
    Window {
        ssthresh,
        ..Window::new(cwnd)
    }
}

#[test]
fn slow_start_stops_at_the_threshold_and_returns_the_rest() {
    let mut window = window(10, 12);
    assert_eq!(window.slow_start(1), 0);
    assert_eq!(window.cwnd, 11);
    assert_eq!(window.slow_start(5), 4);
    assert_eq!(window.cwnd, 12);
    assert!(!window.in_slow_start());
}

#[test]
fn slow_start_has_no_end_before_the_first_loss() {
    let mut window = Window::new(10);
    assert_eq!(window.slow_start(10), 0);
    assert_eq!(window.cwnd, 20);
}

#[test]
fn growth_stops_at_the_clamp() {
    let mut window = Window::new(CWND_SEGMENTS_MAX - 2);
    window.slow_start(10);
    assert_eq!(window.cwnd, CWND_SEGMENTS_MAX);
    window.grow_linearly(1, 3);
    assert_eq!(window.cwnd, CWND_SEGMENTS_MAX);
}

#[test]
fn linear_growth_takes_one_step_per_window() {
    let mut window = window(4, 4);
    for cwnd in [4, 4, 4, 5, 5, 5, 5, 5, 6] {
        let every = window.cwnd;
        window.grow_linearly(every, 1);
        assert_eq!(window.cwnd, cwnd);
    }
}

#[test]
fn linear_growth_with_a_smaller_divisor_counts_what_was_gathered_once() {
    let mut window = window(10, 10);
    window.grow_linearly(10, 9);
    assert_eq!((window.cwnd, window.cwnd_cnt), (10, 9));
    window.grow_linearly(3, 1);
    assert_eq!((window.cwnd, window.cwnd_cnt), (11, 1));
}
