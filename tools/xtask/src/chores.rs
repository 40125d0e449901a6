//! The single checks: what each runs, with which toolchain and settings.
//!
//! Each is a function of the workspace's root that says why it failed. Called alone through `cargo
//! xtask <name>` and in order by [`crate::suite`].

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::cli::FuzzOptions;
use crate::run;
use crate::setup::{self, NIGHTLY, Need, TARGET_NO_OS};

/// Threads may be preempted this often in one loom run; three finds nearly all that more would, in
/// minutes.
const LOOM_PREEMPTIONS_MAX: &str = "3";
/// Property tests are slow under Miri.
const MIRI_PROPTEST_CASES: &str = "8";
/// Inputs that the fuzzers try; longer than any frame they parse.
const FUZZ_INPUT_BYTES_MAX: &str = "2048";

/// A chore that is one check.
pub fn alone(root: &Path, chore: fn(&Path) -> Result<(), String>) -> Result<bool, String> {
    let need = Need {
        miri: true,
        deny: true,
        ..Need::default()
    };
    setup::setup(root, &need)?;
    chore(root)?;
    Ok(true)
}

pub fn format(root: &Path) -> Result<(), String> {
    run::run(run::cargo().args(["fmt", "--all", "--check"]))?;
    let fuzz = root.join("tools/fuzz/Cargo.toml");
    if fuzz.exists() {
        run::run(
            run::cargo()
                .args(["fmt", "--check", "--manifest-path"])
                .arg(fuzz),
        )?;
    }
    Ok(())
}

pub fn clippy(_root: &Path) -> Result<(), String> {
    run::run(run::cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))
}

/// The tables of docs/operating.md, by the test that knows the lists: written, or compared.
pub fn docs(check: bool) -> Result<(), String> {
    let mut test = run::cargo();
    test.args(["test", "-q", "-p", "millstream", "--test", "pages"]);
    if !check {
        test.env("MILLSTREAM_WRITE_PAGES", "1");
    }
    run::run(&mut test)
}

/// Licences, sources and versions of the crates that the workspace takes from others, as
/// `deny.toml` allows them.
pub fn deny(_root: &Path) -> Result<(), String> {
    run::run(run::cargo().args(["deny", "check", "licenses", "bans", "sources"]))
}

/// The proof that `wire` and `tcp` are sans-IO: they build where there is nothing to call.
pub fn no_os(_root: &Path) -> Result<(), String> {
    run::run(run::cargo().args(["build", "-p", "wire", "-p", "tcp", "--target", TARGET_NO_OS]))
}

