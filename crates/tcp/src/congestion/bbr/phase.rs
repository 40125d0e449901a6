//! The states of BBR, their gains, and the cycle of gains in PROBE_BW.

use super::micros;
use super::rate::GAIN_ONE;
use crate::congestion::Moment;

/// 2 / ln 2: the least gain at which the rate doubles in each round trip.
pub(super) const HIGH_GAIN: u32 = GAIN_ONE * 2885 / 1000 + 1;
/// Inverse of `HIGH_GAIN`: it drains in one round trip the queue that STARTUP built in another.
const DRAIN_GAIN: u32 = GAIN_ONE * 1000 / 2885;
/// Gain of the window outside STARTUP, with room for delayed and stretched ACKs.
const CWND_GAIN: u32 = 2 * GAIN_ONE;
/// Gains of PROBE_BW: probe for more, drain what that queued, then keep the rate.
const CYCLE: [u32; 8] = [
    GAIN_ONE * 5 / 4,
    GAIN_ONE * 3 / 4,
    GAIN_ONE,
    GAIN_ONE,
    GAIN_ONE,
    GAIN_ONE,
    GAIN_ONE,
    GAIN_ONE,
];

/// State of BBR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The rate doubles with every round trip until it stops growing.
    Startup,
    /// The queue that STARTUP built leaves.
    Drain,
    /// Cycles of gains around BtlBw.
    ProbeBw {
        /// Current phase of the cycle, and its start in microseconds that wrap.
        phase: u8,
        since_us: u32,
    },
    /// Almost nothing is in flight, so that a measured round trip is RTprop.
    ProbeRtt {
        /// A round has passed since `since_ms`.
        round_done: bool,
        /// Time since which little enough is in flight, in milliseconds that wrap; 0: not yet.
        since_ms: u32,
    },
}

impl Mode {
    /// PROBE_RTT, as it begins.
    pub const PROBE_RTT: Mode = Mode::ProbeRtt {
        round_done: false,
        since_ms: 0,
    };

    /// PROBE_BW, beginning at a random phase except the draining one: flows that share a bottleneck
    /// must not probe in step.
    pub fn probe_bw(at: &Moment<'_>) -> Self {
        let scatter = at.una.0 ^ at.now_ns as u32;
        let scatter = scatter.wrapping_mul(0x9e37_79b9) >> 16;
        let phase = match scatter % 7 {
            0 => 0,
            other => other as u8 + 1,
        };
        Mode::ProbeBw {
            phase,
            since_us: micros(at.delivered_ns),
        }
    }

    /// Begins the next phase of the cycle.
    pub fn advance(&mut self, now_us: u32) {
        if let Mode::ProbeBw { phase, since_us } = self {
            *phase = (*phase + 1) % CYCLE.len() as u8;
            *since_us = now_us;
        }
    }

    #[inline]
    pub fn is_probe_bw(self) -> bool {
        matches!(self, Mode::ProbeBw { .. })
    }

    pub fn pacing_gain(self) -> u32 {
        match self {
            Mode::Startup => HIGH_GAIN,
            Mode::Drain => DRAIN_GAIN,
            Mode::ProbeBw { phase, .. } => {
                CYCLE.get(usize::from(phase)).copied().unwrap_or(GAIN_ONE)
            }
            Mode::ProbeRtt { .. } => GAIN_ONE,
        }
    }

    pub fn cwnd_gain(self) -> u32 {
        match self {
            Mode::Startup | Mode::Drain => HIGH_GAIN,
            Mode::ProbeBw { .. } => CWND_GAIN,
            Mode::ProbeRtt { .. } => GAIN_ONE,
        }
    }
}
