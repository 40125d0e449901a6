//! Statistics: medians, quartiles, and Jain's index.

use serde::{Deserialize, Serialize};

use super::levels::Levels;

/// The values of all repetitions of one measurement, and their statistics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// In the order in which they were measured.
    pub values: Vec<f64>,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// The two groups that the values fall into, if they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub levels: Option<Levels>,
}

impl Spread {
    /// Statistics of these values; all zero if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() {
            return Self::default();
        }
        Self {
            median: median(values.iter().copied()),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            levels: Levels::of(&values),
            values,
        }
    }
}

/// The middle value, or the mean of the two in the middle; 0 of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The medians of the lower and of the upper half; the middle one of an odd number belongs to both.
pub fn quartiles(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let half = values.len().div_ceil(2);
    let (lower, upper) = (&values[..half], &values[values.len() - half..]);
    (median(lower.iter().copied()), median(upper.iter().copied()))
}

/// Jain's fairness index: 1 if all got the same, 1/n if one got everything.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 {
        sum * sum / (shares.len() as f64 * squares)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_lies_between() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0]), 2.5);
        assert_eq!(median([]), 0.0);
        let spread = Spread::of([2.0, 1.0, 9.0]);
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.0, 9.0));
    }

    #[test]
    fn quartiles_are_the_medians_of_the_halves() {
        assert_eq!(quartiles([4.0, 1.0, 3.0, 2.0]), (1.5, 3.5));
        assert_eq!(quartiles([5.0, 1.0, 3.0]), (2.0, 4.0));
        assert_eq!(quartiles([]), (0.0, 0.0));
    }

    #[test]
    fn jain_tells_even_shares_from_one_winner() {
        assert_eq!(jain(&[5.0; 8]), 1.0);
        assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[]), 0.0);
    }
}
