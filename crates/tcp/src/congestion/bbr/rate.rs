//! Delivery rates, and the largest one of the last round trips: BtlBw.

/// Segments per microsecond, with [`RATE_SHIFT`] fractional bits: from one segment in 17 seconds to
/// 256 in a microsecond.
pub(super) type Rate = u32;
pub(super) const RATE_SHIFT: u32 = 24;
/// Gains have eight fractional bits.
pub(super) const GAIN_SHIFT: u32 = 8;
pub(super) const GAIN_ONE: u32 = 1 << GAIN_SHIFT;
/// Percent of the rate at which segments leave: a little less than the path carries, so that queues
/// drain on average.
const PACED_PERCENT: u128 = 99;

/// The rate of `segments` in `interval_us`, which is not 0.
#[inline]
pub(super) fn rate_of(segments: u32, interval_us: u32) -> Rate {
    let rate = (u64::from(segments) << RATE_SHIFT) / u64::from(interval_us.max(1));
    Rate::try_from(rate).unwrap_or(Rate::MAX)
}

/// Segments that `rate` delivers in `time_us`, rounded down.
#[inline]
pub(super) fn segments_in(rate: Rate, time_us: u32) -> u32 {
    let segments = (u64::from(rate) * u64::from(time_us)) >> RATE_SHIFT;
    u32::try_from(segments).unwrap_or(u32::MAX)
}

/// Bytes per second of `rate` times `gain`, for segments of `mss` bytes, less the pacing margin.
#[inline]
pub(super) fn paced_bytes_per_second(rate: Rate, gain: u32, mss: u32) -> u64 {
    let bytes = (u128::from(rate) * u128::from(mss) * u128::from(gain)) >> GAIN_SHIFT;
    let per_second = (bytes * (1_000_000 / 100) * PACED_PERCENT) >> RATE_SHIFT;
    u64::try_from(per_second).unwrap_or(u64::MAX)
}

/// The largest rate in a window of rounds: the three best candidates, each measured later than the
/// one before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MaxFilter {
    rates: [Rate; 3],
    rounds: [u16; 3],
    /// The current round. A round ends when a segment arrives that was sent after it began.
    pub round: u16,
}

/// Rounds in BtlBw's window: one cycle of gains, and two more.
const ROUNDS: u16 = 10;

impl MaxFilter {
    pub const EMPTY: MaxFilter = MaxFilter {
        rates: [0; 3],
        rounds: [0; 3],
        round: 0,
    };

    /// The largest rate; 0 = none was seen.
    #[inline]
    pub fn max(&self) -> Rate {
        self.rates[0]
    }

    /// Notes a rate that was measured in the current round.
    #[inline]
    pub fn note(&mut self, rate: Rate) {
        if rate >= self.rates[0] || self.age(2) > ROUNDS {
            self.put(0, rate);
            return;
        }
        if rate >= self.rates[1] {
            self.put(1, rate);
        } else if rate >= self.rates[2] {
            self.put(2, rate);
        }
        self.grow_old(rate);
    }

    /// Drops a best candidate that has left the window. Renews the later candidates when they are
    /// too close in time to the best to succeed it.
    fn grow_old(&mut self, rate: Rate) {
        if self.age(0) > ROUNDS {
            self.shift(rate);
            if self.age(0) > ROUNDS {
                self.shift(rate);
            }
        } else if self.rounds[1] == self.rounds[0] && self.age(0) > ROUNDS / 4 {
            self.put(1, rate);
        } else if self.rounds[2] == self.rounds[1] && self.age(0) > ROUNDS / 2 {
            self.put(2, rate);
        }
    }

    fn age(&self, candidate: usize) -> u16 {
        self.round.wrapping_sub(self.rounds[candidate])
    }

    /// Puts `rate` in place of this candidate and all later ones.
    fn put(&mut self, from: usize, rate: Rate) {
        for candidate in from..3 {
            self.rates[candidate] = rate;
            self.rounds[candidate] = self.round;
        }
    }

    /// Moves the second candidate to the first place, and so on.
    fn shift(&mut self, rate: Rate) {
        self.rates = [self.rates[1], self.rates[2], rate];
        self.rounds = [self.rounds[1], self.rounds[2], self.round];
    }
}
