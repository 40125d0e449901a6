//! `mill bench message`: the short transaction, over the kernel's loopback and over memif, on the same two cores.
//!
//! The rule, for every system: the client connects, sends 64 bytes, gets 64 bytes, and sees the server's close before
//! it closes; one request per connection. Server and client are processes of their own, pinned to a core each. [`pair`] starts
//! them, [`kernel`] and [`millstream`] are what runs in them, [`tally`] counts.

mod cpu;
mod kernel;
mod millstream;
mod pair;
mod tally;

use std::fmt;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::limits::CLIENT_CONNECTIONS_MAX;
use crate::net::options::NetOptions;

/// Bytes of the request, and of the response.
pub const MESSAGE_BYTES: usize = 64;

/// Options of `mill bench message`.
#[derive(Args, Clone, Debug)]
pub struct MessageOptions {
    /// Which systems to measure; all if none is named
    #[arg(long = "system", value_enum, value_delimiter = ',')]
    pub systems: Vec<System>,
    /// Seconds that are counted, per system and run
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0, value_parser = seconds)]
    pub seconds: f64,
    /// Seconds before that, which are not
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    pub warm_up: f64,
    /// Runs of each system, taking turns; the median is compared
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Connections at once
    #[arg(short = 'c', long, value_name = "N", default_value_t = 64, value_parser = connections)]
    pub connections: usize,
    /// Core of the server
    #[arg(long, value_name = "CPU", default_value_t = 0)]
    pub server_core: usize,
    /// Core of the client
    #[arg(long, value_name = "CPU", default_value_t = 1)]
    pub client_core: usize,
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub json: bool,
    /// Also write the result as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

impl Default for MessageOptions {
    fn default() -> Self {
        Self {
            systems: Vec::new(),
            seconds: 3.0,
            warm_up: 1.0,
            runs: 3,
            connections: 64,
            server_core: 0,
            client_core: 1,
            json: false,
            output: None,
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Epoll server and client on the kernel's loopback.
    Kernel,
    /// Millstream over memif, the application's thread turning the crank.
    Inline,
    /// Millstream over memif, a thread of the stack's own on the application's core.
    Dedicated,
}

const SYSTEMS: [System; 3] = [System::Kernel, System::Inline, System::Dedicated];

impl fmt::Display for System {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Kernel => "kernel, loopback",
            Self::Inline => "Millstream, memif, inline",
            Self::Dedicated => "Millstream, memif, dedicated",
        })
    }
}

/// Options of one side: what [`pair`] gives to the processes that it starts.
#[derive(Args, Clone, Debug)]
pub struct SideOptions {
    #[command(flatten)]
    pub net: NetOptions,
    /// Which side
    #[arg(long, value_enum)]
    pub role: Role,
    /// The server's address; of the client only
    #[arg(long)]
    pub server: Option<std::net::SocketAddr>,
    #[arg(long)]
    pub core: usize,
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    #[arg(long, default_value_t = 1.0)]
    pub warm_up: f64,
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
}

/// A side of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    Server,
    Client,
}

/// What a client saw.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    pub transactions: u64,
    pub failures: u64,
    pub seconds: f64,
    pub per_second: f64,
    pub latency_us_p50: f64,
    pub latency_us_p99: f64,
    pub latency_us_max: f64,
    /// CPU time of the client's process per transaction.
    pub client_cpu_us: f64,
    /// CPU time of the server's process per transaction.
    #[serde(default)]
    pub server_cpu_us: f64,
    /// Transactions with those of the warm-up.
    pub transactions_all: u64,
}

/// All runs of one system.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub system: System,
    pub runs: Vec<Seen>,
    /// Median of the runs.
    pub per_second: f64,
    /// CPU time of both processes per transaction, median of the runs.
    pub cpu_us: f64,
    /// Of all runs.
    pub failures: u64,
}

/// What the benchmark found.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    pub connections: usize,
    pub server_core: usize,
    pub client_core: usize,
    pub systems: Vec<Measured>,
    /// The better crank's rate over the kernel's; none if one of them was not measured.
    pub ratio: Option<f64>,
    /// The kernel's CPU time per transaction over that of the crank that `ratio` is about: what is left of it when others use the cores.
    pub cpu_ratio: Option<f64>,
}

