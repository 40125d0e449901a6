//! The tests that judge a mutant: which they are, their build, and one run of them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::switch::VARIABLE;
use crate::run;

/// Test programs by the mutated crate, in the order in which they run: quick ones that know the
/// crate best come first. None of them needs root, a kernel device or the clock. `CRATE` alone
/// means the unit tests.
const JUDGES: &[(&str, &[&str])] = &[
    (
        "wire",
        &[
            "wire",
            "wire/arbitrary_bytes",
            "wire/round_trip",
            "wire/dump",
            "wire/dump_arp_nd",
            "wire/dump_icmp",
            "wire/dump_tcp",
            "script/scripts",
            "tcp",
            "tcp/conversations",
            "stack",
            "stack/conversations",
        ],
    ),
    (
        "tcp",
        &[
            "script/scripts",
            "tcp",
            "tcp/conversations",
            "tcp/passive",
            "tcp/bbr",
            "stack",
            "stack/conversations",
            "stack/connection_limits",
            "stack/faulty_links",
            "world/worlds",
        ],
    ),
    (
        "stack",
        &[
            "stack",
            "stack/conversations",
            "stack/connection_limits",
            "stack/faulty_links",
            "script/scripts",
            "world/worlds",
        ],
    ),
    (
        "ring",
        &[
            "ring",
            "ring/spsc",
            "ring/small",
            "ring/memory",
            "ring/checksum",
            "ring/byte_ring_rx",
            "ring/byte_ring_tx",
            "ring/threads",
            "stack/conversations",
            "script/scripts",
        ],
    ),
    (
        "packetio",
        &[
            "packetio",
            "packetio/memif_pair",
            "packetio/memif_hostile",
            "packetio/memif_starved",
            "packetio/pcap_tools",
            "stack/conversations",
        ],
    ),
];

/// Tests that take longer than all others together, by program. They run last.
const SLOW: &[(&str, &[&str])] = &[(
    "tcp/conversations",
    &[
        "storm::",
        "receive::established_buffer_grows_with_what_is_read",
    ],
)];

/// A test program that says nothing for so long hangs; and never less than several times what it
/// takes without a mutant.
const SILENCE_MIN: Duration = Duration::from_secs(20);
const SILENCE_FACTOR: u32 = 10;
/// While that is not measured yet: a busy machine takes its time.
const SILENCE_UNKNOWN: Duration = Duration::from_secs(300);
/// What a test program may allocate, so that a mutant that allocates for ever ends before the
/// machine does.
const MEMORY_KIB_MAX: u64 = 12 << 20;
/// Property tests draw the same inputs in every run.
const PROPTEST_SEED: &str = "1";

/// The crates that may be mutated.
pub fn crates() -> Vec<String> {
    JUDGES.iter().map(|(name, _)| (*name).to_owned()).collect()
}

/// A built test program.
#[derive(Clone)]
struct Program {
    /// As in [`JUDGES`].
    name: String,
    path: PathBuf,
    directory: PathBuf,
    silence_max: Duration,
    part: Part,
}

/// Which of a program's tests run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Quick,
    Slow,
}

/// The programs that judge, built.
#[derive(Default)]
pub struct Judges {
    programs: Vec<Program>,
}

/// What a run of the tests says of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A test failed, or its program ended badly.
    Killed,
    /// A test program hung.
    TimedOut,
    Survived,
}

/// An error of the compiler, as far as it matters here.
#[derive(Debug)]
pub struct CompileError {
    /// `E0277` and the like; empty if it has none.
    pub code: String,
    pub text: String,
    /// File and bytes, from the tree's root.
    pub places: Vec<(String, std::ops::Range<usize>)>,
}

/// Why a build made nothing.
pub enum BuildFailure {
    /// The compiler refused.
    Refused(Vec<CompileError>),
    Other(String),
}

/// The test programs of all `crates`, each once, by package.
fn programs_of(crates: &[String]) -> Vec<&'static str> {
    let mut names: Vec<&str> = JUDGES
        .iter()
        .filter(|(name, _)| crates.iter().any(|wanted| wanted == name))
        .flat_map(|(_, programs)| programs.iter().copied())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Checks the libraries of `crates`: the quickest way to the compiler's errors.
pub fn check(tree: &Path, crates: &[String]) -> Result<(), BuildFailure> {
    let mut command = cargo(tree);
    command.args(["check", "--lib"]);
    for name in crates {
        command.args(["-p", name]);
    }
    messages(&mut command).map(|_| ())
}

