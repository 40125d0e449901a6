//! HyStart++ (RFC 9406): a rise of the round trip ends slow start on trial. Conservative slow start
//! (CSS) follows. If the round trip falls back, the rise was jitter and slow start resumes;
//! otherwise it ends after five rounds of CSS.
//!
//! CUBIC owns this state in place of HyStart, if the setting says so.

use wire::SeqNumber;

use super::Moment;
use crate::pack::{Packing, Usual};

/// MIN_RTT_THRESH, MAX_RTT_THRESH and MIN_RTT_DIVISOR.
const RISE_US_MIN: u32 = 4_000;
const RISE_US_MAX: u32 = 16_000;
const RISE_DIVISOR: u32 = 8;
/// N_RTT_SAMPLE
const SAMPLES_MIN: u8 = 8;
/// CSS_GROWTH_DIVISOR
const CSS_GROWTH_DIVISOR: u32 = 4;
/// CSS_ROUNDS
const CSS_ROUNDS: u8 = 5;
/// L: segments by which one ACK may grow the window of a sender that does not pace.
const GROWTH_MAX: u32 = 8;
/// Value of a round trip that was not measured.
const NO_RTT: u32 = u32::MAX;

/// Observations of this round and the previous one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HyStartPlus {
    /// The round ends when this number is acknowledged.
    round_end: SeqNumber,
    last_rtt_us: u32,
    round_rtt_us: u32,
    samples: u8,
    /// Rounds of CSS, the current one included; 0 = standard slow start.
    css_rounds: u8,
    /// The round trip that began CSS. A smaller one shows that the rise was spurious.
    css_baseline_us: u32,
    /// Acknowledged segments that CSS has not turned into growth yet.
    css_acked: u32,
    /// Slow start is over until the next timeout.
    over: bool,
    paced: bool,
}

impl HyStartPlus {
    /// The first round.
    pub fn new(at: &Moment<'_>) -> Self {
        HyStartPlus {
            round_end: at.nxt,
            last_rtt_us: NO_RTT,
            round_rtt_us: NO_RTT,
            samples: 0,
            css_rounds: 0,
            css_baseline_us: NO_RTT,
            css_acked: 0,
            over: false,
            paced: at.paced,
        }
    }

    /// A state without observations, which unpacking overwrites.
    pub const BLANK: HyStartPlus = HyStartPlus {
        round_end: SeqNumber(0),
        last_rtt_us: NO_RTT,
        round_rtt_us: NO_RTT,
        samples: 0,
        css_rounds: 0,
        css_baseline_us: NO_RTT,
        css_acked: 0,
        over: false,
        paced: false,
    };

    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let HyStartPlus {
            round_end,
            last_rtt_us,
            round_rtt_us,
            samples,
            css_rounds,
            css_baseline_us,
            css_acked,
            over,
            paced,
        } = self;
        p.seq(round_end, usual.una);
        p.u32(last_rtt_us, NO_RTT);
        p.u32(round_rtt_us, NO_RTT);
        p.u8(samples, 0);
        p.u8(css_rounds, 0);
        p.u32(css_baseline_us, NO_RTT);
        p.u32(css_acked, 0);
        p.bool(over);
        p.bool(paced);
    }

    /// The growth that slow start allows after `acked` segments were acknowledged.
    pub fn limit(&mut self, acked: u32) -> u32 {
        let mut growth = acked;
        if !self.paced {
            growth = growth.min(GROWTH_MAX);
        }
        if self.css_rounds == 0 {
            return growth;
        }
        self.css_acked = self.css_acked.saturating_add(growth);
        let steps = self.css_acked / CSS_GROWTH_DIVISOR;
        self.css_acked %= CSS_GROWTH_DIVISOR;
        steps
    }

    /// True if slow start ends at this ACK, which measured a round trip.
    pub fn is_over(&mut self, at: &Moment<'_>, rtt_us: u32) -> bool {
        if self.over {
            return false;
        }
        self.paced = at.paced;
        if at.una.gt(self.round_end) {
            self.over = self.css_rounds >= CSS_ROUNDS;
            self.begin_round(at);
        }
        self.round_rtt_us = self.round_rtt_us.min(rtt_us);
        self.samples = self.samples.saturating_add(1);
        if self.css_rounds == 0 {
            self.consider_css();
        } else if self.samples >= SAMPLES_MIN && self.round_rtt_us < self.css_baseline_us {
            self.css_baseline_us = NO_RTT;
            self.css_rounds = 0;
        }
        self.over
    }

    fn consider_css(&mut self) {
        if self.samples < SAMPLES_MIN || self.last_rtt_us == NO_RTT {
            return;
        }
        let rise_us = (self.last_rtt_us / RISE_DIVISOR).clamp(RISE_US_MIN, RISE_US_MAX);
        if self.round_rtt_us >= self.last_rtt_us.saturating_add(rise_us) {
            self.css_baseline_us = self.round_rtt_us;
            self.css_rounds = 1;
            self.css_acked = 0;
        }
    }

    fn begin_round(&mut self, at: &Moment<'_>) {
        self.round_end = at.nxt;
        self.last_rtt_us = self.round_rtt_us;
        self.round_rtt_us = NO_RTT;
        self.samples = 0;
        if self.css_rounds > 0 {
            self.css_rounds += 1;
        }
    }
}

#[cfg(test)]
mod tests;
