//! Cargo builds in the tree of mutants, and the compiler's errors.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde::Deserialize;

use super::program::Program;
use crate::run;

/// An error of the compiler.
#[derive(Debug)]
pub struct CompileError {
    /// `E0277` and the like; empty for an error without a code.
    pub code: String,
    pub text: String,
    /// Files relative to the tree's root, and byte ranges in them.
    pub places: Vec<(String, std::ops::Range<usize>)>,
}

/// The reason why a build made no programs.
pub enum BuildFailure {
    /// The compiler reported errors.
    Refused(Vec<CompileError>),
    /// The deadline came first.
    Late,
    Other(String),
}

/// Checks the libraries of `crates`, the quickest way to the compiler's errors.
pub fn check(tree: &Path, crates: &[String], deadline: Instant) -> Result<(), BuildFailure> {
    let mut command = cargo(tree);
    command.args(["check", "--lib"]);
    for name in crates {
        command.args(["-p", name]);
    }
    messages(&mut command, deadline).map(|_| ())
}

/// Builds the test programs in `names`: `CRATE` for unit tests, `CRATE/TEST` for others.
pub fn programs(
    tree: &Path,
    names: &[&str],
    deadline: Instant,
) -> Result<Vec<Program>, BuildFailure> {
    let mut command = cargo(tree);
    command.args(["test", "--no-run"]);
    let mut packages: Vec<&str> = names.iter().map(|name| package(name)).collect();
    packages.dedup();
    for name in packages {
        command.args(["-p", name]);
    }
    command.arg("--lib");
    for (_, test) in names.iter().filter_map(|name| name.split_once('/')) {
        command.args(["--test", test]);
    }
    let mut programs = Vec::new();
    for message in messages(&mut command, deadline)? {
        let (Some(path), Some(target)) = (message.executable, message.target) else {
            continue;
        };
        let manifest = message.manifest_path.unwrap_or_default();
        let directory = manifest.parent().unwrap_or(tree).to_owned();
        let package = directory.file_name().and_then(|name| name.to_str());
        let package = package.unwrap_or_default();
        let name = match target.kind.iter().any(|kind| kind == "test") {
            true => format!("{package}/{}", target.name),
            false => package.to_owned(),
        };
        if names.contains(&name.as_str()) {
            programs.push(Program {
                name,
                path,
                directory,
            });
        }
    }
    Ok(programs)
}

fn package(name: &str) -> &str {
    name.split_once('/').map_or(name, |(package, _)| package)
}

/// A cargo command in the tree, for the smallest build. Lints only warn: a mutant whose constant
/// overflows must compile, so that a test can notice it.
fn cargo(tree: &Path) -> Command {
    let mut command = run::cargo();
    command
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", tree.with_file_name("build"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "1")
        .env("RUSTFLAGS", "--cap-lints=warn");
    command
}

/// A line of cargo's JSON output.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    message: Option<Diagnostic>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    message: String,
    rendered: Option<String>,
    code: Option<Code>,
    spans: Vec<Place>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Place {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
}

/// Runs cargo and reads what it built.
fn messages(command: &mut Command, deadline: Instant) -> Result<Vec<Message>, BuildFailure> {
    command.args(["--quiet", "--message-format=json"]);
    let output = run::outcome_before(command, deadline).map_err(BuildFailure::Other)?;
    let output = output.ok_or(BuildFailure::Late)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Message> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if output.status.success() {
        return Ok(messages);
    }
    let errors: Vec<CompileError> = messages
        .into_iter()
        .filter_map(|message| message.message)
        .filter(|diagnostic| diagnostic.level == "error" && !diagnostic.spans.is_empty())
        .map(|diagnostic| CompileError {
            code: diagnostic.code.map(|code| code.code).unwrap_or_default(),
            text: diagnostic.rendered.unwrap_or(diagnostic.message),
            places: diagnostic
                .spans
                .into_iter()
                .filter(|place| place.is_primary)
                .map(|place| (place.file_name, place.byte_start..place.byte_end))
                .collect(),
        })
        .collect();
    if errors.is_empty() {
        let cause = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(BuildFailure::Other(cause));
    }
    Err(BuildFailure::Refused(errors))
}
