//! Repetition: every case once, then every case again, so that all meet the same machine. A case is
//! a system, or a system at one x of a figure. So points that a claim divides by each other are
//! measured close in time.

use std::fmt;
use std::fmt::Display;

use super::{Outcome, Point, Series, Spread};

/// A system that is compared with others.
pub trait System: Copy + PartialEq + Display {
    /// True if Millstream is at one of its ends. Its failure then fails the benchmark; other
    /// failures are only noted.
    fn is_ours(self) -> bool;
}

/// A system at one x of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case<S> {
    pub system: S,
    pub x: f64,
}

impl<S: Display> Display for Case<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at {}", self.system, self.x)
    }
}

/// A system's runs by x.
pub type Column<S, T> = (S, Vec<(f64, Vec<T>)>);

/// A series of each system, with the spread of a reading of its runs at each x.
pub fn series<S: Display, T>(
    columns: &[Column<S, T>],
    reading: impl Fn(&T, f64) -> f64,
) -> Vec<Series> {
    let point = |(x, runs): &(f64, Vec<T>)| Point {
        x: *x,
        y: Spread::of(runs.iter().map(|seen| reading(seen, *x))),
    };
    let series = columns.iter().map(|(system, column)| Series {
        system: system.to_string(),
        points: column.iter().map(point).collect(),
    });
    series.collect()
}

/// Runs all cases of a study in turn, and returns the results of each system. Cases that failed are
/// left out and noted in `outcome`.
pub fn columns<S: System, T>(
    (study, rounds): (&str, u32),
    systems: &[S],
    cases: &[Case<S>],
    outcome: &mut Outcome,
    mut run: impl FnMut(&Case<S>) -> Result<T, String>,
) -> Vec<Column<S, T>> {
    let mut columns: Vec<Column<S, T>> =
        systems.iter().map(|&system| (system, Vec::new())).collect();
    let mut notes = Vec::new();
    let found = alternate(rounds, cases, &mut notes, |case| {
        let ran = run(case);
        if let Err(cause) = &ran
            && case.system.is_ours()
        {
            outcome.failures.push(format!("{study}: {case}: {cause}"));
        }
        ran
    });
    for (case, runs) in cases.iter().zip(found) {
        let column = columns.iter_mut().find(|column| column.0 == case.system);
        if let Some((_, column)) = column
            && !runs.is_empty()
        {
            column.push((case.x, runs));
        }
    }
    let named = notes.into_iter().map(|note| format!("{study}: {note}"));
    outcome.notes.extend(named);
    columns
}

/// Results of each case in the order of the rounds; empty after a failure.
pub type Rounds<T> = Vec<Vec<T>>;

/// Runs every case once per round. A case that fails is left out from then on, and its earlier
/// results are dropped, since a case that sometimes fails would be judged by its better runs.
/// `notes` gets the reason.
pub fn alternate<S: Display, T>(
    rounds: u32,
    cases: &[S],
    notes: &mut Vec<String>,
    mut run: impl FnMut(&S) -> Result<T, String>,
) -> Rounds<T> {
    let mut found: Rounds<T> = cases.iter().map(|_| Vec::new()).collect();
    let mut failed = vec![false; cases.len()];
    for _ in 0..rounds {
        for (index, case) in cases.iter().enumerate() {
            if failed[index] {
                continue;
            }
            match run(case) {
                Ok(one) => found[index].push(one),
                Err(cause) => {
                    eprintln!("bench: {case}: {cause}");
                    notes.push(format!("{case}: {cause}"));
                    found[index].clear();
                    failed[index] = true;
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_take_turns_and_of_one_that_fails_nothing_is_left() {
        let (mut order, mut notes) = (String::new(), Vec::new());
        let found = alternate(3, &["a", "b", "c"], &mut notes, |case| {
            order.push_str(case);
            let is_broken = *case == "b" && order.len() > 3;
            (!is_broken).then_some(1).ok_or("broken".to_owned())
        });
        assert_eq!(order, "abcabcac");
        assert_eq!(found, [vec![1; 3], vec![], vec![1; 3]]);
        assert_eq!(notes, ["b: broken"]);
    }
}
