//! `cargo xtask bench message`: short transactions and what else the mTCP paper measures with small
//! messages, on the same two cores.
//!
//! The rule, for every system: the client connects, sends 64 bytes, gets 64 bytes, and sees the
//! server's close before it closes; one request per connection. Server and client are processes of
//! their own, pinned to a core each. [`sides`] starts them. [`kernel`] and [`millstream`] run in
//! them, [`crowd`] and [`http`] do the same for HTTP, and [`one_thread`] is both sides in one.
//! [`figures`] repeats all this for each of the paper's figures. The exchange and its counts stand
//! in [`measure`](crate::measure).

pub mod crowd;
pub mod figures;
mod http;
mod kernel;
mod millstream;
pub mod one_thread;
pub mod sides;
pub mod system;

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use crate::measure::{Plan, Seen};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::frame::levels::Levels;
use super::frame::{Machine, Repeats, median, turns};
use mill::failure::Failure;
use mill::limits::CLIENT_CONNECTIONS_MAX;
use mill::net::options::{NetOptions, Wire};
use sides::Run;
pub use system::System;

/// Options of `cargo xtask bench message`.
#[derive(Args, Clone, Debug)]
pub struct MessageOptions {
    /// Figures of the paper to measure, each with all that belongs to it: `all` for every one;
    /// without it one plain measurement is made
    #[arg(long = "figure", value_name = "NAME", value_delimiter = ',')]
    pub figures: Vec<String>,
    /// Systems to measure; the kernel and both cranks if none is named, or what the figure compares
    #[arg(long = "system", value_enum, value_delimiter = ',')]
    pub systems: Vec<System>,
    #[command(flatten)]
    pub repeats: Repeats,
    /// Connections at once, of the plain measurement
    #[arg(short = 'c', long, value_name = "N", default_value_t = 64, value_parser = connections)]
    pub connections: usize,
    /// Print the plain measurement as JSON on stdout
    #[arg(long)]
    pub json: bool,
    /// Also write the plain measurement as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

impl Default for MessageOptions {
    fn default() -> Self {
        Self {
            figures: Vec::new(),
            systems: Vec::new(),
            repeats: Repeats::default(),
            connections: 64,
            json: false,
            output: None,
        }
    }
}

const SYSTEMS: [System; 3] = [System::Kernel, System::Inline, System::Dedicated];

/// Options of one side: what [`sides`] gives to the processes that it starts.
#[derive(Args, Clone, Debug)]
pub struct SideOptions {
    #[command(flatten)]
    pub net: NetOptions,
    #[command(flatten)]
    pub plan: Plan,
    /// The side to play
    #[arg(long, value_enum)]
    pub role: Role,
    /// The server's address; for the client only
    #[arg(long)]
    pub server: Option<std::net::SocketAddr>,
    #[arg(long)]
    pub core: usize,
    /// Further cores of a server: each has a thread of its own
    #[arg(long)]
    pub more_cores: Vec<usize>,
    /// Port to listen at, which another process listens at too; for the kernel's server only
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Ask for a document with HTTP; for the kernel's client only
    #[arg(long)]
    pub http: bool,
    /// Say on stderr what the stacks counted; for Millstream only
    #[arg(long)]
    pub counters: bool,
}

/// A side of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    Server,
    Client,
}

/// All runs of one system.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub system: System,
    pub runs: Vec<Seen>,
    /// Transactions per second, median of the runs.
    pub per_second: f64,
    /// The two groups that the runs' rates fall into, if they do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub levels: Option<Levels>,
    /// CPU time of both processes per transaction, median of the runs.
    pub cpu_us: f64,
    /// Failures of all runs.
    pub failures: u64,
}

/// The results of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    pub machine: Machine,
    pub connections: usize,
    pub server_core: usize,
    pub client_core: usize,
    pub systems: Vec<Measured>,
    /// The better crank's rate over the kernel's; none if one of them was not measured.
    pub ratio: Option<f64>,
    /// The kernel's CPU time per transaction over that of the crank that `ratio` is about: the gain
    /// where other programs need the cores too.
    pub cpu_ratio: Option<f64>,
    /// Problems that the runs met.
    pub notes: Vec<String>,
}

/// Measures and prints.
pub fn message(options: &MessageOptions) -> Result<(), Failure> {
    if !options.figures.is_empty() {
        return figures::figures(options);
    }
    let found = measure(options)?;
    let json = serde_json::json!(found);
    if let Some(path) = &options.output {
        std::fs::write(path, format!("{json:#}\n"))
            .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    }
    if options.json {
        println!("{json}");
    } else {
        print!("{found}");
    }
    let failures: u64 = found.systems.iter().map(|measured| measured.failures).sum();
    match (failures, found.notes.first()) {
        (0, None) => Ok(()),
        (0, Some(note)) => Err(Failure::Run(note.clone())),
        (failures, _) => Err(Failure::Run(format!("{failures} transactions failed"))),
    }
}

