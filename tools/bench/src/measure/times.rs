//! The distribution of a time, as table 2 of the mTCP paper shows it for each part of a
//! transaction.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Percentiles that are reported, from the shortest to the longest.
pub const PERCENTILES: [f64; 7] = [0.0, 25.0, 50.0, 90.0, 99.0, 99.9, 100.0];
/// Digits to which percentiles are right.
const DIGITS: u8 = 2;
/// Times from here on count as this: ten minutes.
const TIME_NS_MAX: u64 = 600_000_000_000;

/// A collector of times.
#[derive(Clone, Debug)]
pub struct Recorder {
    histogram: Histogram<u32>,
    count: u64,
    sum_ns: u64,
    squares: f64,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(TIME_NS_MAX, DIGITS);
        Self {
            histogram: histogram.expect("two digits and ten minutes are bounds that it takes"),
            count: 0,
            sum_ns: 0,
            squares: 0.0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }
}

impl Recorder {
    /// Adds one time.
    pub fn record(&mut self, time_ns: u64) {
        self.histogram.saturating_record(time_ns);
        self.count += 1;
        self.sum_ns += time_ns;
        self.squares += (time_ns as f64) * (time_ns as f64);
        self.min_ns = self.min_ns.min(time_ns);
        self.max_ns = self.max_ns.max(time_ns);
    }

    /// Adds the times of another thread.
    pub fn merge(&mut self, other: &Self) {
        let added = self.histogram.add(&other.histogram);
        added.expect("both have the same bounds");
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.squares += other.squares;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The distribution; none if no time was recorded.
    pub fn times(&self) -> Option<Times> {
        if self.count == 0 {
            return None;
        }
        let mean_ns = self.sum_ns as f64 / self.count as f64;
        let variance = self.squares / self.count as f64 - mean_ns * mean_ns;
        let at = |percentile: f64| match percentile {
            0.0 => self.min_ns,
            100.0 => self.max_ns,
            _ => self.histogram.value_at_quantile(percentile / 100.0),
        };
        Some(Times {
            percentiles_us: PERCENTILES.map(|p| (p, at(p) as f64 / 1e3)).to_vec(),
            mean_us: mean_ns / 1e3,
            deviation_us: variance.max(0.0).sqrt() / 1e3,
        })
    }
}

/// A distribution, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Percentile and time, the shortest first.
    pub percentiles_us: Vec<(f64, f64)>,
    /// The mean.
    pub mean_us: f64,
    /// The standard deviation.
    pub deviation_us: f64,
}

/// The parts of a transaction of one request for each connection.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// From the call of `connect` to the connection's being open.
    opening: Recorder,
    /// From there to the server's close, which follows the response.
    processing: Recorder,
    whole: Recorder,
}

impl Parts {
    /// Adds one transaction by its moments.
    pub fn record(&mut self, started_ns: u64, opened_ns: u64, ended_ns: u64) {
        self.opening.record(opened_ns.saturating_sub(started_ns));
        self.processing.record(ended_ns.saturating_sub(opened_ns));
        self.whole.record(ended_ns.saturating_sub(started_ns));
    }

    /// Adds the transactions of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.opening.merge(&other.opening);
        self.processing.merge(&other.processing);
        self.whole.merge(&other.whole);
    }

    /// Name and distribution of each part.
    pub fn times(&self) -> Vec<(String, Times)> {
        let rows = [
            ("connect", &self.opening),
            ("processing", &self.processing),
            ("total", &self.whole),
        ];
        let named =
            |(name, part): (&str, &Recorder)| part.times().map(|times| (name.to_owned(), times));
        rows.into_iter().filter_map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_has_its_ends_exactly_and_its_middle_to_a_hundredth() {
        let mut recorder = Recorder::default();
        (1..=999).for_each(|us| recorder.record(us * 1_000));
        recorder.record(5_000_000);
        let times = recorder.times().unwrap();
        let at = |wanted: f64| {
            let found = times.percentiles_us.iter().find(|(p, _)| *p == wanted);
            found.unwrap().1
        };
        assert_eq!((at(0.0), at(100.0)), (1.0, 5_000.0));
        assert!((at(50.0) / 500.0 - 1.0).abs() < 0.01, "{times:?}");
        assert!((at(99.0) / 990.0 - 1.0).abs() < 0.01, "{times:?}");
        assert!((times.mean_us - 504.5).abs() < 1e-6, "{times:?}");
        assert_eq!(Recorder::default().times(), None);
    }

    #[test]
    fn parts_add_up_to_the_whole_also_of_two_threads() {
        let (mut one, mut other) = (Parts::default(), Parts::default());
        one.record(1_000, 3_000, 10_000);
        other.record(5_000, 9_000, 20_000);
        one.merge(&other);
        let times = one.times();
        let means: Vec<(&str, f64)> = times
            .iter()
            .map(|(name, times)| (name.as_str(), times.mean_us))
            .collect();
        assert_eq!(
            means,
            [("connect", 3.0), ("processing", 9.0), ("total", 12.0)]
        );
        assert_eq!(times[2].1.deviation_us, 3.0);
    }
}
