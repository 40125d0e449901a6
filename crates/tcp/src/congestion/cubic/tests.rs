//! CUBIC against RFC 9438's formulas in floating point.

use super::super::model::Model;
use super::super::{Algorithm, CaState, Event, WindowControl};
use super::cube_root;
use crate::SECOND_NS;
use crate::config::{Config, CubicSettings, SlowStart};

const C: f64 = 0.4;
const BETA: f64 = 0.7;

fn config() -> Config {
    Config {
        cubic: CubicSettings {
            slow_start: SlowStart::Standard,
            ..CubicSettings::default()
        },
        ..Config::default()
    }
}

/// The window that RFC 9438 4.2 and 4.3 give `t` seconds after a reduction from `w_max`.
fn w_cubic(t: f64, w_max: f64) -> f64 {
    let k = (w_max * (1.0 - BETA) / C).cbrt();
    C * (t - k).powi(3) + w_max
}

fn w_est(t: f64, rtt: f64, w_max: f64) -> f64 {
    w_max * BETA + 3.0 * (1.0 - BETA) / (1.0 + BETA) * (t / rtt)
}

#[test]
fn cube_root_is_exact() {
    for root in [0u64, 1, 2, 7, 100, 1625, 65_535, 2_097_151] {
        let cube = root.pow(3);
        assert_eq!(u64::from(cube_root(cube)), root);
        assert_eq!(u64::from(cube_root(cube + 3 * root * root)), root);
        if root > 0 {
            assert_eq!(u64::from(cube_root(cube - 1)), root - 1);
        }
    }
    assert_eq!(cube_root(u64::MAX), 2_642_245);
}

#[test]
fn window_after_a_loss_follows_the_cubic_function() {
    for (w_max, rtt_ms) in [(400u32, 100u64), (1000, 50), (3000, 200)] {
        let mut model = Model::new(config(), w_max);
        model.lose();
        let begin_ns = model.now_ns;
        for _ in 0..(16_000 / rtt_ms) {
            model.round(rtt_ms);
            let t = (model.now_ns - begin_ns) as f64 / SECOND_NS as f64;
            let rtt = rtt_ms as f64 / 1000.0;
            let expected = w_cubic(t, f64::from(w_max)).max(w_est(t, rtt, f64::from(w_max)));
            let error = f64::from(model.window.cwnd) / expected - 1.0;
            assert!(
                error.abs() < 0.03,
                "w_max {w_max} rtt {rtt_ms} ms t {t:.2} s: {} instead of {expected:.1}",
                model.window.cwnd
            );
        }
    }
}

#[test]
fn short_round_trips_grow_as_reno_does() {
    // 10 ms and 20 segments: Reno's window is far above the cubic function for the first seconds.
    let mut model = Model::new(config(), 20);
    model.lose();
    let begin_ns = model.now_ns;
    for _ in 0..100 {
        model.round(10);
    }
    let t = (model.now_ns - begin_ns) as f64 / SECOND_NS as f64;
    let expected = w_est(t, 0.01, 20.0);
    assert!(w_cubic(t, 20.0) < expected / 2.0);
    let cwnd = f64::from(model.window.cwnd);
    assert!((cwnd / expected - 1.0).abs() < 0.1, "{cwnd} {expected}");
}

#[test]
fn losses_closer_than_the_clock_of_the_function_leave_reno_s_growth() {
    // A round trip of 2 ms and a loss every ten of them: less than the 1/32 s after which Linux
    // computes the target of a window that stood still.
    let mut model = Model::new(config(), 12);
    for _ in 0..20 {
        model.lose();
        let after = model.window.cwnd;
        for _ in 0..10 {
            model.round(2);
        }
        // Reno gains 5.3 segments in ten round trips at this factor. The last step may not have
        // happened yet.
        let gained = model.window.cwnd - after;
        assert!((4..=6).contains(&gained), "from {after} by {gained}");
    }
}

#[test]
fn without_friendliness_only_the_cubic_function_counts() {
    let mut settings = config();
    settings.cubic.tcp_friendliness = false;
    let mut model = Model::new(settings, 20);
    model.lose();
    for _ in 0..100 {
        model.round(10);
    }
    assert!(model.window.cwnd <= 21);
}

#[test]
fn loss_takes_three_tenths() {
    let mut model = Model::new(config(), 100);
    model.lose();
    assert_eq!(model.window.cwnd, 70);
    let mut small = Model::new(config(), 2);
    small.lose();
    assert_eq!(small.window.cwnd, 2);
}

