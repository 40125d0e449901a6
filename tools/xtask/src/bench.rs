//! `cargo xtask bench NAME`: builds the program `bench` for release and runs it. Where times are
//! measured, a profile guides the build.

use std::path::{Path, PathBuf};

use crate::cli::BenchOptions;
use crate::guided;
use crate::programs::speed;
use crate::run;
use crate::setup::{self, Need};

/// Benchmarks that compare with other stacks. `netstack` is built for them.
const WITH_RIVALS: [&str; 3] = ["message", "bulk", "all"];
/// Benchmarks whose figures do not depend on the build, or are compared with those of a plain one.
const PLAIN: [&str; 3] = ["cycles", "goodput", "report"];
/// Benchmarks that also show the cycles of each stage of a server, by a `bench` of another build.
const WITH_STAGES: [&str; 2] = ["cycles", "all"];

/// The benchmark of unmodified programs, for which `bench` is not needed.
const PROGRAMS: &str = "programs";

/// The chore. Options behind the benchmark's name are passed on unread.
pub fn bench(root: &Path, options: &BenchOptions) -> Result<bool, String> {
    let name = options.arguments.first().map_or("", String::as_str);
    if name == PROGRAMS {
        if let [_, unread, ..] = &options.arguments[..] {
            return Err(format!("bench {PROGRAMS} {unread}: it takes no options"));
        }
        let need = Need {
            demo: true,
            programs: true,
            ..Need::default()
        };
        setup::setup(root, &need)?;
        return speed::speed(root);
    }
    let need = Need {
        demo: true,
        valgrind: WITH_STAGES.contains(&name),
        ..Need::default()
    };
    setup::setup(root, &need)?;
    let is_short = |word: &String| word == "--quick" || word == "--help";
    let programs =
        if PLAIN.contains(&name) || options.plain || options.arguments.iter().any(is_short) {
            build_plain()?;
            run::target(root).join("release")
        } else {
            guided::build(root, &["bench", "preload"], &[])?
        };
    if WITH_RIVALS.contains(&name) {
        build_netstack(root, &programs)?;
    }
    let mut command = run::command(&programs.join("bench").to_string_lossy());
    command.args(&options.arguments);
    let compares_only = ["--check", "--update", "--help"];
    let whole = |word: &String| !compares_only.contains(&word.as_str());
    if WITH_STAGES.contains(&name) && options.arguments.iter().all(whole) {
        command.arg("--stages").arg(build_stages(root)?);
    }
    run::run(&mut command)?;
    Ok(true)
}

/// The step of the suite that compares instruction counts with the baseline.
pub fn cycles_check(root: &Path) -> Result<(), String> {
    build_plain()?;
    let program = run::target(root).join("release/bench");
    let mut command = run::command(&program.to_string_lossy());
    command.args(["cycles", "--check", "--baseline"]);
    run::run(command.arg(root.join("tools/bench/cycles.json")))
}

/// Builds the benchmarks without a profile.
fn build_plain() -> Result<(), String> {
    // `cycles` counts instructions under the preloaded library.
    let packages = ["--package", "bench", "--package", "preload"];
    run::run(run::cargo().args(["build", "--release"]).args(packages))
}

/// Builds gVisor's netstack if there is a Go that is new enough (1.24; Debian's is not). Without it
/// the report says that netstack was left out.
fn build_netstack(root: &Path, programs: &Path) -> Result<(), String> {
    if run::find_program("go").is_none() {
        println!("xtask: no Go here: gVisor's netstack is left out");
        return Ok(());
    }
    let mut go = run::command("go");
    go.args(["build", "-mod=readonly", "-o"]);
    let program = programs.join("netstack");
    go.arg(std::path::absolute(program).map_err(|error| error.to_string())?);
    run::run(go.arg(".").current_dir(root.join("tools/bench/netstack")))
}

/// Builds a `bench` that counts the cycles of each stage. It gets its own directory, so that it
/// does not replace the usual one.
fn build_stages(root: &Path) -> Result<PathBuf, String> {
    let target = run::target(root).join("stages");
    let mut cargo = run::cargo();
    cargo.args([
        "build",
        "--release",
        "--package",
        "bench",
        "--features",
        "stage-cycles",
    ]);
    run::run(cargo.env("CARGO_TARGET_DIR", &target))?;
    Ok(target.join("release/bench"))
}
