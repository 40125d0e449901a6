//! A test whether the runs of one measurement fall into two groups.
//!
//! A median between two groups is a value that no run had, so the reader has to know. Two groups
//! are reported when all of this holds:
//!
//! 1. There are at least [`RUNS_MIN`] runs, and each group has at least [`GROUP_MIN`] of them: a
//!    single run far from all others is an outlier and not a group.
//! 2. The split of the sorted values that leaves the least variance inside the groups removes
//!    nine tenths of the variance, or nineteen twentieths where there are fewer than
//!    [`RUNS_MANY`] runs. The best split of evenly spread values removes three quarters.
//! 3. The means of the groups lie at least [`DISTANCE_MIN`] of the lower one apart: a smaller
//!    difference decides nothing.
//!
//! Among sets of random values with one level, drawn evenly, normally or exponentially, fewer than
//! 8 of 100 pass the first two conditions; `one_level_is_rarely_taken_for_two` counts them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::outcome::number;
use super::stats::median;

/// Number of runs below which no groups are reported.
const RUNS_MIN: usize = 6;
/// Number of runs from which on a split need remove less of the variance.
const RUNS_MANY: usize = 9;
/// Number of runs below which runs are no group.
const GROUP_MIN: usize = 2;
/// Part of the lower mean that must lie between the means.
const DISTANCE_MIN: f64 = 0.1;
/// Part of the variance that may be left inside the groups, of few runs and of many.
const LEFT_MAX: (f64, f64) = (0.05, 0.1);

/// Two groups of runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Levels {
    pub lower: Level,
    pub upper: Level,
}

/// One group of runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    pub runs: usize,
    pub median: f64,
}

impl Levels {
    /// The two groups of these values; none if they are one.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.len() < RUNS_MIN {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let splits = (GROUP_MIN..=sorted.len() - GROUP_MIN).map(|at| sorted.split_at(at));
        let left = |(lower, upper): &(&[f64], &[f64])| deviations(lower) + deviations(upper);
        let best = splits.min_by(|one, other| left(one).total_cmp(&left(other)))?;
        let left_max = match sorted.len() < RUNS_MANY {
            true => LEFT_MAX.0,
            false => LEFT_MAX.1,
        };
        let (lower, upper) = best;
        let is_apart = mean(upper) - mean(lower) >= DISTANCE_MIN * mean(lower).abs();
        let is_split = left(&best) <= left_max * deviations(&sorted);
        // Equal values have no variance to remove and no distance either.
        (is_apart && is_split && mean(upper) > mean(lower)).then(|| Self {
            lower: Level::of(lower),
            upper: Level::of(upper),
        })
    }
}

impl Level {
    fn of(values: &[f64]) -> Self {
        Self {
            runs: values.len(),
            median: median(values.iter().copied()),
        }
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lower, upper } = self;
        let [low, high] = [lower.median, upper.median].map(number);
        let (low_runs, high_runs) = (lower.runs, upper.runs);
        write!(
            formatter,
            "two groups: {low_runs} runs at {low}, {high_runs} at {high}"
        )
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sum of the squares of the distances from the mean.
fn deviations(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_at_two_speeds_are_two_groups() {
        let thousands = [
            851.0, 1229.0, 856.0, 868.0, 1175.0, 878.0, 895.0, 1228.0, 895.0, 967.0, 1093.0,
        ];
        let levels = Levels::of(&thousands).unwrap();
        assert_eq!((levels.lower.runs, levels.lower.median), (7, 878.0));
        assert_eq!((levels.upper.runs, levels.upper.median), (4, 1201.5));
    }

    #[test]
    fn single_run_far_away_is_no_group() {
        let values = [100.0, 101.0, 102.0, 99.0, 100.5, 101.5, 98.0, 100.0, 300.0];
        assert_eq!(Levels::of(&values), None);
    }

    #[test]
    fn groups_that_hardly_differ_are_one() {
        let values = [100.0, 100.1, 100.2, 105.0, 105.1, 105.2];
        assert_eq!(Levels::of(&values), None);
        let values = [100.0, 100.1, 100.2, 115.0, 115.1, 115.2];
        assert!(Levels::of(&values).is_some());
    }

    #[test]
    fn too_few_or_equal_runs_show_no_groups() {
        assert_eq!(Levels::of(&[1.0, 1.0, 1.0, 2.0, 2.0]), None);
        assert_eq!(Levels::of(&[5.0; 12]), None);
        assert_eq!(Levels::of(&[0.0; 12]), None);
        assert_eq!(Levels::of(&[]), None);
    }

    /// Numbers from 0 to 1, the same in every run (splitmix64).
    fn numbers() -> impl FnMut() -> f64 {
        let mut state = 1u64;
        move || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut bits = state;
            bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    #[test]
    fn one_level_is_rarely_taken_for_two() {
        let mut next = numbers();
        type Shape = fn(&mut dyn FnMut() -> f64) -> f64;
        let shapes: [Shape; 3] = [
            |next| next(),
            |next| (0..12).map(|_| next()).sum(),
            |next| -(1.0 - next()).ln(),
        ];
        for shape in shapes {
            for runs in [6, 7, 9, 11, 15] {
                let taken = (0..2_000).filter(|_| {
                    // The least value is shifted to 0, so that the third condition hardly decides
                    // anything.
                    let values: Vec<f64> = (0..runs).map(|_| shape(&mut next)).collect();
                    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
                    let values: Vec<f64> = values.iter().map(|value| value - least).collect();
                    Levels::of(&values).is_some()
                });
                let taken = taken.count();
                assert!(taken < 170, "{taken} of 2,000 sets of {runs} runs");
            }
        }
    }

    #[test]
    fn two_levels_four_tenths_apart_are_mostly_found() {
        let mut next = numbers();
        let found = (0..1_000).filter(|_| {
            let noise = |next: &mut dyn FnMut() -> f64| 0.9 + 0.2 * next();
            let lower = (0..5).map(|_| 870.0 * noise(&mut next));
            let mut values: Vec<f64> = lower.collect();
            values.extend((0..4).map(|_| 1_220.0 * noise(&mut next)));
            Levels::of(&values).is_some()
        });
        let found = found.count();
        assert!(found > 600, "{found} of 1,000");
    }
}