/// Measures and prints.
pub fn message(options: &MessageOptions) -> Result<(), Failure> {
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
    if failures == 0 {
        Ok(())
    } else {
        Err(Failure::Run(format!("{failures} transactions failed")))
    }
}

/// Measures every system in turn, as often as asked for.
pub fn measure(options: &MessageOptions) -> Result<Found, Failure> {
    let systems = if options.systems.is_empty() {
        &SYSTEMS[..]
    } else {
        &options.systems[..]
    };
    let mut runs = vec![Vec::new(); systems.len()];
    for _ in 0..options.runs {
        for (system, runs) in systems.iter().zip(&mut runs) {
            runs.push(
                pair::run(*system, options)
                    .map_err(|cause| Failure::Run(format!("{system}: {cause}")))?,
            );
        }
    }
    let measured: Vec<Measured> = systems
        .iter()
        .zip(runs)
        .map(|(system, runs)| summarize(*system, runs))
        .collect();
    let pair = compared(&measured);
    Ok(Found {
        connections: options.connections,
        server_core: options.server_core,
        client_core: options.client_core,
        ratio: pair.and_then(|(kernel, best)| quotient(best.per_second, kernel.per_second)),
        cpu_ratio: pair.and_then(|(kernel, best)| quotient(kernel.cpu_us, best.cpu_us)),
        systems: measured,
    })
}

fn summarize(system: System, runs: Vec<Seen>) -> Measured {
    Measured {
        system,
        per_second: median(runs.iter().map(|seen| seen.per_second)),
        cpu_us: median(
            runs.iter()
                .map(|seen| seen.client_cpu_us + seen.server_cpu_us),
        ),
        failures: runs.iter().map(|seen| seen.failures).sum(),
        runs,
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The kernel, and the quicker of the cranks.
fn compared(measured: &[Measured]) -> Option<(&Measured, &Measured)> {
    let is_kernel = |measured: &&Measured| measured.system == System::Kernel;
    let kernel = measured.iter().find(is_kernel)?;
    let cranks = measured.iter().filter(|measured| !is_kernel(measured));
    let best = cranks.max_by(|a, b| a.per_second.total_cmp(&b.per_second))?;
    Some((kernel, best))
}

fn quotient(a: f64, b: f64) -> Option<f64> {
    (a > 0.0 && b > 0.0).then(|| a / b)
}

impl fmt::Display for Found {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "connect, {MESSAGE_BYTES}-byte request, {MESSAGE_BYTES}-byte response, server closes first; \
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
            cpu_us,
            failures,
        } = self;
        let rates: Vec<String> = runs
            .iter()
            .map(|seen| format!("{:.0}", seen.per_second))
            .collect();
        let (rates, p99) = (
            rates.join(", "),
            runs.iter()
                .map(|seen| seen.latency_us_p99)
                .fold(0.0, f64::max),
        );
        write!(
            formatter,
            "{system:30} {per_second:>9.0}/s  CPU {cpu_us:>5.1} µs  p99 {p99:>6.0} µs  (runs: {rates})"
        )?;
        match failures {
            0 => Ok(()),
            failures => write!(formatter, "  {failures} FAILED"),
        }
    }
}

/// One side, in its own process.
pub fn side(options: &SideOptions) -> Result<(), Failure> {
    pin(options.core)?;
    let outcome = match (options.role, &options.net.wire) {
        (Role::Server, crate::net::options::Wire::Kernel) => kernel::server(options),
        (Role::Client, crate::net::options::Wire::Kernel) => kernel::client(options),
        (Role::Server, _) => return millstream::server(options),
        (Role::Client, _) => return millstream::client(options),
    };
    outcome.map_err(|error| Failure::Run(error.to_string()))
}

fn pin(core: usize) -> Result<(), Failure> {
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

fn seconds(text: &str) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (0.0..=3600.0).contains(number));
    number.ok_or_else(|| "no number of seconds from 0 to 3600".to_owned())
}

fn connections(text: &str) -> Result<usize, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| (1..=CLIENT_CONNECTIONS_MAX).contains(number));
    number.ok_or_else(|| format!("no number from 1 to {CLIENT_CONNECTIONS_MAX}"))
}