#[test]
fn second_loss_below_the_plateau_lowers_it() {
    for (fast_convergence, plateau) in [(true, 59), (false, 70)] {
        let mut settings = config();
        settings.cubic.fast_convergence = fast_convergence;
        let mut model = Model::new(settings, 100);
        model.lose();
        model.lose();
        assert_eq!(model.window.cwnd, 49);
        // Eight seconds later the function has just passed its plateau.
        model.config.cubic.tcp_friendliness = false;
        let k = ((f64::from(plateau) - 49.0) / C).cbrt();
        let begin_ns = model.now_ns;
        while ((model.now_ns - begin_ns) as f64) < k * SECOND_NS as f64 {
            model.round(100);
        }
        assert!(
            model.window.cwnd.abs_diff(plateau) <= 1,
            "{}",
            model.window.cwnd
        );
    }
}

#[test]
fn idle_time_does_not_grow_the_window() {
    let mut model = Model::new(config(), 1000);
    model.lose();
    for _ in 0..20 {
        model.round(100);
    }
    let before = model.window.cwnd;
    model.wait_ms(60_000);
    let idle_ns = 60 * SECOND_NS;
    let event = Event::TxStart {
        idle_ns,
        app_limited: false,
    };
    model.call(|algorithm, at, window| algorithm.on_event(at, window, event));
    model.round(100);
    // The window grew as in one round trip, not as in a minute.
    assert!(
        model.window.cwnd - before < 20,
        "{before} {}",
        model.window.cwnd
    );
}

#[test]
fn growth_is_half_of_slow_start_at_most() {
    let mut model = Model::new(config(), 100);
    model.lose();
    model.round(100);
    // After an hour without a loss the function exceeds any window.
    model.wait_ms(3_600_000);
    let before = model.window.cwnd;
    model.round(100);
    assert!(model.window.cwnd <= before + before / 2 + 1);
    assert!(model.window.cwnd >= before + before / 3);
}

#[test]
fn before_the_first_loss_it_grows_five_percent_a_round_trip() {
    let mut model = Model::new(config(), 200);
    model.window.ssthresh = 200;
    model.round(1);
    model.round(1);
    assert!(
        (218..=223).contains(&model.window.cwnd),
        "{}",
        model.window.cwnd
    );
}

#[test]
fn timeout_forgets_the_plateau() {
    let mut model = Model::new(config(), 1000);
    model.lose();
    model.call(|algorithm, at, window| algorithm.on_state(at, window, CaState::Loss));
    model.window.cwnd = 100;
    model.window.ssthresh = 100;
    for _ in 0..20 {
        model.round(100);
    }
    // The window does not climb to a thousand, because the new plateau is where growth began.
    assert!(model.window.cwnd < 300);
}

#[test]
fn initial_threshold_holds_without_hystart_only() {
    let mut settings = config();
    settings.cubic.initial_ssthresh = 64;
    assert_eq!(Model::new(settings.clone(), 10).window.ssthresh, 64);
    settings.cubic.slow_start = SlowStart::HyStart;
    let model = Model::new(settings, 10);
    assert_eq!(model.window.ssthresh, super::super::SSTHRESH_INFINITE);
}

#[test]
fn absurd_settings_do_no_harm() {
    for (beta, scale) in [(0, 0), (u32::MAX, u32::MAX), (1024, 1), (1023, 1024)] {
        let mut settings = config();
        settings.cubic.beta = beta;
        settings.cubic.scale = scale;
        let mut model = Model::new(settings, 50);
        model.lose();
        for _ in 0..50 {
            model.round(20);
        }
        assert!(model.window.cwnd >= 2);
    }
}

#[test]
fn round_trips_are_believed_a_second_after_the_window_grows_again() {
    let mut model = Model::new(config(), 100);
    model.lose();
    let least_us = |model: &Model| match &model.algorithm {
        Algorithm::Cubic(cubic) => cubic.delay_min_us,
        other => panic!("{other:?}"),
    };
    // The window grows from the first ACK on. Shorter round trips may be those of a queue that
    // drains.
    model.fill();
    model.ack(1, 100);
    assert_eq!(least_us(&model), 100_000);
    model.wait_ms(999);
    model.ack(1, 50);
    assert_eq!(least_us(&model), 100_000);
    model.wait_ms(1);
    model.ack(1, 50);
    assert_eq!(least_us(&model), 50_000);
}
