//! The mutants that cargo-mutants lists, and the draw from them.

use std::path::Path;

use serde::Deserialize;

use crate::run;

/// Kinds of change, by cargo-mutants' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub enum Genre {
    FnValue,
    BinaryOperator,
    UnaryOperator,
    MatchArm,
    MatchArmGuard,
    StructField,
}

/// A place in a file: line and column, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// The text that a mutant replaces.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Span {
    pub start: Place,
    pub end: Place,
}

/// One change to the product's code.
#[derive(Clone, Debug, Deserialize)]
pub struct Mutant {
    /// File, place and change in one line.
    pub name: String,
    /// Name of the crate.
    pub package: String,
    /// Path from the workspace's root.
    pub file: String,
    pub span: Span,
    pub genre: Genre,
    /// The text that takes the span's place.
    pub replacement: String,
}

impl Mutant {
    /// The change without its place: `replace < with <= in Connection::is_acceptable`.
    pub fn change(&self) -> &str {
        // `FILE:LINE:COLUMN: CHANGE`
        self.name
            .get(self.file.len()..)
            .and_then(|rest| rest.split_once(": "))
            .map_or(self.name.as_str(), |(_, change)| change)
    }
}

/// All mutants of `crates`, or only those on lines that `diff` touches, in cargo-mutants' order.
pub fn list(root: &Path, crates: &[String], diff: Option<&Path>) -> Result<Vec<Mutant>, String> {
    let mut command = run::cargo();
    command
        .args(["mutants", "--list", "--json", "--no-config"])
        .arg("--dir")
        .arg(root);
    for name in crates {
        command.args(["--package", name]);
    }
    if let Some(diff) = diff {
        command.arg("--in-diff").arg(diff);
    }
    let text = run::output(&mut command)?;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_str(&text).map_err(|error| format!("cargo mutants --list: {error}"))
}

/// `count` mutants, drawn in an order that `seed` determines.
pub fn draw(mut mutants: Vec<Mutant>, count: usize, seed: u64) -> Vec<Mutant> {
    let mut state = seed;
    let count = count.min(mutants.len());
    for at in 0..count {
        let left = (mutants.len() - at) as u64;
        mutants.swap(at, at + (next(&mut state) % left) as usize);
    }
    mutants.truncate(count);
    mutants
}

/// The next number of SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(name: &str) -> Mutant {
        let place = Place { line: 1, column: 1 };
        Mutant {
            name: name.to_owned(),
            package: "tcp".to_owned(),
            file: "a.rs".to_owned(),
            span: Span {
                start: place,
                end: place,
            },
            genre: Genre::BinaryOperator,
            replacement: String::new(),
        }
    }

    #[test]
    fn change_is_the_name_without_its_place() {
        let mutant = mutant("a.rs:105:20: replace / with % in Rtt::next_sample");
        assert_eq!(mutant.change(), "replace / with % in Rtt::next_sample");
    }

    #[test]
    fn seed_decides_the_draw() {
        let all: Vec<_> = (0..100).map(|n| mutant(&n.to_string())).collect();
        let names = |seed| -> Vec<String> {
            let drawn = draw(all.clone(), 10, seed);
            drawn.into_iter().map(|mutant| mutant.name).collect()
        };
        assert_eq!(names(1), names(1));
        assert_ne!(names(1), names(2));
        assert_eq!(names(1).len(), 10);
        let longer = draw(all.clone(), 20, 1);
        assert!(longer.iter().map(|m| &m.name).take(10).eq(&names(1)));
        assert_eq!(draw(all, 1000, 1).len(), 100);
    }
}
