//! The parts of BBR's model, ACK by ACK. Whole conversations over a bottleneck are in `tests/bbr`.

use wire::SeqNumber;

use super::aggregation::Aggregation;
use super::long_term::{AckFacts, LongTerm};
use super::phase::HIGH_GAIN;
use super::rate::{GAIN_ONE, MaxFilter, paced_bytes_per_second, rate_of, segments_in};
use super::{Bbr, Mode, flag, send_quantum};
use crate::MILLISECOND_NS;
use crate::config::Config;
use crate::congestion::by_model::PathSample;
use crate::congestion::{CaState, Event, Moment, SenderView, Window, WindowControl};
use crate::recovery::rate::RateSample;

const MSS: u32 = 1000;
const RTT_US: u32 = 20_000;

/// A sender whose segments are all delivered at one rate, round after round.
struct Sender {
    config: Config,
    bbr: Bbr,
    window: Window,
    now_ns: u64,
    delivered: u32,
    lost: u32,
    pacing_rate: u64,
    in_flight: u32,
    app_limited: bool,
    state: CaState,
}

impl Sender {
    fn new() -> Self {
        let config = Config::default();
        let mut window = Window::new(10);
        let now_ns = 1_000 * MILLISECOND_NS;
        let mut at = Moment::at_start(&config, now_ns, SeqNumber(1), 1);
        at.sender.mss = MSS;
        let mut bbr = Bbr::new(&at, &mut window);
        let pacing_rate = bbr.begin(MSS, 10, RTT_US, RTT_US);
        Sender {
            bbr,
            window,
            now_ns,
            delivered: 1,
            lost: 0,
            pacing_rate,
            in_flight: 10,
            app_limited: false,
            state: CaState::Open,
            config,
        }
    }

