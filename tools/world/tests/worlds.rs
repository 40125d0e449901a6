//! Worlds that once failed (see `world_seeds.txt`), and the first few seeds. `cargo xtask sim` runs
//! many more.

use world::faults::{FaultKind, FaultSet};
use world::{Options, check};

/// Seeds that are run besides those of the list.
const FRESH: std::ops::RangeInclusive<u64> = 1..=30;

fn run(seed: u64, off: FaultSet, what: &str) {
    let options = Options {
        off,
        twice: seed.is_multiple_of(8),
        ..Options::default()
    };
    if let Err(failure) = check(seed, &options) {
        panic!("{what}\n{failure}");
    }
}

#[test]
fn seeds_that_once_failed() {
    for line in include_str!("world_seeds.txt").lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (seed, what) = line.split_once(' ').expect("a seed and what it found");
        // The seeds failed in worlds without lateness.
        let off = FaultSet::NONE.with(FaultKind::Lateness);
        run(seed.parse().expect("a seed"), off, what);
    }
}

#[test]
fn fresh_seeds() {
    FRESH.for_each(|seed| run(seed, FaultSet::NONE, "fresh"));
}