/// Builds the test programs that judge `crates`.
pub fn build(tree: &Path, crates: &[String]) -> Result<Judges, BuildFailure> {
    let mut command = cargo(tree);
    command.args(["test", "--no-run"]);
    let names = programs_of(crates);
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
    for message in messages(&mut command)? {
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
        if !names.contains(&name.as_str()) {
            continue;
        }
        for part in [Part::Quick, Part::Slow] {
            if part == Part::Quick || !slow_tests(&name).is_empty() {
                programs.push(Program {
                    name: name.clone(),
                    path: path.clone(),
                    directory: directory.clone(),
                    silence_max: SILENCE_UNKNOWN,
                    part,
                });
            }
        }
    }
    Ok(Judges { programs })
}

/// Those of its tests that run last.
fn slow_tests(program: &str) -> &'static [&'static str] {
    let entry = SLOW.iter().find(|(name, _)| *name == program);
    entry.map_or(&[], |(_, tests)| tests)
}

fn package(name: &str) -> &str {
    name.split_once('/').map_or(name, |(package, _)| package)
}

impl Judges {
    /// Runs the tests of `crates` with no mutant on: they have to pass, and how long they take is
    /// the measure for mutants.
    pub fn prove(&mut self, crates: &[String]) -> Result<(), String> {
        let names = programs_of(crates);
        if let Some(missing) = names
            .iter()
            .find(|name| self.of(name, Part::Quick).is_none())
        {
            return Err(format!("{missing}: no such test program"));
        }
        for program in &mut self.programs {
            let start = Instant::now();
            match program.run(None)? {
                Verdict::Survived => {}
                verdict => return Err(format!("{}: {verdict:?} without a mutant", program.name)),
            }
            program.silence_max = SILENCE_MIN.max(start.elapsed() * SILENCE_FACTOR);
        }
        Ok(())
    }

    /// What the tests of `package` say while `mutant` is on, and which program said it.
    pub fn judge(&self, package: &str, mutant: Option<usize>) -> Result<(Verdict, &str), String> {
        let names = JUDGES.iter().find(|(name, _)| *name == package);
        let names = names.map_or(&[][..], |(_, names)| names);
        for part in [Part::Quick, Part::Slow] {
            for program in names.iter().filter_map(|name| self.of(name, part)) {
                match program.run(mutant)? {
                    Verdict::Survived => {}
                    verdict => return Ok((verdict, &program.name)),
                }
            }
        }
        Ok((Verdict::Survived, ""))
    }

    fn of(&self, name: &str, part: Part) -> Option<&Program> {
        let mut programs = self.programs.iter();
        programs.find(|other| other.name == name && other.part == part)
    }
}

impl Program {
    /// Runs until the first test that fails.
    fn run(&self, mutant: Option<usize>) -> Result<Verdict, String> {
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -c 0; ulimit -v \"$0\"; exec \"$@\""])
            .arg(MEMORY_KIB_MAX.to_string())
            .arg(&self.path)
            .arg("--test-threads=1")
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .env("PROPTEST_RNG_SEED", PROPTEST_SEED)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        for test in slow_tests(&self.name) {
            command.args((self.part == Part::Quick).then_some("--skip"));
            command.arg(test);
        }
        match mutant {
            Some(number) => command.env(VARIABLE, number.to_string()),
            None => command.env_remove(VARIABLE),
        };
        let mut child = run::Watched::start(&mut command)?;
        let Some(stdout) = child.stdout() else {
            return Err(format!("{}: no output", self.name));
        };
        let (says, said) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = says.send(line);
            }
        });
        loop {
            match said.recv_timeout(self.silence_max) {
                Ok(line) if line.starts_with("test ") && line.ends_with("FAILED") => {
                    return Ok(Verdict::Killed);
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(Verdict::TimedOut),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(match child.wait()? {
            true => Verdict::Survived,
            false => Verdict::Killed,
        })
    }
}

/// cargo in the tree, with the smallest build.
fn cargo(tree: &Path) -> Command {
    let mut command = run::cargo();
    command
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", tree.with_file_name("build"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "1")
        .env_remove("RUSTFLAGS");
    command
}

/// A line of cargo's JSON.
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
fn messages(command: &mut Command) -> Result<Vec<Message>, BuildFailure> {
    command.args(["--quiet", "--message-format=json"]);
    let output = run::outcome(command).map_err(BuildFailure::Other)?;
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
