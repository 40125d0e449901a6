//! Toolchains, components and subcommands of cargo, through rustup and cargo. Called by
//! [`super::setup`].

use super::{NIGHTLY, Need, TARGET_NO_OS};
use crate::guided;
use crate::run;

/// The version of cargo-fuzz for which the fuzz directory is laid out.
const CARGO_FUZZ_VERSION: &str = "0.13.1";
/// The version of cargo-mutants whose list the chore `mutants` reads.
const CARGO_MUTANTS_VERSION: &str = "27.1.0";

/// The version of cargo-deny whose grammar deny.toml is written in.
const CARGO_DENY_VERSION: &str = "0.20.2";

/// Settings of a release build that ends soon. The tools run for seconds; with the settings of its
/// own, cargo-deny alone is linked for minutes.
const QUICK_BUILD: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
];

/// Installs the needed things that rustup and cargo lack.
pub fn install_missing(need: &Need) -> Result<(), String> {
    if need.target_no_os {
        target_no_os()?;
        component("rustfmt", "rustfmt")?;
        component("clippy", "cargo-clippy")?;
    }
    if need.miri || need.fuzz {
        nightly()?;
    }
    if need.fuzz {
        subcommand("fuzz", CARGO_FUZZ_VERSION)?;
    }
    if need.mutants {
        subcommand("mutants", CARGO_MUTANTS_VERSION)?;
    }
    if need.deny {
        subcommand("deny", CARGO_DENY_VERSION)?;
    }
    if need.profile && !guided::has_profdata() {
        rustup(&["component", "add", "llvm-tools"])?;
    }
    Ok(())
}

fn target_no_os() -> Result<(), String> {
    let library = run::output(run::command("rustc").args([
        "--print",
        "target-libdir",
        "--target",
        TARGET_NO_OS,
    ]));
    if library.is_ok_and(|path| std::path::Path::new(path.trim()).is_dir()) {
        return Ok(());
    }
    rustup(&["target", "add", TARGET_NO_OS])
}

fn component(name: &str, program: &str) -> Result<(), String> {
    if run::output(run::command(program).arg("--version")).is_ok() {
        return Ok(());
    }
    rustup(&["component", "add", name])
}

fn nightly() -> Result<(), String> {
    let wanted = ["miri", "rust-src"];
    let toolchain = format!("+{NIGHTLY}");
    let has_miri = || run::output(run::cargo().args([&toolchain, "miri", "--version"])).is_ok();
    if run::find_program("rustup").is_none() {
        return Err(no_rustup(&format!("toolchain {NIGHTLY} with {wanted:?}")));
    }
    let listed = run::output(run::command("rustup").args(["toolchain", "list"]))?;
    if listed.lines().any(|line| line.starts_with(NIGHTLY)) && has_miri() && has_source() {
        return Ok(());
    }
    let mut arguments = vec!["toolchain", "install", NIGHTLY, "--profile", "minimal"];
    // Builds may go on meanwhile, through the links to rustup that an update replaces.
    arguments.push("--no-self-update");
    for name in wanted {
        arguments.extend(["--component", name]);
    }
    rustup(&arguments)
}

/// Whether the standard library's source is installed, which Miri builds.
fn has_source() -> bool {
    let sysroot =
        run::output(run::command("rustc").args([&format!("+{NIGHTLY}"), "--print", "sysroot"]));
    sysroot.is_ok_and(|path| {
        std::path::Path::new(path.trim())
            .join("lib/rustlib/src/rust/library")
            .is_dir()
    })
}

/// Installs this version of a cargo subcommand, unless some version is there.
fn subcommand(name: &str, version: &str) -> Result<(), String> {
    if run::output(run::cargo().args([name, "--version"])).is_ok() {
        return Ok(());
    }
    let package = format!("cargo-{name}");
    println!("xtask: installing {package} {version} with cargo");
    let mut cargo = run::cargo();
    cargo.args(["install", "--locked", &package, "--version", version]);
    run::run(cargo.envs(QUICK_BUILD))
}

fn rustup(arguments: &[&str]) -> Result<(), String> {
    let line = format!("rustup {}", arguments.join(" "));
    if run::find_program("rustup").is_none() {
        return Err(no_rustup(&line));
    }
    println!("xtask: {line}");
    run::run(run::command("rustup").args(arguments))
}

fn no_rustup(wanted: &str) -> String {
    format!("rustup is not on PATH and this is needed: {wanted}")
}