/// The documentation of every crate of the product builds, and its links lead somewhere.
pub fn doc(root: &Path) -> Result<(), String> {
    let mut command = run::cargo();
    command.args(["doc", "--no-deps"]);
    for name in directories_in(&root.join("crates"))? {
        command.args(["-p", &name]);
    }
    run::run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// The names of the directories in a directory. A crate of ours bears its directory's name.
fn directories_in(directory: &Path) -> Result<Vec<String>, String> {
    let entries =
        fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let directories = entries.flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = directories
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

/// Unit and property tests within the crates, and their documentation's examples.
pub fn unit(_root: &Path) -> Result<(), String> {
    run::run_tests(run::cargo().args([
        "test",
        "--workspace",
        "--lib",
        "--bins",
        "--no-fail-fast",
    ]))?;
    run::run_tests(run::cargo().args(["test", "--workspace", "--doc"]))
}

/// The tests that stand beside the crates: conversations, oracles, and those that build namespaces.
/// One after another, for many of them want the machine for themselves.
pub fn integration(_root: &Path) -> Result<(), String> {
    run::run_tests(run::cargo().args([
        "test",
        "--workspace",
        "--test",
        "*",
        "--no-fail-fast",
        "--",
        "--test-threads=1",
    ]))
}

/// `cargo xtask sim`: the simulator's own command line, built fast and with its assertions.
pub fn sim(arguments: &[String]) -> Result<(), String> {
    run::run(
        run::cargo()
            .args(["run", "--quiet", "--profile", "sim", "-p", "world", "--"])
            .args(arguments),
    )
}

/// `cargo xtask script`: packet scripts, by the program that plays and compares them.
pub fn script(arguments: &[String]) -> Result<(), String> {
    run::run(
        run::cargo()
            .args(["run", "--quiet", "--release", "-p", "script"])
            .args(["--bin", "script", "--"])
            .args(arguments),
    )
}

/// So many seeds, from the first.
pub fn sim_seeds(seeds: u64) -> Result<(), String> {
    sim(&["--seeds".to_owned(), seeds.to_string()])
}

pub fn loom(root: &Path) -> Result<(), String> {
    let mut command = run::cargo();
    command
        .args(["test", "-p", "ring", "--release"])
        .args(["--test", "loom", "--test", "loom_byte_ring"])
        .args(["--test", "loom_flow_owners"])
        .env("RUSTFLAGS", "--cfg loom")
        .env("LOOM_MAX_PREEMPTIONS", LOOM_PREEMPTIONS_MAX)
        .env("CARGO_TARGET_DIR", target_of(root, "loom"));
    run::run(&mut command)
}

pub fn miri(root: &Path) -> Result<(), String> {
    let mut command = run::cargo();
    command
        .arg(format!("+{NIGHTLY}"))
        .args(["miri", "test", "-p", "ring"])
        .env("MIRIFLAGS", "-Zmiri-disable-isolation")
        .env("PROPTEST_CASES", MIRI_PROPTEST_CASES)
        .env("CARGO_TARGET_DIR", target_of(root, "miri"));
    run::run(&mut command)
}

/// `cargo xtask fuzz`.
pub fn fuzz(root: &Path, options: &FuzzOptions) -> Result<bool, String> {
    let need = Need {
        fuzz: true,
        ..Need::default()
    };
    setup::setup(root, &need)?;
    let known = fuzz_targets(root)?;
    if let Some(unknown) = options.targets.iter().find(|name| !known.contains(name)) {
        return Err(format!(
            "fuzz target {unknown}: not one of {}",
            known.join(", ")
        ));
    }
    let targets = if options.targets.is_empty() {
        known
    } else {
        options.targets.clone()
    };
    fuzz_each(root, &targets, options.seconds)?;
    Ok(true)
}

/// Every target for some seconds: finds what is shallow, and proves that each still builds and
/// runs.
pub fn fuzz_smoke(root: &Path, seconds: u64) -> Result<(), String> {
    fuzz_each(root, &fuzz_targets(root)?, seconds)
}

/// The committed BPF objects come from the sources beside them.
pub fn bpf(root: &Path) -> Result<(), String> {
    let script = root.join("bpf/build.sh");
    run::run(run::command(&script.to_string_lossy()).arg("--check"))
}

/// Each target has one thread, so as many run at once as there are cores.
fn fuzz_each(root: &Path, targets: &[String], seconds: u64) -> Result<(), String> {
    let alone = (targets.len() == 1).then(|| &targets[0]);
    run::run(fuzz_command(root, "build").args(alone))?;
    let left = Mutex::new(targets.iter());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = || -> Result<(), String> {
        while let Some(target) = next() {
            fuzz_one(root, target, seconds)?;
        }
        Ok(())
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        let ends = workers.into_iter().map(|worker| {
            worker
                .join()
                .unwrap_or_else(|_| Err("a fuzz worker panicked".to_owned()))
        });
        // Every worker is waited for, whatever the first one says.
        ends.collect::<Vec<_>>().into_iter().collect()
    })
}

fn fuzz_command(root: &Path, action: &str) -> Command {
    let mut command = run::cargo();
    command
        .arg(format!("+{NIGHTLY}"))
        .args(["fuzz", action, "--fuzz-dir"])
        .arg(root.join("tools/fuzz"))
        .env("CARGO_TARGET_DIR", target_of(root, "fuzz"));
    command
}

/// Fuzzes one target. It prints all that the fuzzer said once it has ended, since others run too.
fn fuzz_one(root: &Path, target: &str, seconds: u64) -> Result<(), String> {
    // The inputs that this machine found so far, if any, and those of the repository.
    let corpus = root.join("tools/fuzz/corpus").join(target);
    fs::create_dir_all(&corpus).map_err(|error| format!("{}: {error}", corpus.display()))?;
    let seeds = seeds_of(root, target);
    let mut command = fuzz_command(root, "run");
    command
        .arg(target)
        .arg(corpus)
        .args(seeds.is_dir().then_some(seeds))
        .arg("--")
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={FUZZ_INPUT_BYTES_MAX}"))
        // Weighing inputs by the rarity of what they reach takes two thirds of the time where one
        // input reaches as much as a whole stack's does.
        .arg("-entropic=0")
        .args(["-verbosity=0", "-print_final_stats=1"]);
    let output = run::outcome(&mut command)?;
    let said = [output.stdout, output.stderr].concat();
    eprintln!("--- fuzz {target}\n{}", String::from_utf8_lossy(&said));
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("fuzz target {target}: {}", output.status))
    }
}

/// The repository's inputs for a target: its own, or our packet scripts for their parser.
fn seeds_of(root: &Path, target: &str) -> std::path::PathBuf {
    match target {
        "script_text" => root.join("tools/script/scripts"),
        _ => root.join("tools/fuzz/seeds").join(target),
    }
}

/// The names of the files in tools/fuzz/fuzz_targets.
fn fuzz_targets(root: &Path) -> Result<Vec<String>, String> {
    let directory = root.join("tools/fuzz/fuzz_targets");
    let entries =
        fs::read_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
        .collect();
    names.sort();
    if names.is_empty() {
        return Err(format!("{}: no fuzz target", directory.display()));
    }
    Ok(names)
}

/// Directory of a build with other flags or another toolchain. A directory of its own keeps it from
/// discarding the usual build's work.
pub fn target_of(root: &Path, chore: &str) -> std::path::PathBuf {
    run::target(root).join(chore)
}
