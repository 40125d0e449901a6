//! DCTCP's estimate against RFC 8257 3.3 in floating point, and its effect on the window.

use super::super::model::Model;
use super::super::{Algorithm, CaState, CongestionAlgorithm, Event, WindowControl};
use crate::config::Config;

fn model() -> Model {
    let config = Config {
        congestion: CongestionAlgorithm::Dctcp,
        ..Config::default()
    };
    let mut model = Model::new(config, 100);
    model.window.ssthresh = 100;
    model
}

fn alpha(model: &Model) -> f64 {
    match &model.algorithm {
        Algorithm::Dctcp(dctcp) => f64::from(dctcp.alpha) / 1024.0,
        other => panic!("{other:?}"),
    }
}

/// A round of 100 segments, `marked` of them with ECE.
fn round(model: &mut Model, marked: u32) {
    model.nxt = model.una + 100 * super::super::model::MSS;
    model.delivered_ce += marked;
    model.wait_ms(1);
    model.ack(100, 1);
}

#[test]
fn alpha_follows_the_share_of_marks() {
    let mut model = model();
    let mut expected = 1.0;
    for marked in [0, 0, 10, 50, 100, 100, 0, 3] {
        round(&mut model, marked);
        expected = expected * (15.0 / 16.0) + f64::from(marked) / 100.0 / 16.0;
        let error = (alpha(&model) - expected).abs();
        assert!(error < 0.01, "{} {expected}", alpha(&model));
    }
}

#[test]
fn alpha_without_marks_goes_to_zero() {
    let mut model = model();
    for _ in 0..100 {
        round(&mut model, 0);
    }
    assert_eq!(alpha(&model), 0.0);
    model.lose();
    // Alpha is 0, so the reduction takes nothing off the window.
    assert!(model.window.cwnd >= 100);
}

#[test]
fn marks_cut_the_window_by_half_of_alpha() {
    let mut model = model();
    model.lose();
    assert_eq!(model.window.cwnd, 50);
    for _ in 0..200 {
        round(&mut model, 20);
    }
    model.window.cwnd = 1000;
    model.lose();
    assert!(
        (895..=905).contains(&model.window.cwnd),
        "{}",
        model.window.cwnd
    );
}

#[test]
fn loss_halves_the_window() {
    let mut model = model();
    for _ in 0..100 {
        round(&mut model, 0);
    }
    let cwnd = model.window.cwnd;
    model.call(|algorithm, at, window| algorithm.on_state(at, window, CaState::Recovery));
    assert_eq!(model.window.ssthresh, cwnd / 2);
    model.window.ssthresh = 1;
    model.call(|algorithm, at, window| algorithm.on_event(at, window, Event::Loss));
    assert_eq!(model.window.ssthresh, cwnd / 2);
    model.window.cwnd = 7;
    let undone = model.call(|dctcp, at, window| dctcp.undo_cwnd(at.config, window));
    assert_eq!(undone, cwnd);
}
