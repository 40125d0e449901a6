//! `cargo xtask stress`, by part:
//!
//! * `libmtcp`: eight threads with thousands of connections each; with `--sanitize` under the
//!   address sanitizer.
//! * `mux`: as many applications behind one `mill mux` as it has virtual ports, and one beside a
//!   hostile neighbour.
//! * `observe`: throughput of a server beside `mill ss`, `top`, `metrics`, `trace` and `capture`, as
//!   a share of that without them; with `--each` beside each of them.
//! * `programs`: millions of short connections through nginx, while its memory is watched.
//!
//! The C programs of `crates/capi/tests` are always built with sanitizers. With `--sanitize` the
//! library is too, the standard library included, as a shared library and as an archive. The
//! runtime is gcc's, which comes with the C programs.

use std::path::{Path, PathBuf};

use crate::chores::target_of;
use crate::cli::{StressOptions, StressPart};
use crate::programs;
use crate::run;
use crate::setup::{self, NIGHTLY, Need};

/// Target for which the library is built. Naming it keeps the flags from build scripts.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// A profile as fast as a release, with our assertions.
const PROFILE: &str = "sim";
const FLAGS: &str = "-Zsanitizer=address -Cforce-frame-pointers=yes";
/// Most virtual ports of a `mill mux`.
const VIRTUAL_PORTS: &str = "254";
/// Least throughput of an application beside a hostile one, relative to that beside an honest one.
const LEAST_SHARE: &str = "0.9";
/// Short C programs that are run with each form of the library, besides the stress test.
const SHORT_TESTS: [&str; 6] = [
    "smoke",
    "control",
    "classic",
    "ports",
    "attached",
    "leftovers",
];

/// The chore.
pub fn stress(root: &Path, options: &StressOptions) -> Result<bool, String> {
    if options.part == StressPart::Mux {
        let mut command = run::cargo();
        command
            .args(["test", "--release", "-p", "mill", "--test", "mux"])
            .args(["--", "--nocapture", "all_virtual_ports", "keeps_its_share"])
            .env("MUX_APPLICATIONS", VIRTUAL_PORTS)
            .env("MUX_SHARE", LEAST_SHARE);
        run::run(&mut command)?;
        return Ok(true);
    }
    if options.part == StressPart::Observe {
        let mut command = run::cargo();
        command
            .args(["test", "--release", "-p", "mill", "--test", "observed_load"])
            .args(["--", "--nocapture"])
            .env("OBSERVE_SECONDS", options.seconds.to_string());
        if options.each {
            command.env("OBSERVE_EACH", "1");
        }
        run::run(&mut command)?;
        return Ok(true);
    }
    if options.part == StressPart::Programs {
        return programs::soak::soak(root, options.requests);
    }
    if !options.sanitize {
        run::run(long(options).arg("--nocapture"))?;
        return Ok(true);
    }
    let directory = build(root)?;
    for linkage in ["shared", "static"] {
        let mut short = tests(&SHORT_TESTS);
        short.arg("--test-threads=1");
        run::run(with(&mut short, &directory, linkage))?;
    }
    let mut long = long(options);
    run::run(with(long.arg("--nocapture"), &directory, "shared"))?;
    Ok(true)
}

fn tests(names: &[&str]) -> std::process::Command {
    let mut command = run::cargo();
    command.args(["test", "--release", "-p", "capi"]);
    for name in names {
        command.args(["--test", name]);
    }
    command.arg("--");
    command
}

fn long(options: &StressOptions) -> std::process::Command {
    let mut command = tests(&["stress"]);
    command
        .env("CAPI_STRESS_SECONDS", options.seconds.to_string())
        .env("CAPI_STRESS_CONNECTIONS", options.connections.to_string());
    command
}

/// Tells `crates/capi/tests/common` which library to link.
fn with<'a>(
    command: &'a mut std::process::Command,
    directory: &Path,
    linkage: &str,
) -> &'a mut std::process::Command {
    command
        .env("CAPI_LIBRARY", directory)
        .env("CAPI_LINKAGE", linkage)
}

/// Builds the library with the sanitizer, and returns its directory.
fn build(root: &Path) -> Result<PathBuf, String> {
    let need = Need {
        miri: true,
        ..Need::default()
    };
    setup::setup(root, &need)?;
    let target = target_of(root, "sanitize");
    run::run(
        run::cargo()
            .arg(format!("+{NIGHTLY}"))
            .args(["build", "-Zbuild-std", "--target", TARGET])
            .args(["--profile", PROFILE, "-p", "capi", "--lib"])
            .env("RUSTFLAGS", FLAGS)
            .env("CARGO_TARGET_DIR", &target),
    )?;
    Ok(target.join(TARGET).join(PROFILE))
}
