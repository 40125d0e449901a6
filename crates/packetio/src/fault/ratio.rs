//! Probabilities as integers, and the random numbers for them. Without floating point, a seed gives
//! the same trace on every machine.

use std::fmt;
use std::str::FromStr;

const BILLION: u32 = 1_000_000_000;

/// A probability in parts per billion, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ratio(u32);

impl Ratio {
    /// Probability 0: never.
    pub const ZERO: Self = Self(0);
    /// Probability 1: always.
    pub const ONE: Self = Self(BILLION);

    /// A probability in parts per billion; capped at 1.
    pub const fn from_ppb(ppb: u32) -> Self {
        Self(if ppb > BILLION { BILLION } else { ppb })
    }

    /// A probability in parts per million; capped at 1.
    pub const fn from_ppm(ppm: u32) -> Self {
        Self::from_ppb(ppm.saturating_mul(1000))
    }

    /// The probability in parts per billion.
    pub const fn ppb(self) -> u32 {
        self.0
    }

    /// True if a random value falls within the probability.
    #[inline]
    pub fn hit(self, thrown: u64) -> bool {
        ((u128::from(thrown) * u128::from(BILLION)) >> 64) < u128::from(self.0)
    }
}

impl FromStr for Ratio {
    type Err = &'static str;

    /// Parses `0.01`, `1%` or `1`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const BAD: &str = "expected a probability from 0 to 1, such as 0.01 or 1%";
        let (number, scale) = match text.strip_suffix('%') {
            Some(percent) => (percent, 0.01),
            None => (text, 1.0),
        };
        let value = number.parse::<f64>().map_err(|_| BAD)? * scale;
        if (0.0..=1.0).contains(&value) {
            Ok(Self((value * f64::from(BILLION)).round() as u32))
        } else {
            Err(BAD)
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:09}", self.0 % BILLION);
        match digits.trim_end_matches('0') {
            "" => write!(f, "{}", self.0 / BILLION),
            digits => write!(f, "{}.{digits}", self.0 / BILLION),
        }
    }
}

/// SplitMix64: small, seedable, and random enough for faults.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Makes a generator that starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next random value, uniform over all of u64.
    #[inline]
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

/// A value derived from another one, without advancing the generator.
#[inline]
pub(super) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Scales a random value to `0..bound`; 0 for a bound of 0.
#[inline]
pub(super) fn below(thrown: u64, bound: u64) -> u64 {
    ((u128::from(thrown) * u128::from(bound)) >> 64) as u64
}
