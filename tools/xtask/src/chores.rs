//! The single checks: the commands of each, with toolchain and settings.
//!
//! Each is a function of the workspace's root that returns the reason of a failure. `cargo xtask
//! <name>` calls one of them, [`crate::suite`] calls all in order.

use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::cleanup;
use crate::cli::FuzzOptions;
use crate::run;
use crate::setup::{self, NIGHTLY, Need, TARGET_NO_OS};

/// Most preemptions of threads in one loom run. Three find nearly all that more would find, and
/// take minutes.
const LOOM_PREEMPTIONS_MAX: &str = "3";
/// Cases of each property test under Miri, which is slow.
const MIRI_PROPTEST_CASES: &str = "8";
/// Longest input of the fuzzers in bytes; longer than any frame that they parse.
const FUZZ_INPUT_BYTES_MAX: &str = "2048";

/// Runs one check as a chore of its own.
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

/// Writes or compares the tables of docs/operating.md, by the test that knows the lists.
pub fn docs(check: bool) -> Result<(), String> {
    let mut test = run::cargo();
    test.args(["test", "-q", "-p", "millstream", "--test", "pages"]);
    if !check {
        test.env("MILLSTREAM_WRITE_PAGES", "1");
    }
    run::run(&mut test)
}

/// Checks licences, sources and versions of foreign crates against `deny.toml`.
pub fn deny(_root: &Path) -> Result<(), String> {
    run::run(run::cargo().args(["deny", "check", "licenses", "bans", "sources"]))
}

/// Builds `wire` and `tcp` for a target without an operating system, which proves that they are
/// sans-IO.
pub fn no_os(_root: &Path) -> Result<(), String> {
    run::run(run::cargo().args(["build", "-p", "wire", "-p", "tcp", "--target", TARGET_NO_OS]))
}

/// Builds the documentation of every product crate and checks its links.
pub fn doc(root: &Path) -> Result<(), String> {
    let mut command = run::cargo();
    command.args(["doc", "--no-deps"]);
    for name in directories_in(&root.join("crates"))? {
        command.args(["-p", &name]);
    }
    run::run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// The names of the directories in a directory. Our crates are named after theirs.
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

/// Unit and property tests in the crates, and the examples of their documentation.
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

/// Tests beside the crates: conversations, oracles, and tests with namespaces. They run one after
/// another, since many of them need the machine for themselves.
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

/// `cargo xtask sim`: the simulator with its own command line, optimised but with assertions.
pub fn sim(arguments: &[String]) -> Result<(), String> {
    run::run(
        run::cargo()
            .args(["run", "--quiet", "--profile", "sim", "-p", "world", "--"])
            .args(arguments),
    )
}

/// `cargo xtask script`: the program that plays and compares packet scripts.
pub fn script(arguments: &[String]) -> Result<(), String> {
    run::run(
        run::cargo()
            .args(["run", "--quiet", "--release", "-p", "script"])
            .args(["--bin", "script", "--"])
            .args(arguments),
    )
}

/// Simulates this many seeds, from the first.
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

/// Fuzzes every target for some seconds of CPU time. This finds shallow faults, and proves that
/// each target still builds and runs.
pub fn fuzz_smoke(root: &Path, seconds: u64) -> Result<(), String> {
    fuzz_each(root, &fuzz_targets(root)?, seconds)
}

/// Checks that the committed BPF objects come from the sources beside them.
pub fn bpf(root: &Path) -> Result<(), String> {
    let script = root.join("bpf/build.sh");
    run::run(run::command(&script.to_string_lossy()).arg("--check"))
}

/// Fuzzes all targets. Each has one thread, so as many run at once as there are cores.
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
        // Wait for every worker, even if the first one failed.
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

/// Fuzzes one target for some seconds of CPU time, so that a busy machine makes the run longer and
/// not weaker. Its output is printed at the end, since others run at the same time.
fn fuzz_one(root: &Path, target: &str, seconds: u64) -> Result<(), String> {
    // Inputs that this machine found earlier, if any; the repository's own come after them.
    let corpus = root.join("tools/fuzz/corpus").join(target);
    fs::create_dir_all(&corpus).map_err(|error| format!("{}: {error}", corpus.display()))?;
    let seeds = seeds_of(root, target);
    // The fuzzer ends once this file has a byte.
    let stop = cleanup::temporary_directory()?.join(format!("stop-{target}"));
    let mut command = fuzz_command(root, "run");
    command
        .arg(target)
        .arg(corpus)
        .args(seeds.is_dir().then_some(seeds))
        .arg("--")
        .arg(format!("-stop_file={}", stop.display()))
        .arg(format!("-max_len={FUZZ_INPUT_BYTES_MAX}"))
        // Entropic scheduling weighs inputs by rare features. It takes two thirds of the time if
        // one input reaches as much as a whole stack does.
        .arg("-entropic=0")
        .args(["-verbosity=0", "-print_final_stats=1"]);
    let limit = Duration::from_secs(seconds);
    let output = run::outcome_watched(&mut command, |cpu| {
        if cpu >= limit {
            // A file that cannot be written now is written at the next look.
            let _ = fs::write(&stop, "stop");
        }
    })?;
    let said = [output.stdout, output.stderr].concat();
    eprintln!("--- fuzz {target}\n{}", String::from_utf8_lossy(&said));
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("fuzz target {target}: {}", output.status))
    }
}

/// The repository's inputs for a target. The parser of scripts gets our packet scripts.
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

/// Directory of a build with other flags or another toolchain. It keeps that build from discarding
/// the usual build's work.
pub fn target_of(root: &Path, chore: &str) -> std::path::PathBuf {
    run::target(root).join(chore)
}
