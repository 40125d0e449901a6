//! Profile-guided builds (decision 0031): a counting build, exercises that run it, and a build that
//! uses the counts.
//!
//! ```text
//! TARGET/guided/counting/    the build that counts
//! TARGET/guided/counts/      what each of its processes wrote at its end
//! TARGET/guided/*.profdata   all of that put together, named by what it says
//! TARGET/guided/built/       the build that uses it
//! ```
//!
//! The exercises run again only when the counting build is newer than their profile. Called by
//! `bench` and `install`.

use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::demo;
use crate::run;
use crate::setup::{self, Need};

/// Environment variable that makes programs report how they were built.
const SAYS_SO: (&str, &str) = ("MILLSTREAM_BUILD", "profile-guided");

/// Exercises with both ends in one thread and a fixed number of transactions. They run the stack
/// itself far more often than anything else.
const STACK_ALONE: [&[&str]; 5] = [
    &["--connections", "64", "--transactions", "60000"],
    &["--connections", "1024", "--transactions", "60000"],
    &["--messages", "0", "--transactions", "100000"],
    &["--exchange", "reset", "--transactions", "60000"],
    &[
        "--response-bytes",
        "262144",
        "--connections",
        "8",
        "--transactions",
        "3000",
    ],
];

/// Builds `packages` for release with the profile, and returns the directory of the files. A
/// missing or old profile is made first. `kinds` are cargo's options for what to build, such as
/// `--lib`.
pub fn build(root: &Path, packages: &[&str], kinds: &[&str]) -> Result<PathBuf, String> {
    let need = Need {
        profile: true,
        ..Need::default()
    };
    setup::setup(root, &need)?;
    let place = std::path::absolute(run::target(root).join("guided"))
        .map_err(|error| format!("target directory: {error}"))?;
    let host = host()?;
    let counting = place.join("counting");
    let counts = place.join("counts");
    cargo_build(&host, &counting, &["bench"], &[], "-Cprofile-generate")?;
    let programs = counting.join(&host).join("release");
    let counted = ["bench", "rivals"].map(|name| programs.join(name));
    let profile = match newer_than(&place, &counted) {
        Some(profile) => profile,
        None => {
            exercise(&programs.join("bench"), &counts)?;
            merge(&host, &counts, &place)?
        }
    };
    let built = place.join("built");
    let flag = format!("-Cprofile-use={}", profile.display());
    cargo_build(&host, &built, packages, kinds, &flag)?;
    Ok(built.join(&host).join("release"))
}

/// A release build in a directory of its own. `--target` keeps the flag from build scripts.
fn cargo_build(
    host: &str,
    into: &Path,
    packages: &[&str],
    kinds: &[&str],
    flag: &str,
) -> Result<(), String> {
    let given = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut cargo = run::cargo();
    cargo.args(["build", "--release", "--target", host]);
    for package in packages {
        cargo.args(["--package", package]);
    }
    cargo
        .args(kinds)
        .env("CARGO_TARGET_DIR", into)
        .env("RUSTFLAGS", format!("{given} {flag}").trim())
        .env(SAYS_SO.0, SAYS_SO.1);
    if let Some(commit) = commit() {
        cargo.env("MILLSTREAM_COMMIT", commit);
    }
    run::run(&mut cargo)
}

/// The commit being built, followed by `+` if the tree has changes.
fn commit() -> Option<String> {
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "-uno"])?;
    Some(commit + if changes.is_empty() { "" } else { "+" })
}

/// Runs the benchmarks that a profile should know. The stack alone runs longest, for its weight.
/// Each wire, both cranks and the rivals run for a moment, so that the compiler does not treat
/// their code as cold.
fn exercise(program: &Path, counts: &Path) -> Result<(), String> {
    if counts.exists() {
        fs::remove_dir_all(counts).map_err(|error| format!("{}: {error}", counts.display()))?;
    }
    let bench = |words: &[&str]| -> Result<(), String> {
        let mut command = run::command(&program.to_string_lossy());
        command
            .args(words)
            .env("LLVM_PROFILE_FILE", counts.join("%m-%p.profraw"))
            .stdout(std::process::Stdio::null());
        run::run(&mut command)
    };
    for words in STACK_ALONE {
        bench(&[&["one-thread"], words].concat())?;
    }
    let figures = match demo::must_be_root("a profile of AF_XDP") {
        Ok(()) => "all",
        Err(_) => "7a,7b,7c,8,one-thread,persistent,latency",
    };
    bench(&["message", "--quick", "--figure", figures])?;
    if figures == "all" {
        bench(&["bulk", "--quick"])?;
    }
    Ok(())
}

/// Merges all counts into a profile. Its name changes with its contents, since cargo does not read
/// a file that a flag names.
fn merge(host: &str, counts: &Path, place: &Path) -> Result<PathBuf, String> {
    let merged = place.join("merged");
    let mut merge = Command::new(profdata(host)?);
    // Processes that were ended while writing leave useless files, which must not fail the merge.
    merge.args([
        OsStr::new("merge"),
        OsStr::new("--failure-mode=all"),
        OsStr::new("--output"),
        merged.as_os_str(),
    ]);
    run::run(merge.arg(counts))?;
    for old in profiles(place) {
        let _ = fs::remove_file(old);
    }
    let text = fs::read(&merged).map_err(|error| format!("{}: {error}", merged.display()))?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&text);
    let named = place.join(format!("{:016x}.profdata", hasher.finish()));
    fs::rename(&merged, &named).map_err(|error| format!("{}: {error}", named.display()))?;
    Ok(named)
}

/// The profile, if it was made after all of `programs` were built.
fn newer_than(place: &Path, programs: &[PathBuf]) -> Option<PathBuf> {
    let time = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let built: Option<Vec<_>> = programs.iter().map(|program| time(program)).collect();
    let built = built?.into_iter().max()?;
    profiles(place)
        .into_iter()
        .find(|profile| time(profile).is_some_and(|made| made > built))
}

fn profiles(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.extension() == Some(OsStr::new("profdata")))
        .collect()
}

/// The target triple of this machine.
fn host() -> Result<String, String> {
    let version = run::output(run::command("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc -vV names no host".to_owned())
}

/// LLVM's program of the toolchain in use; other versions cannot read its files.
pub fn profdata(host: &str) -> Result<PathBuf, String> {
    let sysroot = run::output(run::command("rustc").args(["--print", "sysroot"]))?;
    let tools = format!("lib/rustlib/{host}/bin/llvm-profdata");
    Ok(Path::new(sysroot.trim()).join(tools))
}

/// Whether [`profdata`] is installed.
pub fn has_profdata() -> bool {
    let path = host().and_then(|host| profdata(&host));
    path.is_ok_and(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn rebuilt_program_makes_its_profile_old() {
        let place = std::env::temp_dir().join(format!("guided-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let profile = place.join("00.profdata");
        let programs = ["bench", "rivals"].map(|name| place.join(name));
        let written_at = |path: &Path, seconds: u64| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            File::create(path).unwrap().set_modified(time).unwrap();
        };
        assert_eq!(newer_than(&place, &programs), None);
        written_at(&programs[0], 1);
        assert_eq!(newer_than(&place, &programs), None);
        written_at(&programs[1], 1);
        assert_eq!(newer_than(&place, &programs), None);
        written_at(&profile, 2);
        assert_eq!(newer_than(&place, &programs), Some(profile));
        for program in &programs {
            written_at(program, 3);
            assert_eq!(newer_than(&place, &programs), None);
            written_at(program, 1);
        }
        fs::remove_dir_all(&place).unwrap();
    }
}
