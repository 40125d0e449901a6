//! Algorithms from outside the crate on the same courses: Reno and DCTCP over the public trait
//! behave like the built-in ones, and no nonsense stops a connection.

use tcp::CongestionAlgorithm;
use tcp::congestion_control::{
    AckSample, CaState, CongestionControl, Event, OutsideAlgorithm, PathReport, SenderView, State,
    Window,
};

use crate::draw::{self, Manner, Reader, Settings};
use crate::outside_twins;
use crate::path::Path;

/// The values that [`Nonsense`] answers in turn.
const EXTREMES: [u32; 6] = [0, u32::MAX, 1, 1 << 31, 7, u32::MAX - 1];

/// An algorithm that answers with extreme values, and sets the window to them in every method. With
/// a number it always uses that one of [`EXTREMES`], without one each in turn.
struct Nonsense(Option<usize>);

impl Nonsense {
    fn next(&self, state: &mut State) -> u32 {
        if let Some(fixed) = self.0 {
            return EXTREMES[fixed];
        }
        state[0] = state[0].wrapping_add(1);
        EXTREMES[state[0] as usize % EXTREMES.len()]
    }

    fn disturb(&self, state: &mut State, window: &mut Window) {
        state[1..].fill(u32::MAX);
        window.set_ssthresh(self.next(state));
        window.set_cwnd(self.next(state));
        let left = window.slow_start(self.next(state));
        window.grow_linearly(self.next(state), left);
        window.grow_linearly(self.next(state), self.next(state));
        window.set_cwnd(self.next(state));
    }
}

impl CongestionControl for Nonsense {
    fn begin(&self, state: &mut State, _: &SenderView, window: &mut Window) {
        self.disturb(state, window);
    }

    fn ssthresh(&self, state: &mut State, _: &SenderView, _: &Window) -> u32 {
        self.next(state)
    }

    fn grow(&self, state: &mut State, _: &SenderView, window: &mut Window, _: &AckSample) {
        self.disturb(state, window);
    }

    fn undo_cwnd(&self, state: &mut State, _: &Window) -> u32 {
        self.next(state)
    }

    fn on_acked(&self, state: &mut State, _: &SenderView, window: &mut Window, _: &AckSample) {
        self.disturb(state, window);
    }

    fn on_path(&self, state: &mut State, _: &SenderView, window: &mut Window, _: &PathReport) {
        self.disturb(state, window);
    }

    fn on_state(&self, state: &mut State, _: &SenderView, window: &mut Window, _: CaState) {
        self.disturb(state, window);
    }

    fn on_event(&self, state: &mut State, _: &SenderView, window: &mut Window, _: Event) {
        self.disturb(state, window);
    }

    fn pacing_rate(&self, state: &mut State, _: &SenderView, _: &Window, _: u32) -> Option<u64> {
        Some(match self.next(state) {
            u32::MAX => u64::MAX,
            rate => u64::from(rate),
        })
    }

    fn paces(&self) -> bool {
        true
    }
}

static NONSENSE: [OutsideAlgorithm; 7] = [
    OutsideAlgorithm::new("nonsense-0", &Nonsense(Some(0))),
    OutsideAlgorithm::new("nonsense-1", &Nonsense(Some(1))),
    OutsideAlgorithm::new("nonsense-2", &Nonsense(Some(2))),
    OutsideAlgorithm::new("nonsense-3", &Nonsense(Some(3))),
    OutsideAlgorithm::new("nonsense-4", &Nonsense(Some(4))),
    OutsideAlgorithm::new("nonsense-5", &Nonsense(Some(5))),
    OutsideAlgorithm::new("nonsense-all", &Nonsense(None)),
];

/// The course of a seed, with this algorithm instead of the drawn one.
fn with(seed: u64, choice: CongestionAlgorithm) -> Settings {
    let mut settings = draw::settings(seed);
    settings.config.congestion = match choice {
        CongestionAlgorithm::Outside(algorithm) => {
            let registered = settings.config.register_congestion(algorithm);
            registered.expect("a new name")
        }
        built_in => built_in,
    };
    settings
}

/// Plays the whole course; returns the digests of both ends after each quarter.
fn quarters(settings: Settings) -> Vec<[u64; 2]> {
    let mut path = Path::new(settings);
    let quarters = (1..=4).map(|row| {
        path.run_until_row(row, 4);
        [path.digest(0), path.digest(1)]
    });
    quarters.collect()
}

fn assert_alike(built_in: CongestionAlgorithm) {
    for seed in 1001..=1040 {
        let settings = with(seed, built_in);
        let mut twin = settings.clone();
        outside_twins::put_in(&mut twin.config);
        assert_ne!(twin.config.congestion, built_in);
        assert_eq!(quarters(twin), quarters(settings), "seed {seed}");
    }
}

#[test]
fn reno_from_outside_does_what_the_built_in_one_does() {
    assert_alike(CongestionAlgorithm::NewReno);
}

#[test]
fn dctcp_from_outside_does_what_the_built_in_one_does() {
    assert_alike(CongestionAlgorithm::Dctcp);
}

/// A bulk sender over the path of a seed, whose application ends after 9 s of 13 s.
fn bulk(seed: u64, algorithm: &'static OutsideAlgorithm) -> Path {
    Path::new(Settings {
        manner: Manner::Bulk,
        reader: Reader::Prompt,
        loss: seed % 3,
        ack_loss: 0,
        outage_ms: (0, 0),
        payload_max: u32::MAX,
        knobs: false,
        is_poor: false,
        ms: 13_000,
        ..with(seed, CongestionAlgorithm::Outside(algorithm))
    })
}

#[test]
fn nonsense_from_outside_stops_no_connection() {
    for seed in 1001..=1012 {
        for algorithm in &NONSENSE {
            let mut path = bulk(seed, algorithm);
            let mut got = 0;
            for row in 1..=4 {
                path.run_until_row(row, 6);
                let now = path.bytes_received();
                assert!(now > got, "seed {seed}, {}, row {row}", algorithm.name());
                got = now;
            }
        }
    }
}
