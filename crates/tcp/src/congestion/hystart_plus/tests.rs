//! HyStart++: entry into CSS, its slow growth, the way back, and the end of slow start (RFC 9406
//! 4.2).

use super::super::SSTHRESH_INFINITE;
use super::super::model::Model;
use crate::config::{Config, CubicSettings, SlowStart};

fn model() -> Model {
    let config = Config {
        cubic: CubicSettings {
            slow_start: SlowStart::HyStartPlusPlus,
            ..CubicSettings::default()
        },
        ..Config::default()
    };
    let mut model = Model::new(config, 16);
    model.round(100);
    model.round(100);
    assert_eq!(model.window.cwnd, 64);
    model
}

#[test]
fn a_longer_round_trip_slows_growth_to_a_quarter() {
    let mut model = model();
    model.round(120);
    // Seven segments before the eighth sample, then a quarter of the other 57.
    assert!(
        (82..=87).contains(&model.window.cwnd),
        "{}",
        model.window.cwnd
    );
    let before = model.window.cwnd;
    model.round(120);
    assert!(model.window.cwnd.abs_diff(before + before / 4) <= 1);
    assert_eq!(model.window.ssthresh, SSTHRESH_INFINITE);
}

#[test]
fn five_rounds_of_css_end_slow_start() {
    let mut model = model();
    for _ in 0..5 {
        model.round(120);
    }
    assert_eq!(model.window.ssthresh, SSTHRESH_INFINITE);
    // The first ACK of the sixth round.
    model.fill();
    model.ack(1, 120);
    assert_ne!(model.window.ssthresh, SSTHRESH_INFINITE);
    assert!(model.window.ssthresh.abs_diff(model.window.cwnd) <= 2);
}

#[test]
fn a_round_trip_that_falls_back_resumes_slow_start() {
    let mut model = model();
    model.round(120);
    let before = model.window.cwnd;
    model.round(100);
    // After eight samples slow start's speed is restored.
    assert!(model.window.cwnd > before + before * 3 / 4);
    assert_eq!(model.window.ssthresh, SSTHRESH_INFINITE);
}

#[test]
fn one_ack_adds_eight_segments_unless_paced() {
    let mut model = model();
    model.fill();
    model.ack(30, 100);
    assert_eq!(model.window.cwnd, 72);
    model.paced = true;
    model.ack(1, 100);
    model.ack(20, 100);
    assert_eq!(model.window.cwnd, 93);
}
