//! Detection of policers. A token bucket lets a burst pass and then drops the excess over its rate,
//! so the largest rate seen is more than the path gives. A policer is assumed after two intervals
//! in a row with nearly the same rate. An interval begins and ends with a loss, and at least a
//! fifth of its segments are lost. The measured rate then replaces BtlBw for a while.

use super::rate::{GAIN_ONE, GAIN_SHIFT, Rate, paced_bytes_per_second, rate_of};
use crate::MILLISECOND_NS;
use crate::congestion::Moment;

/// Shortest and longest interval, in rounds.
const ROUNDS_MIN: u8 = 4;
const ROUNDS_MAX: u8 = 4 * ROUNDS_MIN;
/// Rounds for which the policer's rate is used.
const ROUNDS_USED: u8 = 48;
/// Least ratio of lost to delivered segments in an interval, in 1/256: about a fifth.
const LOSS_RATIO: u64 = 50;
/// Two rates count as equal if they differ by at most an eighth, or by at most 500 bytes per
/// second.
const RATE_SHARE: u64 = 8;
const RATE_BYTES: u64 = 500;

/// Stage of the detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Stage {
    /// Waiting for a loss.
    Waiting,
    /// An interval is being measured.
    Sampling,
    /// `rate` replaces BtlBw.
    InUse,
}

/// The current interval, and the rate of the previous one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LongTerm {
    /// Rate of the previous interval, or of the policer in use; 0: no interval was measured yet.
    rate: Rate,
    /// The connection's counts, and the time of its last delivery in milliseconds, when the
    /// interval began.
    delivered: u32,
    lost: u32,
    since_ms: u32,
    rounds: u8,
    stage: Stage,
}

/// Facts of one ACK or timeout.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckFacts {
    pub round_start: bool,
    pub lost: bool,
    pub app_limited: bool,
    /// BBR is in PROBE_BW. Only then does a round count towards the end of the rate's use.
    pub cycling: bool,
}

impl LongTerm {
    pub const WAITING: LongTerm = LongTerm {
        rate: 0,
        delivered: 0,
        lost: 0,
        since_ms: 0,
        rounds: 0,
        stage: Stage::Waiting,
    };

    /// The policer's rate, if there is one.
    #[inline]
    pub fn rate(&self) -> Option<Rate> {
        (self.stage == Stage::InUse).then_some(self.rate)
    }

    /// Takes an ACK or timeout. True when the policer's rate has been used long enough, so that the
    /// gains probe again.
    #[inline]
    pub fn sample(&mut self, at: &Moment<'_>, facts: AckFacts) -> bool {
        match self.stage {
            Stage::Waiting if !facts.lost => false,
            Stage::InUse => self.use_up(facts),
            _ => {
                self.measure(at, facts);
                false
            }
        }
    }

    fn use_up(&mut self, facts: AckFacts) -> bool {
        if !facts.cycling || !facts.round_start {
            return false;
        }
        self.rounds += 1;
        let over = self.rounds >= ROUNDS_USED;
        if over {
            *self = Self::WAITING;
        }
        over
    }

    fn measure(&mut self, at: &Moment<'_>, facts: AckFacts) {
        // The first loss: the bucket is empty from here on.
        if self.stage == Stage::Waiting {
            self.begin(at);
        }
        if facts.app_limited {
            *self = Self::WAITING;
            return;
        }
        self.rounds += u8::from(facts.round_start);
        if self.rounds > ROUNDS_MAX {
            *self = Self::WAITING;
            return;
        }
        // The interval ends with a loss, because the bucket is empty then.
        if self.rounds < ROUNDS_MIN || !facts.lost {
            return;
        }
        let lost = u64::from(at.lost.wrapping_sub(self.lost));
        let delivered = at.delivered.wrapping_sub(self.delivered);
        if delivered == 0 || lost << GAIN_SHIFT < LOSS_RATIO * u64::from(delivered) {
            return;
        }
        let took_ms = millis(at.delivered_ns).wrapping_sub(self.since_ms);
        if (took_ms as i32) < 1 {
            return;
        }
        match took_ms.checked_mul(1000) {
            Some(took_us) => self.conclude(at, rate_of(delivered, took_us)),
            None => *self = Self::WAITING,
        }
    }

    /// Begins an interval.
    fn begin(&mut self, at: &Moment<'_>) {
        self.stage = Stage::Sampling;
        self.delivered = at.delivered;
        self.lost = at.lost;
        self.since_ms = millis(at.delivered_ns);
        self.rounds = 0;
    }

    /// Ends an interval that had `rate`. If the previous interval had the same rate, a policer is
    /// found.
    fn conclude(&mut self, at: &Moment<'_>, rate: Rate) {
        let apart = rate.abs_diff(self.rate);
        let same = u64::from(apart) * RATE_SHARE <= u64::from(self.rate)
            || paced_bytes_per_second(apart, GAIN_ONE, at.mss) <= RATE_BYTES;
        if self.rate != 0 && same {
            self.rate = ((u64::from(rate) + u64::from(self.rate)) / 2) as Rate;
            self.rounds = 0;
            self.stage = Stage::InUse;
        } else {
            self.rate = rate;
            self.begin(at);
        }
    }
}

/// Milliseconds, wrapping.
fn millis(ns: u64) -> u32 {
    (ns / MILLISECOND_NS) as u32
}
