//! Start of child processes, and their certain end.
//!
//! Owns the list of live process groups, the signal thread and the run's temporary directory. Each
//! child leads its own process group. `xtask` is a subreaper: a grandchild that outlives its parent
//! becomes its child, and is ended as well. All chores start children here.

use std::collections::HashSet;
use std::fs;
use std::io::{self, BufReader, PipeWriter};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cleanup;
use crate::failures::{self, Noted};

/// Time from SIGTERM to SIGKILL for a child that does not leave.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(8);
const LEAVE_POLL: Duration = Duration::from_millis(20);
/// Time between two looks at a child's CPU time.
const CPU_POLL: Duration = Duration::from_millis(200);

/// Live process groups. A group's number is its leader's pid.
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// The directory that holds the workspace's Cargo.toml.
pub fn workspace_root() -> Result<PathBuf, String> {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    // This crate lies in tools/xtask.
    let root = xtask
        .ancestors()
        .nth(2)
        .ok_or_else(|| format!("{}: no workspace above it", xtask.display()))?;
    fs::metadata(root.join("Cargo.toml"))
        .map_err(|error| format!("{}: {error}", root.join("Cargo.toml").display()))?;
    Ok(root.to_path_buf())
}

/// Makes SIGINT, SIGTERM and SIGHUP end the children, clean up and exit with 128 + signal.
pub fn watch_signals(root: &Path) -> Result<(), String> {
    std::env::set_current_dir(root).map_err(|error| format!("{}: {error}", root.display()))?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| format!("prctl(PR_SET_CHILD_SUBREAPER): {error}"))?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| format!("signal handlers: {error}"))?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            eprintln!("\nxtask: stopping: ending children, removing namespaces and files");
            end_groups();
            end_orphans();
            cleanup::after_run();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// A command without stdin, which runs in the workspace's root and has the run's temporary
/// directory.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    if let Ok(directory) = cleanup::temporary_directory() {
        command.env("TMPDIR", directory);
    }
    command
}

/// Cargo's target directory.
pub fn target(root: &Path) -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root.join(named)
}

/// A command for `cargo` of the toolchain that runs us.
pub fn cargo() -> Command {
    command("cargo")
}

