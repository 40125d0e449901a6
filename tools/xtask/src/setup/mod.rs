//! Set-up: what the chores need from Debian and from rustup.
//!
//! Installs only what is missing and says so first; never through a piped script. Called by every
//! chore that needs more than cargo, with the [`Need`] that says what for.

mod debian;
mod rust;

use std::path::Path;

/// The nightly that Miri and the fuzzers run on, pinned so that a run today is a run next year.
pub const NIGHTLY: &str = "nightly-2026-04-14";
/// The target with no operating system: what builds for it makes no system call.
pub const TARGET_NO_OS: &str = "x86_64-unknown-none";

/// The tools that a chore needs.
#[derive(Clone, Copy, Default)]
pub struct Need {
    /// The programs that the demo runs.
    pub demo: bool,
    /// The programs that the integration tests run, and the BPF compiler.
    pub tests: bool,
    /// The programs that run unchanged under `mill run`.
    pub programs: bool,
    /// The suites of other projects that run under `mill run`.
    pub suites: bool,
    /// [`TARGET_NO_OS`], rustfmt and clippy.
    pub target_no_os: bool,
    /// [`NIGHTLY`] with Miri.
    pub miri: bool,
    /// [`NIGHTLY`] and cargo-fuzz.
    pub fuzz: bool,
    /// cargo-mutants.
    pub mutants: bool,
    /// cargo-deny.
    pub deny: bool,
    /// Valgrind, which counts instructions.
    pub valgrind: bool,
    /// LLVM's tools, for profile-guided builds.
    pub profile: bool,
}

impl Need {
    /// What `test` needs.
    pub fn everything() -> Self {
        Self {
            demo: true,
            tests: true,
            programs: true,
            suites: false,
            target_no_os: true,
            miri: true,
            fuzz: true,
            mutants: true,
            deny: true,
            valgrind: true,
            profile: true,
        }
    }
}

/// Installs what is missing. An error says what is missing and the one line that installs it.
pub fn setup(_root: &Path, need: &Need) -> Result<bool, String> {
    debian::install_missing(need)?;
    rust::install_missing(need)?;
    Ok(true)
}
