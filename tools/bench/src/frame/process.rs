//! The processes that a benchmark starts. Each prints lines of JSON on stdout, leaves when its
//! stdin closes, and does not outlive us.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

/// Longest time that a child may take to leave.
const LEAVING_TIME: Duration = Duration::from_secs(3);

/// A child; killed when dropped.
pub struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this program itself with these arguments, in a namespace if one is named.
    pub fn ourselves<S: AsRef<OsStr>>(
        namespace: Option<&str>,
        words: &[S],
    ) -> Result<Self, String> {
        Self::start(namespace, ourselves()?, words)
    }

    /// Starts a program.
    pub fn start<S: AsRef<OsStr>>(
        namespace: Option<&str>,
        program: PathBuf,
        words: &[S],
    ) -> Result<Self, String> {
        let shown = program.display().to_string();
        let mut command = match namespace {
            None => Command::new(program),
            Some(name) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name]).arg(program);
                command
            }
        };
        command.args(words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| format!("{shown}: {error}"))?;
        let stdout = child.stdout.take().ok_or("no stdout")?;
        let lines = BufReader::new(stdout).lines();
        Ok(Self { child, lines })
    }

    /// The process id. `ip netns exec` becomes the program that it starts, so the id is the
    /// program's.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that the child prints.
    pub fn line(&mut self) -> Result<String, String> {
        match self.lines.next() {
            Some(line) => line.map_err(|error| error.to_string()),
            None => match self.child.wait() {
                Ok(status) => Err(format!("ended without a word: {status}")),
                Err(error) => Err(error.to_string()),
            },
        }
    }

    /// The next line that the child prints, parsed as JSON.
    pub fn says<T: for<'a> Deserialize<'a>>(&mut self) -> Result<T, String> {
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))
    }

    /// Asks the child what it has spent so far, by a line on its stdin.
    pub fn mark(&mut self) -> Result<(), String> {
        let Some(stdin) = &mut self.child.stdin else {
            return Err("its stdin is closed".to_owned());
        };
        let told = stdin.write_all(b"\n").and_then(|()| stdin.flush());
        told.map_err(|error| format!("stdin: {error}"))
    }

    /// Closes the child's stdin and waits for its end, which must be a success. A child that takes
    /// too long is killed, and that is no error: it may have much to close.
    pub fn leave(mut self) -> Result<(), String> {
        drop(self.child.stdin.take());
        let until = Instant::now() + LEAVING_TIME;
        while Instant::now() < until {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(status.to_string()),
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// Tells a server that does not listen to its stdin to stop (SIGTERM). What it still says can
    /// be read.
    pub fn stop(&self) -> Result<(), String> {
        let id = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or("no process id")?;
        kill_process(id, Signal::TERM).map_err(|error| format!("SIGTERM: {error}"))
    }

    /// Waits for the child's end, which must be a success.
    pub fn finish(mut self) -> Result<(), String> {
        let status = self.child.wait().map_err(|error| error.to_string())?;
        match status.success() {
            true => Ok(()),
            false => Err(status.to_string()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program that runs now.
pub fn ourselves() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| format!("our own program: {error}"))
}

/// A program that is built into the same directory as ours.
pub fn beside(name: &str) -> Result<PathBuf, String> {
    let path = ourselves()?.with_file_name(name);
    match path.is_file() {
        true => Ok(path),
        false => Err(format!(
            "{}: not built; `cargo xtask bench` builds it",
            path.display()
        )),
    }
}

/// Runs `ip` to its end.
pub fn ip<S: AsRef<OsStr>>(words: &[S]) -> Result<(), String> {
    let output = Command::new("ip")
        .args(words)
        .output()
        .map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words: Vec<_> = words
        .iter()
        .map(|word| word.as_ref().to_string_lossy())
        .collect();
    let cause = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {}: {}", words.join(" "), cause.trim()))
}
