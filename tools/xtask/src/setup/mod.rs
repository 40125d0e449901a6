//! Set-up: installs what the chores need from Debian and rustup.
//!
//! Only missing things are installed, after they are named, and never through a piped script. Every
//! chore that needs more than cargo calls this with its [`Need`].

mod debian;
mod rust;

use std::fs::{self, File};
use std::path::Path;

use crate::run;

/// The nightly for Miri and the fuzzers, pinned so that runs can be repeated.
pub const NIGHTLY: &str = "nightly-2026-04-14";
/// A target without an operating system. Code that builds for it makes no system call.
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
    /// Everything that `test` needs.
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

/// Installs missing things. An error names them and the command that installs them.
pub fn setup(root: &Path, need: &Need) -> Result<bool, String> {
    packages(root, need)?;
    rust::install_missing(need)?;
    Ok(true)
}

/// Installs missing Debian packages. If another process of this tree does, this waits for its end:
/// a program that is unpacked is not yet configured.
pub fn packages(root: &Path, need: &Need) -> Result<(), String> {
    let directory = run::target(root);
    let path = directory.join("packages.lock");
    let told = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(directory).map_err(told)?;
    // The lock ends with the file.
    let file = File::create(&path).map_err(told)?;
    file.lock().map_err(told)?;
    debian::install_missing(need)
}

/// Installs missing components of the toolchain that runs us, which takes seconds.
pub fn components(need: &Need) -> Result<(), String> {
    rust::install_missing(&Need {
        target_no_os: need.target_no_os,
        ..Need::default()
    })
}
