//! Algorithms from outside the crate on the same courses: Reno and DCTCP, written over the public
//! trait, do what the built-in ones do, and nonsense stops no connection.

use tcp::congestion_control::{
    AckSample, CaState, CongestionControl, Event, OutsideAlgorithm, PathReport, SenderView, State,
    Window,
};
use tcp::CongestionAlgorithm;
use wire::SeqNumber;

use crate::draw::{self, Manner, Reader, Settings};
use crate::path::Path;

/// RFC 5681 and 6582.
struct Reno;

impl CongestionControl for Reno {
    fn ssthresh(&self, _: &mut State, _: &SenderView, window: &Window) -> u32 {
        window.cwnd() / 2
    }

    fn grow(&self, _: &mut State, _: &SenderView, window: &mut Window, ack: &AckSample) {
        let mut acked = ack.acked;
        if window.in_slow_start() {
            acked = window.slow_start(acked);
        }
        if acked > 0 {
            window.grow_linearly(window.cwnd(), acked);
        }
    }
}

/// RFC 8257.
struct Dctcp;

/// Its words: alpha in 1/1024, the end of the round, the counts at the round's beginning, the window
/// at the last reduction.
const ALPHA: usize = 0;
const ROUND_END: usize = 1;
const DELIVERED: usize = 2;
const MARKED: usize = 3;
const LOSS_CWND: usize = 4;

impl Dctcp {
    fn begin_round(state: &mut State, at: &SenderView) {
        state[ROUND_END] = at.nxt.0;
        state[DELIVERED] = at.delivered;
        state[MARKED] = at.delivered_ce;
    }

    fn on_loss(state: &mut State, window: &mut Window) {
        state[LOSS_CWND] = window.cwnd();
        window.set_ssthresh(window.cwnd() / 2);
    }
}

impl CongestionControl for Dctcp {
    fn begin(&self, state: &mut State, at: &SenderView, _: &mut Window) {
        state[ALPHA] = 1024;
        Self::begin_round(state, at);
    }

    fn ssthresh(&self, state: &mut State, _: &SenderView, window: &Window) -> u32 {
        state[LOSS_CWND] = window.cwnd();
        let cut = (u64::from(window.cwnd()) * u64::from(state[ALPHA])) >> 11;
        window.cwnd() - cut as u32
    }

    fn grow(&self, state: &mut State, at: &SenderView, window: &mut Window, ack: &AckSample) {
        Reno.grow(state, at, window, ack);
    }

    fn undo_cwnd(&self, state: &mut State, window: &Window) -> u32 {
        window.cwnd().max(state[LOSS_CWND])
    }

    fn on_acked(&self, state: &mut State, at: &SenderView, _: &mut Window, _: &AckSample) {
        if at.una.lt(SeqNumber(state[ROUND_END])) {
            return;
        }
        let delivered = at.delivered.wrapping_sub(state[DELIVERED]);
        let marked = at.delivered_ce.wrapping_sub(state[MARKED]);
        let decay = match state[ALPHA] >> 4 {
            0 => state[ALPHA],
            decay => decay,
        };
        let share = (u64::from(marked) << 6) / u64::from(delivered.max(1));
        let share = u32::try_from(share).unwrap_or(1024);
        state[ALPHA] = (state[ALPHA] - decay).saturating_add(share).min(1024);
        Self::begin_round(state, at);
    }

    fn on_state(&self, state: &mut State, _: &SenderView, window: &mut Window, next: CaState) {
        if next == CaState::Recovery {
            Self::on_loss(state, window);
        }
    }

    fn on_event(&self, state: &mut State, _: &SenderView, window: &mut Window, event: Event) {
        if event == Event::Loss {
            Self::on_loss(state, window);
        }
    }

    fn wants_ecn(&self) -> bool {
        true
    }
}

/// The values that an algorithm of [`Nonsense`] gives in turn.
const EXTREMES: [u32; 6] = [0, u32::MAX, 1, 1 << 31, 7, u32::MAX - 1];

/// Answers with extremes, and asks them of the window in every method. The number chooses which: of
/// [`EXTREMES`] one, or each in turn.
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

static RENO: OutsideAlgorithm = OutsideAlgorithm::new("reno-outside", &Reno);
static DCTCP: OutsideAlgorithm = OutsideAlgorithm::new("dctcp-outside", &Dctcp);
static NONSENSE: [OutsideAlgorithm; 7] = [
    OutsideAlgorithm::new("nonsense-0", &Nonsense(Some(0))),
    OutsideAlgorithm::new("nonsense-1", &Nonsense(Some(1))),
    OutsideAlgorithm::new("nonsense-2", &Nonsense(Some(2))),
    OutsideAlgorithm::new("nonsense-3", &Nonsense(Some(3))),
    OutsideAlgorithm::new("nonsense-4", &Nonsense(Some(4))),
    OutsideAlgorithm::new("nonsense-5", &Nonsense(Some(5))),
    OutsideAlgorithm::new("nonsense-all", &Nonsense(None)),
];

/// The course of a seed, with this algorithm in place of the one that it draws.
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

/// The whole course, with the digests of both ends after each quarter.
fn quarters(settings: Settings) -> Vec<[u64; 2]> {
    let mut path = Path::new(settings);
    let quarters = (1..=4).map(|row| {
        path.run_until_row(row, 4);
        [path.digest(0), path.digest(1)]
    });
    quarters.collect()
}

fn assert_alike(built_in: CongestionAlgorithm, outside: &'static OutsideAlgorithm) {
    for seed in 1001..=1040 {
        let expected = quarters(with(seed, built_in));
        let found = quarters(with(seed, CongestionAlgorithm::Outside(outside)));
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn reno_from_outside_does_what_the_built_in_one_does() {
    assert_alike(CongestionAlgorithm::NewReno, &RENO);
}

#[test]
fn dctcp_from_outside_does_what_the_built_in_one_does() {
    assert_alike(CongestionAlgorithm::Dctcp, &DCTCP);
}

/// A bulk sender over the path of a seed. Its application ends after 9 s of 13 s.
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
