//! HyStart: leaves slow start before the queue overflows, by two signs in the ACKs of one round
//! trip.
//!
//! * ACK train: closely spaced ACKs span more than half of the least round trip. The flight then
//!   fills the path.
//! * Delay: the round trips of this round exceed the least one by an eighth of it (bounded to 4 to
//!   16 ms). A queue is then building up.
//!
//! Owned by CUBIC, which sets the threshold. The form and the settings are Linux's.

use wire::SeqNumber;

use super::Moment;
use crate::config::CubicSettings;
use crate::pack::{Packing, Usual};

/// Round trips measured in a round before its delay is judged.
const SAMPLES_MIN: u8 = 8;
/// Bounds of the delay that ends slow start.
const DELAY_US_MIN: u32 = 4_000;
const DELAY_US_MAX: u32 = 16_000;
/// Bytes that sender and receiver may aggregate and so stretch an ACK train, and the longest time
/// by which they may stretch it.
const BURST_BYTES: u64 = 4 * 65_536;
const BURST_US_MAX: u64 = 1_000;

/// The observations of one round.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HyStart {
    /// Start of the round, and the latest ACK of the train; microseconds that wrap.
    round_start_us: u32,
    last_ack_us: u32,
    /// The round ends when this number is acknowledged.
    round_end: SeqNumber,
    /// Least round trip of this round.
    round_rtt_us: u32,
    samples: u8,
    /// True once the end of slow start was found; the search begins again after a timeout.
    found: bool,
}

impl HyStart {
    /// The state at the start of a round.
    pub fn new(at: &Moment<'_>) -> Self {
        let now_us = micros(at.now_ns);
        HyStart {
            round_start_us: now_us,
            last_ack_us: now_us,
            round_end: at.nxt,
            round_rtt_us: u32::MAX,
            samples: 0,
            found: false,
        }
    }

    /// A state without observations, which unpacking overwrites.
    pub const BLANK: HyStart = HyStart {
        round_start_us: 0,
        last_ack_us: 0,
        round_end: SeqNumber(0),
        round_rtt_us: 0,
        samples: 0,
        found: false,
    };

    pub fn pack(&mut self, p: &mut impl Packing, usual: &Usual) {
        let HyStart {
            round_start_us,
            last_ack_us,
            round_end,
            round_rtt_us,
            samples,
            found,
        } = self;
        p.u32(round_start_us, usual.us());
        p.u32(last_ack_us, *round_start_us);
        p.seq(round_end, usual.una);
        p.u32(round_rtt_us, u32::MAX);
        p.u8(samples, 0);
        p.bool(found);
    }

    /// True if slow start ends at this ACK, which measured a round trip.
    pub fn is_over(&mut self, at: &Moment<'_>, cwnd: u32, rtt_us: u32, delay_min_us: u32) -> bool {
        let settings = &at.config.cubic;
        if self.found {
            return false;
        }
        if at.una.gt(self.round_end) {
            *self = Self::new(at);
        }
        if cwnd < settings.hystart_low_window {
            return false;
        }
        let train = settings.hystart_ack_train && self.train_is_long(at, settings, delay_min_us);
        let delay = settings.hystart_delay && self.delay_is_long(rtt_us, delay_min_us);
        self.found = train || delay;
        self.found
    }

    fn train_is_long(
        &mut self,
        at: &Moment<'_>,
        settings: &CubicSettings,
        delay_min_us: u32,
    ) -> bool {
        let now_us = micros(at.now_ns);
        if now_us.wrapping_sub(self.last_ack_us) > settings.hystart_ack_delta_us {
            return false;
        }
        self.last_ack_us = now_us;
        let span_us = delay_min_us.saturating_add(burst_us(at));
        // A paced sender itself spreads its segments over half of the round trip, so its limit is a
        // whole one.
        let limit_us = if at.paced { span_us } else { span_us / 2 };
        now_us.wrapping_sub(self.round_start_us) > limit_us
    }

    fn delay_is_long(&mut self, rtt_us: u32, delay_min_us: u32) -> bool {
        self.round_rtt_us = self.round_rtt_us.min(rtt_us);
        if self.samples < SAMPLES_MIN {
            self.samples += 1;
            return false;
        }
        let rise_us = (delay_min_us / 8).clamp(DELAY_US_MIN, DELAY_US_MAX);
        self.round_rtt_us > delay_min_us.saturating_add(rise_us)
    }
}

/// Time that the path takes for one burst at the pacing rate of slow start (two windows a round
/// trip).
fn burst_us(at: &Moment<'_>) -> u32 {
    let us = match at.pacing_rate {
        0 => 0,
        rate => (BURST_BYTES * 1_000_000 / rate).min(BURST_US_MAX),
    };
    us as u32
}

fn micros(ns: u64) -> u32 {
    (ns / 1000) as u32
}

#[cfg(test)]
mod tests;
