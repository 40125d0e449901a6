//! The demo's last step: short HTTP connections over Millstream and over the kernel, with the same
//! programs on the same cores.
//!
//! Each run starts `mill serve` on core 0 and `mill get -n N -c C` on core 1, with a connection for
//! each request. Over Millstream the two processes share a memif; over the kernel they use its
//! loopback. Runs alternate, and their medians are compared.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde::Serialize;

use super::world::{kill_on_exit, run};
use crate::cpu;

/// Concurrent connections.
const CONNECTIONS: u32 = 64;
/// Requests of one run.
const REQUESTS: u32 = 200_000;
const REQUESTS_QUICK: u32 = 30_000;
/// Runs of each stack.
const RUNS: usize = 3;
const RUNS_QUICK: usize = 1;
/// Port of the server in both cases.
const PORT: u16 = 8_077;
const KERNEL_ADDRESS: &str = "127.0.0.1";
const SERVER_ADDRESS: &str = "10.93.0.2";
const CLIENT_ADDRESS: &str = "10.93.0.1";

/// The results of both stacks.
#[derive(Debug, Serialize)]
pub struct Compared {
    pub connections: u32,
    pub requests: u32,
    pub millstream: Seen,
    pub kernel: Seen,
}

/// Medians over the runs of one stack.
#[derive(Debug, Serialize)]
pub struct Seen {
    pub requests_per_second: f64,
    /// CPU time of the server's process per request, in µs.
    pub server_cpu_us: f64,
    pub requests_per_second_of_runs: Vec<f64>,
}

/// One run: requests per second, and the server's CPU time per request in µs.
type Run = (f64, f64);

/// Compares both stacks. The error says which run failed and why.
pub fn compare(documents: &Path, quick: bool) -> Result<Compared, String> {
    let (requests, runs) = match quick {
        true => (REQUESTS_QUICK, RUNS_QUICK),
        false => (REQUESTS, RUNS),
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        ours.push(over_millstream(documents, requests).map_err(|e| format!("Millstream: {e}"))?);
        theirs.push(over_kernel(documents, requests).map_err(|e| format!("kernel: {e}"))?);
    }
    Ok(Compared {
        connections: CONNECTIONS,
        requests,
        millstream: Seen::of(&ours),
        kernel: Seen::of(&theirs),
    })
}

impl Compared {
    /// Millstream's rate divided by the kernel's.
    pub fn ratio(&self) -> f64 {
        self.millstream.requests_per_second / self.kernel.requests_per_second
    }

    /// The kernel's CPU time per request divided by Millstream's.
    pub fn cpu_ratio(&self) -> f64 {
        self.kernel.server_cpu_us / self.millstream.server_cpu_us
    }
}

impl Seen {
    fn of(runs: &[Run]) -> Self {
        let rates: Vec<f64> = runs.iter().map(|run| run.0).collect();
        Self {
            requests_per_second: median(rates.clone()),
            server_cpu_us: median(runs.iter().map(|run| run.1).collect()),
            requests_per_second_of_runs: rates,
        }
    }
}

/// The median; of an even number of values the upper one.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

fn over_millstream(documents: &Path, requests: u32) -> Result<Run, String> {
    let socket = documents.with_file_name("compare.sock");
    let wire = |role: &str| format!("memif:{},role={role}", socket.display());
    let (server_cidr, client_cidr) = (
        format!("{SERVER_ADDRESS}/24"),
        format!("{CLIENT_ADDRESS}/24"),
    );
    let server = ["--wire", &wire("server"), "--addr", &server_cidr];
    let client = ["--wire", &wire("client"), "--addr", &client_cidr];
    one_run(documents, requests, SERVER_ADDRESS, &server, &client)
}

fn over_kernel(documents: &Path, requests: u32) -> Result<Run, String> {
    let cidr = format!("{KERNEL_ADDRESS}/8");
    let server = ["--wire", "kernel", "--addr", &cidr];
    one_run(
        documents,
        requests,
        KERNEL_ADDRESS,
        &server,
        &["--wire", "kernel"],
    )
}

fn one_run(
    documents: &Path,
    requests: u32,
    address: &str,
    server: &[&str],
    client: &[&str],
) -> Result<Run, String> {
    let program = std::env::current_exe().map_err(|error| format!("our own program: {error}"))?;
    let program = program.display().to_string();
    let port = PORT.to_string();
    let mut command = Command::new("taskset");
    command
        .args(["-c", "0", &program, "serve"])
        .arg(documents)
        .args(server)
        .args(["--port", &port, "--json"]);
    let mut server = Server::start(&mut command)?;
    server.wait_until_ready()?;
    let before_ns = server.cpu_ns()?;
    let (url, requests_text) = (format!("http://{address}:{port}/"), requests.to_string());
    let connections = CONNECTIONS.to_string();
    let mut words = vec!["taskset", "-c", "1", &program, "get", &url];
    words.extend(client);
    words.extend([
        "-n",
        &requests_text,
        "-c",
        &connections,
        "--json",
        "--quiet",
    ]);
    let said = run(&words)?;
    let spent_ns = server.cpu_ns()?.saturating_sub(before_ns);
    Ok((rate(&said)?, spent_ns as f64 / 1e3 / f64::from(requests)))
}

/// The rate in a report of `mill get --json`, which must have no failures.
fn rate(said: &str) -> Result<f64, String> {
    let report: serde_json::Value =
        serde_json::from_str(said).map_err(|error| format!("{error}: {said}"))?;
    match (
        report["failed"].as_u64(),
        report["requests_per_second"].as_f64(),
    ) {
        (Some(0), Some(rate)) if rate > 0.0 => Ok(rate),
        _ => Err(format!("not all requests succeeded: {said}")),
    }
}

/// `mill serve`, killed on drop.
struct Server(Child);

impl Server {
    fn start(command: &mut Command) -> Result<Self, String> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = child.map_err(|error| format!("taskset: {error}"))?;
        kill_on_exit(&child);
        Ok(Self(child))
    }

    /// Waits for the server's first line, which says that it listens.
    fn wait_until_ready(&mut self) -> Result<(), String> {
        let stdout = self.0.stdout.take().ok_or("the server has no stdout")?;
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        read.map_err(|error| format!("the server's stdout: {error}"))?;
        match line.contains("\"ready\"") {
            true => Ok(()),
            false => Err(format!("the server did not get ready: {}", line.trim())),
        }
    }

    fn cpu_ns(&self) -> Result<u64, String> {
        cpu::time_ns(self.0.id()).ok_or_else(|| "the server's CPU time is not told".to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_of_a_run_with_failures_is_refused() {
        let report = |failed| format!("{{\"failed\": {failed}, \"requests_per_second\": 12.5}}");
        assert_eq!(rate(&report(0)), Ok(12.5));
        assert!(rate(&report(1)).is_err());
        assert!(rate("").is_err());
    }

    #[test]
    fn median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
