//! HyStart's two signs, and cases that must not trigger them.

use super::super::SSTHRESH_INFINITE;
use super::super::model::Model;
use crate::config::{Config, CubicSettings};

fn model(ack_train: bool, delay: bool) -> Model {
    let config = Config {
        cubic: CubicSettings {
            hystart_ack_train: ack_train,
            hystart_delay: delay,
            ..CubicSettings::default()
        },
        ..Config::default()
    };
    Model::new(config, 10)
}

/// A flight whose ACKs of two segments each arrive `gap_ms` apart, the first after `rtt_ms`. Each
/// later round trip is a gap longer.
fn flight(model: &mut Model, rtt_ms: u64, gap_ms: u64) {
    model.fill();
    model.wait_ms(rtt_ms);
    let acks = u64::from(model.window.cwnd / 2);
    for ack in 0..acks {
        model.ack(2, rtt_ms + ack * gap_ms);
        model.wait_ms(gap_ms);
    }
}

/// ACKs of one segment each, a millisecond apart, for segments that were sent at the same spacing.
fn train(model: &mut Model, rtt_ms: u64) {
    model.fill();
    for _ in 0..model.window.cwnd {
        model.ack(1, rtt_ms);
        model.wait_ms(1);
    }
}

#[test]
fn longer_round_trips_end_slow_start() {
    let mut model = model(false, true);
    flight(&mut model, 200, 0);
    assert_eq!(model.window.cwnd, 20);
    // 240 ms exceeds 200 ms by more than an eighth and by more than 16 ms: slow start ends at the
    // ninth sample.
    flight(&mut model, 240, 1);
    assert_eq!((model.window.cwnd, model.window.ssthresh), (36, 36));
}

#[test]
fn small_windows_are_left_alone() {
    let mut model = model(true, true);
    model.config.cubic.hystart_low_window = 100;
    flight(&mut model, 200, 0);
    flight(&mut model, 300, 1);
    assert_eq!(model.window.ssthresh, SSTHRESH_INFINITE);
}

#[test]
fn a_round_trip_that_falls_does_not_end_slow_start() {
    let mut model = model(false, true);
    flight(&mut model, 200, 0);
    model.fill();
    model.wait_ms(200);
    for _ in 0..8 {
        model.ack(2, 230);
    }
    model.ack(2, 29);
    assert_eq!(model.window.ssthresh, SSTHRESH_INFINITE);
}

#[test]
fn delays_below_four_milliseconds_are_noise() {
    let mut model = model(false, true);
    flight(&mut model, 8, 0);
    flight(&mut model, 11, 0);
    assert_eq!(model.window.ssthresh, SSTHRESH_INFINITE);
    flight(&mut model, 13, 0);
    assert_ne!(model.window.ssthresh, SSTHRESH_INFINITE);
}

#[test]
fn a_train_over_half_of_the_round_trip_ends_slow_start() {
    let mut model = model(true, false);
    flight(&mut model, 20, 0);
    train(&mut model, 20);
    // The eleventh millisecond is the first beyond half of 20 ms.
    assert_eq!(model.window.ssthresh, 31);
}

#[test]
fn acks_far_apart_are_no_train() {
    let mut model = model(true, false);
    flight(&mut model, 10, 0);
    flight(&mut model, 10, 3);
    assert_eq!(model.window.ssthresh, SSTHRESH_INFINITE);
}

#[test]
fn a_paced_sender_may_have_a_train_of_a_whole_round_trip() {
    let mut model = model(true, false);
    model.paced = true;
    flight(&mut model, 20, 0);
    train(&mut model, 20);
    assert_eq!(model.window.ssthresh, SSTHRESH_INFINITE);
}