/// Runs a child to its end. An error if its status is not 0.
pub fn run(command: &mut Command) -> Result<(), String> {
    let line = describe(command);
    eprintln!("$ {line}");
    let mut child = command
        .process_group(0)
        .spawn()
        .map_err(|error| spawn_error(command, &error))?;
    let group = Pid::from_child(&child);
    remember(group);
    let status = child.wait();
    end_group(group);
    forget(group);
    end_orphans();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}`: {status}")),
        Err(error) => Err(format!("`{line}`: wait: {error}")),
    }
}

/// Tests that could not run here, from all calls of [`run_tests`].
static IGNORED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes tests that could not run here, each with its reason.
pub fn note_ignored(tests: impl IntoIterator<Item = String>) {
    IGNORED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .extend(tests);
}

/// Takes the tests that could not run here, each with its reason.
pub fn take_ignored() -> Vec<String> {
    std::mem::take(&mut *IGNORED.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs a child that runs tests. Lines about failures are added to the error, since often only the
/// end of a long log is kept.
pub fn run_tests(command: &mut Command) -> Result<(), String> {
    let (output, stdout) = listener(io::stdout()).map_err(|error| spawn_error(command, &error))?;
    let (errors, stderr) = listener(io::stderr()).map_err(|error| spawn_error(command, &error))?;
    let outcome = run(command.stdout(stdout).stderr(stderr));
    // Drop the last writing ends of the pipes, so that the listeners end. A descendant that cannot
    // be ended may still hold them.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let said = [output, errors].map(|said| said.recv_timeout(LEAVE_TIMEOUT).unwrap_or_default());
    let [output, errors] = said;
    note_ignored(output.ignored.into_iter().chain(errors.ignored));
    outcome.map_err(|cause| {
        format!("{cause}\n{}\n{}", output.failures, errors.failures)
            .trim_end()
            .to_owned()
    })
}

/// Starts a thread that passes the pipe's contents on to `to` until the last writing end is closed.
/// It then sends the lines to repeat.
fn listener(to: impl io::Write + Send + 'static) -> io::Result<(Receiver<Noted>, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    let (says, said) = mpsc::channel();
    std::thread::spawn(move || says.send(failures::pass_on(BufReader::new(reader), to)));
    Ok((said, writer))
}

/// Runs a short child and returns its output. The command is not printed.
pub fn output(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| spawn_error(command, &error))?;
    if !output.status.success() {
        let cause = String::from_utf8_lossy(&output.stderr);
        let cause = cause.trim();
        return Err(format!(
            "`{}`: {}: {cause}",
            describe(command),
            output.status
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a child that may fail, and returns its output and status.
pub fn outcome(command: &mut Command) -> Result<Output, String> {
    let (group, child) = piped(command)?;
    let output = child.wait_with_output();
    end_group(group);
    forget(group);
    output.map_err(|error| format!("`{}`: wait: {error}", describe(command)))
}

/// Runs a child that may fail. `None`: the deadline came first, and the child was ended.
pub fn outcome_before(command: &mut Command, deadline: Instant) -> Result<Option<Output>, String> {
    let (group, child) = piped(command)?;
    let (says, said) = mpsc::channel();
    std::thread::spawn(move || says.send(child.wait_with_output()));
    let left = deadline.saturating_duration_since(Instant::now());
    let output = said.recv_timeout(left).ok();
    end_group(group);
    forget(group);
    let output = output.transpose();
    output.map_err(|error| format!("`{}`: wait: {error}", describe(command)))
}

/// Runs a child that may fail. `look` is called now and then with the CPU time that the child's own
/// children have used, and may tell them to stop.
pub fn outcome_watched(
    command: &mut Command,
    mut look: impl FnMut(Duration),
) -> Result<Output, String> {
    let (group, child) = piped(command)?;
    let (says, said) = mpsc::channel();
    std::thread::spawn(move || says.send(child.wait_with_output()));
    let output = loop {
        match said.recv_timeout(CPU_POLL) {
            Err(RecvTimeoutError::Timeout) => look(cpu_time_of_group(group)),
            Ok(output) => break output,
            Err(RecvTimeoutError::Disconnected) => break Err(io::Error::other("no status")),
        }
    };
    end_group(group);
    forget(group);
    output.map_err(|error| format!("`{}`: wait: {error}", describe(command)))
}

fn piped(command: &mut Command) -> Result<(Pid, Child), String> {
    let child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| spawn_error(command, &error))?;
    let group = Pid::from_child(&child);
    remember(group);
    Ok((group, child))
}

/// Longest wait for the end of a child, and the time between two looks.
const END_MAX: Duration = Duration::from_secs(120);
const END_POLL: Duration = Duration::from_millis(5);

/// A child whose output is read while it runs. Dropping this ends the child with its group.
pub struct Watched {
    child: Child,
    group: Pid,
}

impl Watched {
    pub fn start(command: &mut Command) -> Result<Watched, String> {
        let child = command
            .process_group(0)
            .spawn()
            .map_err(|error| spawn_error(command, &error))?;
        let group = Pid::from_child(&child);
        remember(group);
        Ok(Watched { child, group })
    }

    /// The child's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child's standard output, if that is a pipe and was not taken before.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// The child's standard input, if that is a pipe and was not taken before.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Whether the child's status was 0, if it has ended.
    pub fn try_wait(&mut self) -> Result<Option<bool>, String> {
        let status = self
            .child
            .try_wait()
            .map_err(|error| format!("wait: {error}"))?;
        Ok(status.map(|status| status.success()))
    }

    /// Waits for the child's end, at most [`END_MAX`]. True: its status was 0.
    pub fn wait(&mut self) -> Result<bool, String> {
        let start = Instant::now();
        loop {
            match self.try_wait()? {
                Some(is_success) => return Ok(is_success),
                None if start.elapsed() < END_MAX => std::thread::sleep(END_POLL),
                None => return Err(format!("process {} does not end", self.id())),
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        end_group(self.group);
        let _ = self.child.wait();
        forget(self.group);
    }
}

/// The path of a program, found by PATH or in the system's `sbin` directories.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

fn describe(command: &Command) -> String {
    let mut line = String::new();
    for (name, value) in command.get_envs() {
        let Some(value) = value else { continue };
        if name != "TMPDIR" {
            line += &format!("{}={} ", name.to_string_lossy(), quoted(value));
        }
    }
    line += &command.get_program().to_string_lossy();
    for argument in command.get_args() {
        line += &format!(" {}", quoted(argument));
    }
    line
}

fn quoted(word: &std::ffi::OsStr) -> String {
    let word = word.to_string_lossy();
    if word.contains(' ') || word.is_empty() {
        format!("'{word}'")
    } else {
        word.into_owned()
    }
}

fn spawn_error(command: &Command, error: &io::Error) -> String {
    format!("{}: {error}", command.get_program().to_string_lossy())
}

fn groups() -> std::sync::MutexGuard<'static, Vec<Pid>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remember(group: Pid) {
    groups().push(group);
}

fn forget(group: Pid) {
    groups().retain(|&other| other != group);
}

/// Sends SIGTERM to every group, waits, and then kills the rest.
fn end_groups() {
    let groups: Vec<Pid> = groups().clone();
    for &group in &groups {
        let _ = rustix::process::kill_process_group(group, Signal::TERM);
    }
    let limit = Instant::now() + LEAVE_TIMEOUT;
    while Instant::now() < limit && groups.iter().any(|&group| group_lives(group)) {
        std::thread::sleep(LEAVE_POLL);
    }
    for group in groups {
        end_group(group);
    }
}

fn group_lives(group: Pid) -> bool {
    rustix::process::test_kill_process_group(group).is_ok()
}

fn end_group(group: Pid) {
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
}

/// Ends descendants that left their group.
fn end_orphans() {
    let limit = Instant::now() + LEAVE_TIMEOUT;
    while Instant::now() < limit {
        let orphans = orphans();
        if orphans.is_empty() {
            return;
        }
        for &pid in &orphans {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            let _ = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
        std::thread::sleep(LEAVE_POLL);
    }
}

/// Our children that no chore started: descendants whose parents ended. A child that a chore still
/// watches is none of them.
fn orphans() -> HashSet<Pid> {
    let mut children = children_of(rustix::process::getpid());
    children.retain(|pid| !groups().contains(pid));
    children
}

fn children_of(parent: Pid) -> HashSet<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return HashSet::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|&pid| parent_of(pid) == Some(parent.as_raw_nonzero().get()))
        .filter_map(Pid::from_raw)
        .collect()
}

/// The kernel's unit of a process's CPU time (`sysconf(_SC_CLK_TCK)` is 100 on Linux).
const TICK: Duration = Duration::from_millis(10);

/// CPU time of this process, and of all children that have ended with their descendants.
pub fn cpu_time_used() -> Duration {
    let fields = stat_fields("self").unwrap_or_default();
    cpu_time(&fields, 11..15)
}

/// CPU time of the live processes of a group, without its leader.
fn cpu_time_of_group(group: Pid) -> Duration {
    let leader = group.as_raw_nonzero().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(|first: char| first.is_ascii_digit()))
        .filter(|name| *name != leader)
        .filter_map(|name| stat_fields(&name))
        .filter(|fields| fields.get(2) == Some(&leader))
        .map(|fields| cpu_time(&fields, 11..13))
        .sum()
}

/// The sum of user and system times, which stand in these places of a process's fields.
fn cpu_time(fields: &[String], place: std::ops::Range<usize>) -> Duration {
    let fields = fields.get(place).unwrap_or_default();
    let ticks: u32 = fields.iter().map(|field| field.parse().unwrap_or(0)).sum();
    TICK * ticks
}

/// The fields of /proc/PID/stat from the third on, which is the first behind the brackets.
fn stat_fields(pid: &str) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    Some(after.split_whitespace().map(str::to_owned).collect())
}

/// The parent's pid: field 4 of /proc/PID/stat. The second field is in brackets and may contain
/// anything.
fn parent_of(pid: i32) -> Option<i32> {
    stat_fields(&pid.to_string())?.get(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watched_child_is_no_orphan() {
        let mut stray = Command::new("sleep").arg("60").spawn().unwrap();
        let watched = Watched::start(Command::new("sleep").arg("60")).unwrap();
        let found = orphans();
        stray.kill().unwrap();
        stray.wait().unwrap();
        assert!(found.contains(&Pid::from_child(&stray)));
        assert!(!found.contains(&watched.group));
    }

    #[test]
    fn cpu_time_of_a_group_is_that_of_its_members() {
        let (computes, ends) = ("while :; do :; done & read line; kill $!", Stdio::piped());
        let mut child = Command::new("sh");
        child.args(["-c", computes]).stdin(ends);
        let watched = Watched::start(&mut child).unwrap();
        let limit = Instant::now() + Duration::from_secs(60);
        while cpu_time_of_group(watched.group) < Duration::from_millis(50) {
            assert!(Instant::now() < limit, "the group's loop is not seen");
            std::thread::sleep(LEAVE_POLL);
        }
    }
}
