//! A run of a test program: its tests' outcomes, and the test that failed or hangs.
//!
//! Tests run one after another, and the program prints a test's name before the test begins. The
//! time limit is therefore each test's own, and counts the program's CPU time. A busy machine
//! delays a test, but does not make it seem to hang.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::switch::{REACH_VARIABLE, REACHES, VARIABLE};
use crate::run;

/// A test hangs after `CPU_FACTOR` times its usual CPU time, but never before `CPU_MIN`.
const CPU_MIN: Duration = Duration::from_secs(4);
const CPU_FACTOR: u32 = 10;
/// Time without any computing after which a test hangs. Even a starving test computes now and then.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// CPU time that a test may take if it was never measured.
const CPU_UNKNOWN: Duration = Duration::from_secs(300);
/// Time between two looks at the clocks.
const POLL: Duration = Duration::from_millis(100);
/// Memory that a test program may allocate, in KiB. A mutant that allocates for ever ends before
/// the machine runs out.
const MEMORY_KIB_MAX: u64 = 12 << 20;
/// Seed that makes property tests draw the same inputs in every run.
const PROPTEST_SEED: &str = "1";
/// The kernel's unit of a process's CPU time (`sysconf(_SC_CLK_TCK)` is 100 on Linux).
const TICK: Duration = Duration::from_millis(10);

/// A built test program.
#[derive(Clone)]
pub struct Program {
    /// `CRATE/TEST`, or `CRATE` for the unit tests.
    pub name: String,
    pub path: PathBuf,
    pub directory: PathBuf,
}

/// Switches of a run.
#[derive(Clone, Copy)]
pub enum Switches<'a> {
    Off,
    On(usize),
    /// No mutant is on. The mutants that a test reaches are noted in this file.
    Noted(&'a Path),
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// The named test failed, or the program died in it.
    Failed(String),
    Hung(String),
    /// The deadline came first.
    Late,
}

impl Program {
    /// Runs `tests`, or all if that is `None`, until one fails or the deadline comes. `expected` is
    /// the CPU time of a test without a mutant, if known. `ended` is called with the CPU time of
    /// each test.
    pub fn run(
        &self,
        tests: Option<&[&str]>,
        switches: Switches<'_>,
        deadline: Instant,
        expected: impl Fn(&str) -> Option<Duration>,
        mut ended: impl FnMut(&str, Duration),
    ) -> Result<Outcome, String> {
        let mut child = run::Watched::start(&mut self.command(tests, switches))?;
        let Some(stdout) = child.stdout() else {
            return Err(format!("{}: no output", self.name));
        };
        let said = reader(stdout);
        let mut text = String::new();
        let mut current = Current::begin("", child.id());
        loop {
            if Instant::now() >= deadline {
                return Ok(Outcome::Late);
            }
            match said.recv_timeout(POLL) {
                Ok(piece) => text += &piece,
                Err(RecvTimeoutError::Timeout) if current.hangs(child.id(), &expected) => {
                    return Ok(Outcome::Hung(current.name));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            while let Some((line, rest)) = text.split_once('\n') {
                if let Some(end) = TestEnd::of(line) {
                    ended(&end.name, current.cpu_used(child.id()));
                    if end.is_failure {
                        return Ok(Outcome::Failed(end.name));
                    }
                    current = Current::begin("", child.id());
                }
                text = rest.to_owned();
            }
            if let Some(name) = begun(&text)
                && name != current.name
            {
                current = Current::begin(name, child.id());
            }
        }
        Ok(match child.wait()? {
            true => Outcome::Passed,
            false => Outcome::Failed(current.name),
        })
    }

    fn command(&self, tests: Option<&[&str]>, switches: Switches<'_>) -> Command {
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
            .env_remove(VARIABLE)
            .env_remove(REACH_VARIABLE)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some(tests) = tests {
            command.arg("--exact").args(tests);
        }
        match switches {
            Switches::Off => {}
            Switches::On(number) => {
                command.env(VARIABLE, number.to_string());
            }
            Switches::Noted(file) => {
                command.env(VARIABLE, REACHES).env(REACH_VARIABLE, file);
            }
        }
        command
    }
}

/// Starts a thread that passes on what the program prints, as it comes.
fn reader(mut from: impl Read + Send + 'static) -> Receiver<String> {
    let (says, said) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(len) = from.read(&mut buffer) {
            let piece = String::from_utf8_lossy(&buffer[..len]).into_owned();
            if len == 0 || says.send(piece).is_err() {
                break;
            }
        }
    });
    said
}

