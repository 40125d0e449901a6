//! Random numbers: one generator with a fixed algorithm, and independent streams of it.
//!
//! A seed must mean the same world for as long as it stands in a list of regressions. The algorithm
//! (PCG64 MCG, whose output its crate guarantees) and the ways to draw from it therefore stand only
//! here. Each part of a world has its own stream, so switching off one kind of fault leaves all
//! other draws unchanged.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// The stream number `stream` of `seed`.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let low = mix(seed ^ mix(stream));
        let high = mix(low ^ seed.rotate_left(32));
        Self(Pcg64Mcg::new(u128::from(high) << 64 | u128::from(low)))
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(n)) >> 64) as u64
    }

    /// A uniform number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// A number from `low` to `high`; all powers of two between them are equally likely.
    pub fn magnitude(&mut self, low: u64, high: u64) -> u64 {
        let (first, last) = (low.max(1).ilog2(), high.max(1).ilog2());
        let octave = self.between(u64::from(first), u64::from(last));
        let base = 1u64 << octave;
        self.between(base, base * 2 - 1).clamp(low, high)
    }

    /// True with a probability of `ppm` millionths. Always draws a number, so the stream stays in
    /// step.
    pub fn chance_ppm(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }

    /// True with a probability of `percent` hundredths.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `items`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

/// A bijection that scatters similar words (the finalizer of SplitMix64).
#[must_use]
pub fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dice_never_change() {
        let mut random = Random::new(7, 1);
        let seen: Vec<u64> = (0..4).map(|_| random.below(1_000_000)).collect();
        assert_eq!(seen, [221_100, 630_340, 475_002, 448_682]);
    }

    #[test]
    fn draws_stay_in_their_ranges() {
        let mut random = Random::new(1, 2);
        for _ in 0..10_000 {
            assert!((3..=9).contains(&random.between(3, 9)));
            assert!((5..=1_000).contains(&random.magnitude(5, 1_000)));
        }
        assert_eq!(random.below(0), 0);
    }
}
