//! Fates of mutants, and the table of them.

use std::collections::BTreeMap;
use std::fmt;

use super::list::Mutant;
use super::verdicts::Witness;

/// The fate of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// This test failed.
    Killed(Witness),
    /// This test hung.
    TimedOut(Witness),
    Survived,
    /// The mutant does not compile.
    Unviable,
    /// The mutant is listed as equivalent.
    Equivalent,
    /// Time ran out before the mutant's turn.
    NotRun,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fate::Killed(by) => write!(f, "killed by {by}"),
            Fate::TimedOut(by) => write!(f, "timed out in {by}"),
            Fate::Survived => f.write_str("SURVIVED"),
            Fate::Unviable => f.write_str("unviable"),
            Fate::Equivalent => f.write_str("equivalent"),
            Fate::NotRun => f.write_str("not run"),
        }
    }
}

/// Numbers of mutants by fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    killed: u32,
    timed_out: u32,
    survived: u32,
    unviable: u32,
    equivalent: u32,
    not_run: u32,
}

impl Row {
    fn count(&mut self, fate: &Fate) {
        let counter = match fate {
            Fate::Killed(_) => &mut self.killed,
            Fate::TimedOut(_) => &mut self.timed_out,
            Fate::Survived => &mut self.survived,
            Fate::Unviable => &mut self.unviable,
            Fate::Equivalent => &mut self.equivalent,
            Fate::NotRun => &mut self.not_run,
        };
        *counter += 1;
    }

    fn noticed(&self) -> u32 {
        self.killed + self.timed_out
    }

    /// Mutants that could be noticed and were run.
    fn judged(&self) -> u32 {
        self.noticed() + self.survived
    }

    /// Percent of the judged mutants that were noticed; 100 if none was judged.
    fn percent(&self) -> f64 {
        match self.judged() {
            0 => 100.0,
            judged => 100.0 * f64::from(self.noticed()) / f64::from(judged),
        }
    }

    /// The 95 % confidence interval of [`percent`](Self::percent), by Wilson's score.
    fn interval(&self) -> (f64, f64) {
        let n = f64::from(self.judged());
        if n == 0.0 {
            return (0.0, 100.0);
        }
        let (p, z) = (f64::from(self.noticed()) / n, 1.96);
        let middle = p + z * z / (2.0 * n);
        let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        let scale = 100.0 / (1.0 + z * z / n);
        (scale * (middle - half).max(0.0), scale * (middle + half))
    }
}

/// Numbers of the whole run.
pub struct Tally {
    by_crate: BTreeMap<String, Row>,
    all: Row,
    survivors: Vec<String>,
}

impl Tally {
    pub fn of(mutants: &[Mutant], fates: &[Fate]) -> Tally {
        let mut tally = Tally {
            by_crate: BTreeMap::new(),
            all: Row::default(),
            survivors: Vec::new(),
        };
        for (mutant, fate) in mutants.iter().zip(fates) {
            let row = tally.by_crate.entry(mutant.package.clone()).or_default();
            row.count(fate);
            tally.all.count(fate);
            if *fate == Fate::Survived {
                tally.survivors.push(mutant.name.clone());
            }
        }
        tally.survivors.sort();
        tally
    }

    /// Number of mutants on which tests were run.
    pub fn judged(&self) -> u32 {
        self.all.killed + self.all.timed_out + self.all.survived
    }

    /// Number of mutants whose turn did not come, or did not end.
    pub fn not_run(&self) -> u32 {
        self.all.not_run
    }

    /// Whether at least `bar` percent were noticed.
    pub fn passes(&self, bar: u32) -> bool {
        self.all.percent() >= f64::from(bar)
    }

    /// The message of a failed step: a line, and the survivors.
    pub fn failure(&self, bar: u32) -> String {
        let percent = self.all.percent();
        let survivors = self.survivors.join("\n");
        format!("{percent:.1} % of the mutants were noticed, less than {bar} %\n{survivors}")
    }

    pub fn print(&self, bar: u32) {
        for name in &self.survivors {
            println!("survived: {name}");
        }
        println!(
            "\n{:10} {:>7} {:>9} {:>8} {:>8} {:>10} {:>7} {:>8}  95 % interval",
            "crate",
            "killed",
            "timed out",
            "survived",
            "unviable",
            "equivalent",
            "not run",
            "noticed"
        );
        let rows = self.by_crate.iter().map(|(name, row)| (name.as_str(), row));
        for (name, row) in rows.chain([("all", &self.all)]) {
            let (low, high) = row.interval();
            println!(
                "{name:10} {:>7} {:>9} {:>8} {:>8} {:>10} {:>7} {:>6.1} %  {low:.1} to {high:.1}",
                row.killed,
                row.timed_out,
                row.survived,
                row.unviable,
                row.equivalent,
                row.not_run,
                row.percent(),
            );
        }
        let outcome = match self.passes(bar) {
            _ if self.judged() == 0 => "not decided: nothing was judged",
            true => "reached",
            false => "MISSED",
        };
        println!("the bar of {bar} % is {outcome}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_leaves_out_what_no_test_could_notice() {
        let row = Row {
            killed: 18,
            timed_out: 1,
            survived: 1,
            unviable: 7,
            equivalent: 3,
            not_run: 9,
        };
        assert_eq!(row.judged(), 20);
        assert!((row.percent() - 95.0).abs() < 1e-9);
        let (low, high) = row.interval();
        assert!((76.0..77.0).contains(&low) && (98.9..99.9).contains(&high));
    }

    #[test]
    fn nothing_judged_passes() {
        let tally = Tally::of(&[], &[]);
        assert!(tally.passes(95));
    }
}
