//! Sampling of the CPU time of processes: `perf record` with the CPU clock, which needs no hardware
//! counters, and the functions that its samples name.
//!
//! [`Sampler`] runs `perf` beside a measurement; [`attribution`] says which part of the work a
//! function belongs to.

pub mod attribution;

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use attribution::Sample;
use rustix::process::Signal;

/// Samples of each process in a second of its CPU time: often enough for a share of a run, and not
/// in step with the clock's ticks.
pub const SAMPLES_PER_SECOND: u32 = 1_999;

/// Least seconds of a run that is sampled: on a busy machine `perf` begins so late that a shorter
/// run is over by then.
pub const SECONDS_MIN: f64 = 2.0;

/// A running `perf`, and its file, which goes away with this value.
pub struct Sampler {
    child: Child,
    file: PathBuf,
}

impl Sampler {
    /// An error if `perf` cannot be run.
    pub fn is_there() -> Result<(), String> {
        let mut command = Command::new("perf");
        command.arg("--version").stdout(Stdio::null());
        let status = command.status();
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("perf: {status}")),
            Err(error) => Err(format!("perf (package linux-perf): {error}")),
        }
    }

    /// Begins to sample these processes, for so many seconds.
    pub fn start(processes: &[u32], seconds: f64) -> Result<Self, String> {
        let file = std::env::temp_dir().join(format!("mst-{}-perf.data", std::process::id()));
        let ids: Vec<String> = processes.iter().map(u32::to_string).collect();
        let mut command = Command::new("perf");
        command.args(["record", "--quiet", "--event=cpu-clock", "--freq"]);
        command.arg(SAMPLES_PER_SECOND.to_string());
        command.args(["--pid", &ids.join(",")]);
        command.arg("--output").arg(&file);
        command.args(["--", "sleep", &seconds.to_string()]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn();
        let child = child.map_err(|error| format!("perf (package linux-perf): {error}"))?;
        Ok(Self { child, file })
    }

    /// Waits for the end of the time. Returns the samples.
    pub fn finish(mut self) -> Result<Vec<Sample>, String> {
        let status = self.child.wait().map_err(|error| error.to_string())?;
        // If the processes end before the time does, `perf` ends its own clock by this signal and
        // passes it on; the samples are there.
        let ended_early = status.signal() == Some(Signal::TERM.as_raw());
        if !status.success() && !ended_early {
            let mut said = String::new();
            if let Some(mut stderr) = self.child.stderr.take() {
                // If stderr cannot be read, the status alone is reported.
                let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
            }
            let said: Vec<&str> = said.lines().map(str::trim).collect();
            return Err(format!("perf record: {status}: {}", said.join(" ").trim()));
        }
        let mut script = Command::new("perf");
        script.args(["script", "--no-inline", "--fields", "ip,sym,dso", "--input"]);
        let output = script.arg(&self.file).output();
        let output = output.map_err(|error| format!("perf script: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let samples: Vec<Sample> = text.lines().filter_map(Sample::parse).collect();
        match samples.is_empty() {
            true => Err("perf: no sample was taken".to_owned()),
            false => Ok(samples),
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // It may have ended already, and its file may never have been made.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.file);
    }
}