/// The test that has begun, if the last line is an unfinished one about a test.
fn begun(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix("test ")?.split_once(" ... ")?;
    Some(name_alone(name))
}

fn name_alone(name: &str) -> &str {
    name.strip_suffix(" - should panic").unwrap_or(name).trim()
}

/// A line about the end of a test.
struct TestEnd {
    name: String,
    is_failure: bool,
}

impl TestEnd {
    fn of(line: &str) -> Option<TestEnd> {
        let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
        Some(TestEnd {
            name: name_alone(name).to_owned(),
            is_failure: outcome.ends_with("FAILED"),
        })
    }
}

/// The running test. Before, between and after tests its name is empty.
struct Current {
    name: String,
    cpu_start: Duration,
    /// CPU time at the last look, and the time at which it had last grown.
    computed: (Duration, Instant),
}

impl Current {
    fn begin(name: &str, pid: u32) -> Current {
        let cpu_start = cpu_time(pid).unwrap_or_default();
        Current {
            name: name.to_owned(),
            cpu_start,
            computed: (cpu_start, Instant::now()),
        }
    }

    fn cpu_used(&self, pid: u32) -> Duration {
        let now = cpu_time(pid).unwrap_or(self.cpu_start);
        now.saturating_sub(self.cpu_start)
    }

    fn hangs(&mut self, pid: u32, expected: &impl Fn(&str) -> Option<Duration>) -> bool {
        let cpu_max = match expected(&self.name) {
            Some(usual) => CPU_MIN.max(usual * CPU_FACTOR),
            None => CPU_UNKNOWN,
        };
        let used = self.cpu_used(pid);
        if self.cpu_start + used != self.computed.0 {
            self.computed = (self.cpu_start + used, Instant::now());
        }
        used > cpu_max || self.computed.1.elapsed() > SILENCE_MAX
    }
}

/// The process's CPU time: fields 14 and 15 of /proc/PID/stat. The second field is in brackets and
/// may contain anything.
fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    let fields = after.split_whitespace().skip(11).take(2);
    let ticks: u32 = fields.map(|field| field.parse().unwrap_or(0)).sum();
    Some(TICK * ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcome of a shell script that prints like a test program.
    fn outcome(body: &str, usual: Duration) -> Outcome {
        outcome_within(Duration::from_secs(600), body, usual)
    }

    fn outcome_within(limit: Duration, body: &str, usual: Duration) -> Outcome {
        let name = format!("xtask-program-{}-{}", std::process::id(), body.len());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode).unwrap();
        let program = Program {
            name: "program".to_owned(),
            path: path.clone(),
            directory: std::env::temp_dir(),
        };
        let outcome = program.run(
            None,
            Switches::Off,
            Instant::now() + limit,
            |_| Some(usual),
            |_, _| (),
        );
        fs::remove_file(path).unwrap();
        outcome.unwrap()
    }

    #[test]
    fn the_first_failing_test_is_named() {
        let body = "echo 'test a ... ok'; echo 'test b   ... FAILED'; sleep 100";
        let failed = Outcome::Failed("b".to_owned());
        assert_eq!(outcome(body, Duration::ZERO), failed);
    }

    #[test]
    fn a_test_that_computes_for_ever_hangs_though_others_passed() {
        let body = "echo 'test a ... ok'; printf 'test b ... '; while :; do :; done";
        let hung = Outcome::Hung("b".to_owned());
        assert_eq!(outcome(body, Duration::ZERO), hung);
    }

    #[test]
    fn a_test_that_is_not_over_at_the_deadline_has_no_outcome() {
        let body = "echo 'test a ... ok'; printf 'test b ... '; sleep 100";
        let late = outcome_within(Duration::from_millis(300), body, Duration::ZERO);
        assert_eq!(late, Outcome::Late);
    }

    #[test]
    fn a_program_that_dies_names_the_test_that_ran() {
        let body = "printf 'test c - should panic ... '; kill -9 $$";
        let failed = Outcome::Failed("c".to_owned());
        assert_eq!(outcome(body, Duration::ZERO), failed);
        assert_eq!(
            outcome("echo 'test a ... ok'", Duration::ZERO),
            Outcome::Passed
        );
    }
}