    fn call<T>(&mut self, call: impl FnOnce(&mut Bbr, &Moment<'_>, &mut Window) -> T) -> T {
        let config = self.config.clone();
        let start = SeqNumber(self.delivered);
        let mut at = Moment::at_start(&config, self.now_ns, start, self.delivered);
        at.sender = SenderView {
            lost: self.lost,
            mss: MSS,
            pacing_rate: self.pacing_rate,
            paced: true,
            ..at.sender
        };
        call(&mut self.bbr, &at, &mut self.window)
    }

    /// A round trip later, one ACK delivers a round of `segments` and finds `lost` other segments
    /// lost.
    fn round(&mut self, segments: u32, lost: u32) -> bool {
        let prior_delivered = self.delivered;
        self.now_ns += u64::from(RTT_US) * 1000;
        self.delivered += segments;
        self.lost += lost;
        let sample = PathSample {
            rate: RateSample {
                prior_delivered,
                segments,
                interval_us: RTT_US,
                app_limited: self.app_limited,
                ..RateSample::default()
            },
            delivered: segments,
            lost,
            prior_in_flight: self.in_flight + segments,
            in_flight: self.in_flight,
            rtt_us: Some(RTT_US),
            rtt_us_min: RTT_US,
            maybe_delayed: false,
            state: self.state,
            departure_ns: self.now_ns,
        };
        let limits = self.call(|bbr, at, window| bbr.update(at, window, &sample));
        let cwnd = self.window.cwnd;
        let rate = self.call(|bbr, at, _| bbr.pacing_rate(at, cwnd, RTT_US));
        self.pacing_rate = rate.unwrap_or(self.pacing_rate);
        self.call(|bbr, at, window| bbr.set_cwnd(at, window, &sample));
        limits
    }

    /// A sender in PROBE_BW whose pipe holds `segments` in a round trip.
    fn probing(segments: u32) -> Self {
        let mut sender = Sender::new();
        sender.in_flight = segments;
        while !sender.bbr.mode.is_probe_bw() {
            sender.round(segments, 0);
        }
        sender
    }
}

#[test]
fn rates_convert_both_ways() {
    let rate = rate_of(100, 10_000);
    assert_eq!(segments_in(rate, 1_000_000), 9_999);
    // 10,000 segments of 1,000 bytes a second, less one percent.
    assert!((9_899_990..=9_900_000).contains(&paced_bytes_per_second(rate, GAIN_ONE, MSS)));
    assert_eq!(rate_of(u32::MAX, 1), u32::MAX);
    assert_eq!(paced_bytes_per_second(0, HIGH_GAIN, MSS), 0);
}

#[test]
fn the_largest_rate_is_forgotten_after_ten_rounds() {
    let mut filter = MaxFilter::EMPTY;
    filter.note(100);
    for round in 1..=10 {
        filter.round = round;
        filter.note(50 + u32::from(round));
        assert_eq!(filter.max(), 100, "in round {round}");
    }
    filter.round = 11;
    filter.note(10);
    // The best of the later samples, at the grain of a quarter of the window.
    assert!((50..=60).contains(&filter.max()), "{filter:?}");
    filter.note(200);
    assert_eq!(filter.max(), 200);
    // A long silence forgets all samples.
    filter.round = 40;
    filter.note(7);
    assert_eq!(filter.max(), 7);
}

#[test]
fn bunches_of_acks_earn_their_excess_for_five_rounds_and_five_more() {
    let rate = rate_of(1, 1_000);
    let mut aggregation = Aggregation::new(0);
    // Ten segments at once every ten milliseconds.
    for epoch in 1..=20 {
        aggregation.on_ack(epoch * 10_000, 10, rate, 100);
    }
    assert!((10..=11).contains(&aggregation.excess()));
    // Segments are then acknowledged one by one.
    for round in 0..10 {
        let now_us = 300_000 + round * 10_000;
        aggregation.on_round();
        for step in 0..10 {
            aggregation.on_ack(now_us + step * 1_000, 1, rate, 100);
        }
    }
    assert!(aggregation.excess() <= 2, "{aggregation:?}");
}

#[test]
fn the_excess_is_no_more_than_the_window() {
    let mut aggregation = Aggregation::new(0);
    aggregation.on_ack(1, 500, 1, 30);
    assert_eq!(aggregation.excess(), 30);
    aggregation.on_ack(2, 70_000, 1, u32::MAX);
    assert_eq!(aggregation.excess(), u32::from(u16::MAX));
}

/// Two intervals of five rounds with `delivered` and `lost` segments each; `Some` if a policer was
/// found after the second.
fn policed(stretches: [(u32, u32); 2]) -> Option<u32> {
    let config = Config::default();
    let mut long_term = LongTerm::WAITING;
    let mut at = Moment::at_start(&config, MILLISECOND_NS, SeqNumber(1), 0);
    at.sender.mss = MSS;
    let facts = AckFacts {
        round_start: true,
        lost: false,
        app_limited: false,
        cycling: true,
    };
    let lossy = AckFacts {
        lost: true,
        ..facts
    };
    long_term.sample(&at, lossy);
    for (delivered, lost) in stretches {
        for round in 1..=5 {
            at.sender.delivered_ns += 20 * MILLISECOND_NS;
            at.sender.delivered += delivered / 5;
            at.sender.lost += lost / 5;
            long_term.sample(&at, if round == 5 { lossy } else { facts });
        }
    }
    long_term.rate()
}

#[test]
fn two_lossy_stretches_of_one_rate_are_a_policer() {
    let rate = policed([(100, 25), (105, 25)]).expect("a policer");
    assert!(rate.abs_diff(rate_of(1025, 1_000_000)) < 100);
    // A different rate, or few losses, is no policer.
    assert_eq!(policed([(100, 25), (150, 40)]), None);
    assert_eq!(policed([(100, 10), (100, 10)]), None);
}

#[test]
fn startup_ends_after_three_rounds_without_growth() {
    let mut sender = Sender::new();
    sender.in_flight = 400;
    for segments in [10, 20, 40, 80] {
        sender.round(segments, 0);
        assert_eq!(sender.bbr.info(MSS).pacing_gain, HIGH_GAIN);
    }
    for _ in 0..2 {
        sender.round(85, 0);
        assert_eq!(sender.bbr.mode, Mode::Startup);
    }
    sender.round(85, 0);
    assert_eq!(sender.bbr.mode, Mode::Drain);
    assert!(sender.bbr.info(MSS).pacing_gain < GAIN_ONE);
    // The segments in flight fit the pipe: the queue is gone.
    sender.in_flight = 80;
    sender.round(85, 0);
    assert!(sender.bbr.mode.is_probe_bw());
}

#[test]
fn probe_bw_window_is_twice_the_pipe_and_room_for_bunches_and_bursts() {
    let mut sender = Sender::probing(100);
    sender.round(100, 0);
    let quantum = sender.call(|_, at, _| send_quantum(at));
    let cwnd = sender.window.cwnd;
    // Each ACK of this sender is a bunch of a hundred.
    let expected = 200 + 100 + 3 * quantum;
    assert!((expected..=expected + 6).contains(&cwnd), "{cwnd}");
}

#[test]
fn probe_bw_gains_go_round() {
    let mut sender = Sender::probing(100);
    let mut gains = [0; 3];
    for _ in 0..80 {
        sender.now_ns += 1_000_000;
        let gain = sender.bbr.info(MSS).pacing_gain;
        sender.in_flight = if gain > GAIN_ONE { 200 } else { 100 };
        gains[usize::from(gain >= GAIN_ONE) + usize::from(gain > GAIN_ONE)] += 1;
        sender.round(100, 0);
    }
    let [drains, cruises, probes] = gains;
    assert!((9..=11).contains(&drains) && (9..=11).contains(&probes));
    assert_eq!(cruises, 80 - drains - probes);
}

#[test]
fn recovery_begins_with_packet_conservation_and_ends_with_the_window_before() {
    let mut sender = Sender::probing(100);
    sender.round(100, 0);
    let before = sender.window.cwnd;
    sender.call(|bbr, at, window| assert_eq!(bbr.ssthresh(at, window), window.ssthresh));
    sender.state = CaState::Recovery;
    sender.in_flight = 60;
    sender.round(5, 3);
    assert_eq!(sender.window.cwnd, 65);
    assert!(sender.bbr.has(flag::PACKET_CONSERVATION));
    // The next round grows again.
    sender.round(20, 0);
    assert!(!sender.bbr.has(flag::PACKET_CONSERVATION));
    assert_eq!(sender.window.cwnd, 85);
    sender.state = CaState::Open;
    sender.round(1, 0);
    assert!(sender.window.cwnd >= before.min(200));
}

#[test]
fn loss_timeout_ends_a_round_and_starts_the_search_for_the_full_pipe_anew() {
    let mut sender = Sender::new();
    sender.round(10, 0);
    assert_ne!(sender.bbr.full_bw, 0);
    sender.call(|bbr, at, window| bbr.on_state(at, window, CaState::Loss));
    assert_eq!(sender.bbr.full_bw, 0);
    assert!(sender.bbr.has(flag::IN_LOSS));
}

#[test]
fn undo_keeps_the_window_and_forgets_the_policer() {
    let mut sender = Sender::probing(50);
    sender.window.prior_cwnd = 1000;
    let cwnd = sender.window.cwnd;
    let undone = sender.call(|bbr, at, window| bbr.undo_cwnd(at.config, window));
    assert_eq!(undone, cwnd);
    assert_eq!(sender.bbr.long_term.rate(), None);
}

#[test]
fn probe_rtt_needs_an_old_round_trip_and_a_sender_that_did_not_pause() {
    let mut sender = Sender::probing(100);
    sender.now_ns += 11_000 * MILLISECOND_NS;
    let start = Event::TxStart {
        idle_ns: 1,
        app_limited: true,
    };
    sender.call(|bbr, at, window| bbr.on_event(at, window, start));
    // The first sample after the restart renews RTprop.
    assert!(!sender.round(10, 0));
    assert!(sender.bbr.mode.is_probe_bw());
    sender.bbr.rt_prop_us = RTT_US - 1;
    sender.now_ns += 11_000 * MILLISECOND_NS;
    assert!(sender.round(10, 0));
    assert_eq!(sender.window.cwnd, 4);
    let before = sender.bbr.prior_cwnd;
    sender.in_flight = 4;
    sender.app_limited = true;
    for _ in 0..12 {
        sender.round(4, 0);
    }
    assert!(sender.bbr.mode.is_probe_bw());
    assert!(sender.window.cwnd >= before.min(200));
}

#[test]
fn probe_rtt_comes_though_all_round_trips_are_equal() {
    let mut sender = Sender::probing(100);
    let rounds = (1..=600).find(|_| sender.round(100, 0));
    // Ten seconds of 20 ms each.
    assert!(rounds.is_some_and(|rounds| rounds > 400), "{rounds:?}");
}

#[test]
fn probe_rtt_does_not_forget_a_larger_window() {
    let mut sender = Sender::probing(100);
    sender.bbr.prior_cwnd = 500;
    sender.now_ns += 11_000 * MILLISECOND_NS;
    assert!(sender.round(100, 0));
    assert_eq!(sender.bbr.prior_cwnd, 500);
}

#[test]
fn slow_paths_send_one_segment_at_a_time() {
    let mut sender = Sender::new();
    for (rate, quantum) in [(100_000, 1), (200_000, 2), (20_480_000, 20), (u64::MAX, 65)] {
        sender.pacing_rate = rate;
        assert_eq!(sender.call(|_, at, _| send_quantum(at)), quantum);
    }
}