/// The plain transaction: every system in turn, as often as asked for.
pub fn measure(options: &MessageOptions) -> Result<Found, Failure> {
    let systems = match options.systems.is_empty() {
        true => &SYSTEMS[..],
        false => &options.systems[..],
    };
    let repeats = options.repeats.settled();
    let mut machine = Machine::look();
    let run = Run {
        plan: Plan {
            connections: options.connections,
            seconds: repeats.seconds,
            warm_up: repeats.warm_up,
            ..Plan::default()
        },
        server_core: repeats.server_core,
        client_core: repeats.client_core,
        ..Run::default()
    };
    let mut notes = Vec::new();
    let runs = turns::alternate(repeats.runs, systems, &mut notes, |&system| {
        sides::run(system, &run)
    });
    let measured: Vec<Measured> = systems
        .iter()
        .zip(runs)
        .map(|(system, runs)| summarize(*system, runs))
        .collect();
    let pair = compared(&measured);
    machine.look_again();
    Ok(Found {
        machine,
        connections: options.connections,
        server_core: repeats.server_core,
        client_core: repeats.client_core,
        ratio: pair.and_then(|(kernel, best)| quotient(best.per_second, kernel.per_second)),
        cpu_ratio: pair.and_then(|(kernel, best)| quotient(kernel.cpu_us, best.cpu_us)),
        systems: measured,
        notes,
    })
}

fn summarize(system: System, runs: Vec<Seen>) -> Measured {
    let rates: Vec<f64> = runs.iter().map(|seen| seen.per_second).collect();
    Measured {
        system,
        per_second: median(rates.iter().copied()),
        levels: Levels::of(&rates),
        cpu_us: median(
            runs.iter()
                .map(|seen| seen.client_cpu_us + seen.server_cpu_us),
        ),
        failures: runs.iter().map(|seen| seen.failures).sum(),
        runs,
    }
}

/// The kernel, and the quicker of the others.
fn compared(measured: &[Measured]) -> Option<(&Measured, &Measured)> {
    let is_kernel = |measured: &&Measured| measured.system.is_kernel();
    let kernel = measured.iter().find(is_kernel)?;
    let others = measured.iter().filter(|measured| !is_kernel(measured));
    let best = others.max_by(|a, b| a.per_second.total_cmp(&b.per_second))?;
    Some((kernel, best))
}

fn quotient(a: f64, b: f64) -> Option<f64> {
    (a > 0.0 && b > 0.0).then(|| a / b)
}

impl fmt::Display for Found {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.machine)?;
        writeln!(
            formatter,
            "connect, 64-byte request, 64-byte response, server closes first; \
             {} at once; server on core {}, client on core {}",
            self.connections, self.server_core, self.client_core
        )?;
        for measured in &self.systems {
            writeln!(formatter, "{measured}")?;
        }
        if let Some(ratio) = self.ratio {
            writeln!(formatter, "ratio of the rates {ratio:.2}")?;
        }
        if let Some(ratio) = self.cpu_ratio {
            writeln!(formatter, "ratio of the CPU times {ratio:.2}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            system,
            runs,
            per_second,
            levels,
            cpu_us,
            failures,
        } = self;
        let rates: Vec<String> = runs
            .iter()
            .map(|seen| format!("{:.0}", seen.per_second))
            .collect();
        let server_us = median(runs.iter().map(|seen| seen.server_cpu_us));
        let p99 = runs
            .iter()
            .map(|seen| seen.latency_us_p99)
            .fold(0.0, f64::max);
        write!(
            formatter,
            "{system:30} {per_second:>9.0}/s  CPU {cpu_us:>5.2} µs, server's {server_us:>5.2}  p99 {p99:>6.0} µs  (runs: {})",
            rates.join(", ")
        )?;
        if let Some(levels) = levels {
            write!(formatter, "  {levels}")?;
        }
        match failures {
            0 => Ok(()),
            failures => write!(formatter, "  {failures} FAILED"),
        }
    }
}

/// One side, in its own process.
pub fn side(options: &SideOptions) -> Result<(), Failure> {
    pin(options.core)?;
    let outcome = match (options.role, options.net.wire()) {
        (Role::Server, Wire::Kernel) => kernel::server(options),
        (Role::Client, Wire::Kernel) if options.http => http::client(options),
        (Role::Client, Wire::Kernel) => kernel::client(options),
        (Role::Server, _) => return millstream::server(options),
        (Role::Client, _) => return millstream::client(options),
    };
    outcome.map_err(|error| Failure::Run(error.to_string()))
}

/// Prints the client's first line: the number of its idle connections.
fn say_idle(count: usize) -> std::io::Result<()> {
    println!("{}", serde_json::json!({ "idle": count }));
    std::io::stdout().flush()
}

/// Checks that all idle connections are still open at the end. Otherwise the measurement had fewer
/// beside it than it claims.
fn all_stand(are_quiet: impl ExactSizeIterator<Item = bool>) -> std::io::Result<()> {
    let count = are_quiet.len();
    match are_quiet.filter(|is_quiet| !is_quiet).count() {
        0 => Ok(()),
        gone => Err(std::io::Error::other(format!(
            "{gone} of {count} idle connections have not stood to the end"
        ))),
    }
}

/// Binds this process, with the threads that it will start, to a core.
pub fn pin(core: usize) -> Result<(), Failure> {
    let mut cores = rustix::thread::CpuSet::new();
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(Failure::Usage(format!(
            "core {core}: there is none of that number"
        )));
    }
    cores.set(core);
    rustix::thread::sched_setaffinity(None, &cores)
        .map_err(|error| Failure::Usage(format!("core {core}: {error}")))
}

fn connections(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=CLIENT_CONNECTIONS_MAX).contains(number));
    number.ok_or_else(|| format!("no number from 1 to {CLIENT_CONNECTIONS_MAX}"))
}
