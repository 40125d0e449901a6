//! A connection with an algorithm from outside: bounds, packing, and settings that do not know the
//! algorithm.

use super::{Algorithm, WindowControl};
use crate::congestion::model::{MSS, Model};
use crate::congestion_control::{
    AckSample, CongestionControl, OutsideAlgorithm, SSTHRESH_INFINITE, SenderView, State, Window,
};
use crate::limits::{CWND_SEGMENTS_MAX, OUTSIDE_PACING_RATE_MIN};
use crate::pack::{Packer, Unpacker, Usual};
use crate::{Config, CongestionAlgorithm};

/// An algorithm that answers every question with the word that the test left in the state.
struct Parrot;

impl CongestionControl for Parrot {
    fn begin(&self, state: &mut State, at: &SenderView, _: &mut Window) {
        *state = [at.mss; 18];
    }

    fn ssthresh(&self, state: &mut State, _: &SenderView, _: &Window) -> u32 {
        state[0]
    }

    fn grow(&self, state: &mut State, _: &SenderView, window: &mut Window, _: &AckSample) {
        window.set_cwnd(state[0]);
    }

    fn undo_cwnd(&self, state: &mut State, _: &Window) -> u32 {
        state[0]
    }

    fn pacing_rate(&self, state: &mut State, _: &SenderView, _: &Window, _: u32) -> Option<u64> {
        Some(u64::from(state[0]))
    }
}

static PARROT: OutsideAlgorithm = OutsideAlgorithm::new("parrot", &Parrot);

/// A sender with a window of 20 segments whose algorithm answers `word`.
fn sender(word: u32) -> Model {
    let mut config = Config::default();
    config.congestion = config.register_congestion(&PARROT).expect("a new name");
    let mut sender = Model::new(config, 20);
    let outside = sender.algorithm.outside().expect("one from outside");
    outside.state[0] = word;
    sender
}

#[test]
fn loss_threshold_is_between_two_segments_and_the_window() {
    for (word, threshold) in [(0, 2), (1, 2), (7, 7), (20, 20), (21, 20), (u32::MAX, 20)] {
        let mut sender = sender(word);
        let found = sender.call(|algorithm, at, window| algorithm.ssthresh(at, window));
        assert_eq!(found, threshold, "{word}");
        sender.window.set_cwnd(1);
        let found = sender.call(|algorithm, at, window| algorithm.ssthresh(at, window));
        assert_eq!(found, 2, "{word}");
    }
}

#[test]
fn growth_and_undo_keep_the_window_in_bounds() {
    for (word, cwnd) in [(0, 1), (5, 5), (u32::MAX, CWND_SEGMENTS_MAX)] {
        let mut sender = sender(word);
        let undone = sender.call(|algorithm, at, window| algorithm.undo_cwnd(at.config, window));
        assert_eq!(undone, cwnd);
        sender.ack(1, 10);
        assert_eq!(sender.window.cwnd(), cwnd);
        assert_eq!(sender.window.ssthresh(), SSTHRESH_INFINITE);
    }
}

#[test]
fn pacing_rate_zero_is_none_and_others_have_a_least() {
    let rates = [
        (0, None),
        (1, Some(OUTSIDE_PACING_RATE_MIN)),
        (70_000, Some(70_000)),
    ];
    for (word, rate) in rates {
        let mut sender = sender(word);
        let found = sender.call(|algorithm, at, window| {
            let outside = algorithm.outside()?;
            outside.pacing_rate(at, window, 10_000)
        });
        assert_eq!(found, rate);
    }
}

#[test]
fn settings_without_the_algorithm_begin_the_default_one() {
    let config = Config {
        congestion: CongestionAlgorithm::Outside(&PARROT),
        ..Config::default()
    };
    let sender = Model::new(config, 20);
    assert!(matches!(sender.algorithm, Algorithm::Cubic(_)));
}

#[test]
fn settings_that_lost_the_algorithm_leave_reno() {
    let mut sender = sender(u32::MAX);
    sender.config.outside = Config::default().outside;
    let choice = sender.algorithm.choice(&sender.config);
    assert_eq!(choice, CongestionAlgorithm::NewReno);
    sender.ack(1, 10);
    assert_eq!(sender.window.cwnd(), 21);
    sender.lose();
    assert_eq!(sender.window.cwnd(), 10);
}

#[test]
fn packed_words_come_out_as_they_went_in() {
    let mut sender = sender(0xdead_beef);
    let usual = Usual {
        now_ns: 0,
        una: sender.una,
        first: sender.una,
        rcv_nxt: sender.una,
    };
    let mut bytes = [0; 256];
    let mut packer = Packer::new(&mut bytes);
    sender.algorithm.pack(&mut packer, &usual);
    assert!(packer.finish().is_some());
    let mut found = Algorithm::NewReno(super::NewReno);
    found.pack(&mut Unpacker::new(&bytes), &usual);
    assert_eq!(found, sender.algorithm);
    let outside = found.outside().expect("one from outside");
    assert_eq!((outside.state[0], outside.state[17]), (0xdead_beef, MSS));
}
