//! `cargo xtask test`: set-up and all checks, each timed and named. `.ci/run` calls it.
//!
//! Steps run side by side in two processes: many tests mostly wait, and what computes uses that
//! time.
//!
//!     this process      STEPS_FIRST, packages there?, STEPS ───────────────── the other's output
//!     another, beside   packages, tools, STEPS_BESIDE ────────────────────────────┘

use std::path::Path;

use crate::bench;
use crate::beside::{self, Beside};
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
type Steps = &'static [(&'static str, Check)];

/// The steps that need no Debian package but a linker: they run while packages are installed.
const STEPS_FIRST: Steps = &[
    ("format", |root, _| chores::format(root)),
    ("tidy", |root, _| tidy::check(root)),
    ("conformance", |root, _| {
        conformance::conformance(root).map(|_| ())
    }),
    ("clippy", |root, _| chores::clippy(root)),
    ("doc", |root, _| chores::doc(root)),
    ("no-os", |root, _| chores::no_os(root)),
];

/// The steps after these. Tests with namespaces and programs are among them, which mostly wait.
const STEPS: Steps = &[
    ("bpf", |root, _| chores::bpf(root)),
    ("unit", |root, _| chores::unit(root)),
    ("integration", |root, _| chores::integration(root)),
    ("programs", |root, _| programs::check(root)),
    ("demo", |root, _| quick_demo(root)),
    ("mutants", |root, _| mutants::of_change(root)),
];

/// The steps that run beside all others, one after another, in a process of the lowest priority.
/// Each computes, and its verdict does not depend on time: it counts states, instructions or its
/// own CPU time. Each builds in a directory of its own.
const STEPS_BESIDE: Steps = &[
    ("deny", |root, _| chores::deny(root)),
    ("loom", |root, _| chores::loom(root)),
    ("miri", |root, _| chores::miri(root)),
    ("cycles", |root, _| bench::cycles_check(root)),
    ("sim", |_, _| chores::sim_seeds(SIM_SEEDS)),
    ("fuzz", |root, options| {
        chores::fuzz_smoke(root, options.fuzz_seconds)
    }),
];

/// The chore.
pub fn test(root: &Path, options: &TestOptions) -> Result<bool, String> {
    check_names(options)?;
    if options.list {
        names()
            .filter(|name| is_chosen(options, name))
            .for_each(|name| println!("{name}"));
        return Ok(true);
    }
    let mut report = Report::default();
    let has = |steps: Steps| steps.iter().any(|(name, _)| is_chosen(options, name));
    match (has(STEPS_FIRST) || has(STEPS), has(STEPS_BESIDE)) {
        (true, true) if options.beside => run_beside(root, options, &mut report),
        (true, true) => run_both(root, options, &mut report)?,
        _ => run_alone(root, options, &mut report),
    }
    if let Some(path) = &options.json {
        report.write_json(path)?;
    }
    Ok(report.finish())
}

/// Runs the chosen steps in this process and in another one beside it.
fn run_both(root: &Path, options: &TestOptions, report: &mut Report) -> Result<(), String> {
    let need = need_of(options);
    if !report.step("set-up", || setup::components(&need)) {
        return Ok(());
    }
    let beside = Beside::start(root, options)?;
    run_steps(STEPS_FIRST, root, options, report);
    if report.step("packages", || setup::packages(root, &need)) {
        run_steps(STEPS, root, options, report);
    }
    beside.finish(report);
    Ok(())
}

/// Steps of the process beside. The packages come first, since [`run_both`] waits for them. The
/// tools that are compiled can wait.
fn run_beside(root: &Path, options: &TestOptions, report: &mut Report) {
    let need = need_of(options);
    let set_up = || {
        setup::packages(root, &need)?;
        beside::take_lowest_priority()?;
        setup::setup(root, &need).map(|_| ())
    };
    if report.step("set-up beside", set_up) {
        run_steps(STEPS_BESIDE, root, options, report);
    }
}

/// Runs chosen steps that have nothing to run beside.
fn run_alone(root: &Path, options: &TestOptions, report: &mut Report) {
    if report.step("set-up", || {
        setup::setup(root, &need_of(options)).map(|_| ())
    }) {
        for steps in [STEPS_FIRST, STEPS, STEPS_BESIDE] {
            run_steps(steps, root, options, report);
        }
    }
}

/// Runs those of the steps that are chosen.
fn run_steps(steps: Steps, root: &Path, options: &TestOptions, report: &mut Report) {
    for (name, check) in steps.iter().filter(|(name, _)| is_chosen(options, name)) {
        report.step(name, || check(root, options));
    }
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

/// Needs of the chosen steps, wherever they run.
fn need_of(options: &TestOptions) -> Need {
    let chosen = |name: &str| is_chosen(options, name);
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

/// The names of all steps.
fn names() -> impl Iterator<Item = &'static str> {
    let all = STEPS_FIRST.iter().chain(STEPS).chain(STEPS_BESIDE);
    all.map(|(name, _)| *name)
}

/// Fails at unknown names of steps: a misspelt one would silently leave out a check.
fn check_names(options: &TestOptions) -> Result<(), String> {
    let known: Vec<&str> = names().collect();
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
    use clap::Parser;

    use super::*;
    use crate::cli::{Chore, Cli};

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
        let chosen: Vec<&str> = names().filter(|name| is_chosen(&options, name)).collect();
        assert_eq!(chosen, ["unit"]);
    }

    #[test]
    fn arguments_of_the_process_beside_choose_the_same_steps() {
        let options = TestOptions {
            only: vec!["unit".to_owned(), "loom".to_owned(), "fuzz".to_owned()],
            skip: vec!["loom".to_owned()],
            fuzz_seconds: 7,
            ..TestOptions::default()
        };
        let arguments = beside::arguments(&options, Path::new("/tmp/beside.json"));
        let line = ["xtask".to_owned()].into_iter().chain(arguments);
        let Chore::Test(other) = Cli::parse_from(line).chore else {
            panic!("another chore");
        };
        assert!(other.beside && !other.list);
        assert_eq!(other.fuzz_seconds, 7);
        let chosen: Vec<&str> = names().filter(|name| is_chosen(&other, name)).collect();
        assert_eq!(chosen, ["unit", "fuzz"]);
    }
}
