//! `cargo xtask test`: set-up and all checks, each timed and named. `.ci/run` calls it.

use std::path::Path;

use crate::bench;
use crate::chores;
use crate::cli::{DemoOptions, TestOptions};
use crate::conformance;
use crate::demo;
use crate::mutants;
use crate::programs;
use crate::report::Report;
use crate::run;
use crate::setup::{self, Need};
use crate::tidy;

/// Number of worlds that `cargo xtask test` simulates.
const SIM_SEEDS: u64 = 1_000;

type Check = fn(&Path, &TestOptions) -> Result<(), String>;

/// The steps in their order, roughly the quick ones first.
const STEPS: &[(&str, Check)] = &[
    ("format", |root, _| chores::format(root)),
    ("tidy", |root, _| tidy::check(root)),
    ("deny", |root, _| chores::deny(root)),
    ("conformance", |root, _| {
        conformance::conformance(root).map(|_| ())
    }),
    ("clippy", |root, _| chores::clippy(root)),
    ("doc", |root, _| chores::doc(root)),
    ("no-os", |root, _| chores::no_os(root)),
    ("bpf", |root, _| chores::bpf(root)),
    ("unit", |root, _| chores::unit(root)),
    ("sim", |_, _| chores::sim_seeds(SIM_SEEDS)),
    ("loom", |root, _| chores::loom(root)),
    ("miri", |root, _| chores::miri(root)),
    ("fuzz", |root, options| {
        chores::fuzz_smoke(root, options.fuzz_seconds)
    }),
    ("mutants", |root, _| mutants::of_change(root)),
    ("integration", |root, _| chores::integration(root)),
    ("programs", |root, _| programs::check(root)),
    ("demo", |root, _| quick_demo(root)),
    ("cycles", |root, _| bench::cycles_check(root)),
];

/// The chore.
pub fn test(root: &Path, options: &TestOptions) -> Result<bool, String> {
    check_names(options)?;
    if options.list {
        for (name, _) in STEPS {
            println!("{name}");
        }
        return Ok(true);
    }
    let chosen: Vec<_> = STEPS
        .iter()
        .filter(|(name, _)| is_chosen(options, name))
        .collect();
    let chosen_name = |name: &str| chosen.iter().any(|(other, _)| *other == name);
    setup::setup(root, &need_of(&chosen_name))?;
    let mut report = Report::default();
    for (name, check) in &chosen {
        report.step(name, || check(root, options));
    }
    if let Some(path) = &options.json {
        report.write_json(path)?;
    }
    Ok(report.finish())
}

fn quick_demo(root: &Path) -> Result<(), String> {
    if let Err(cause) = demo::must_be_root("the demo") {
        run::note_ignored([cause]);
        return Ok(());
    }
    let options = DemoOptions {
        quick: true,
        ..DemoOptions::default()
    };
    demo::demo(root, &options).map(|_| ())
}

fn need_of(chosen: &dyn Fn(&str) -> bool) -> Need {
    Need {
        demo: chosen("demo") || chosen("programs"),
        tests: chosen("integration") || chosen("bpf"),
        programs: chosen("programs"),
        suites: false,
        target_no_os: chosen("no-os") || chosen("format") || chosen("clippy"),
        miri: chosen("miri"),
        fuzz: chosen("fuzz"),
        mutants: chosen("mutants"),
        deny: chosen("deny"),
        valgrind: chosen("cycles"),
        profile: false,
    }
}

fn is_chosen(options: &TestOptions, name: &str) -> bool {
    let named = |names: &[String]| names.iter().any(|other| other == name);
    (options.only.is_empty() || named(&options.only)) && !named(&options.skip)
}

/// Fails at unknown names of steps: a misspelt one would silently leave out a check.
fn check_names(options: &TestOptions) -> Result<(), String> {
    let known: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
    let given = options.only.iter().chain(&options.skip);
    match given
        .into_iter()
        .find(|name| !known.contains(&name.as_str()))
    {
        None => Ok(()),
        Some(name) => Err(format!("step {name}: not one of {}", known.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_step_is_refused_by_name() {
        let options = TestOptions {
            skip: vec!["lom".to_owned()],
            ..TestOptions::default()
        };
        let cause = check_names(&options).unwrap_err();
        assert!(cause.starts_with("step lom: not one of format,"));
    }

    #[test]
    fn only_and_skip_choose() {
        let options = TestOptions {
            only: vec!["unit".to_owned(), "loom".to_owned()],
            skip: vec!["loom".to_owned()],
            ..TestOptions::default()
        };
        let names = STEPS.iter().map(|(name, _)| *name);
        let chosen: Vec<&str> = names.filter(|name| is_chosen(&options, name)).collect();
        assert_eq!(chosen, ["unit"]);
    }
}
