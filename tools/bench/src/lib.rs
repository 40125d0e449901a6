//! The laboratory: measurements of Millstream and of the kernel, in one run on the same cores.
//!
//! `cargo xtask bench NAME` builds this crate and calls [`run`]. [`measure`] defines a message
//! exchange and its counts, for every system. `frame` holds what the benchmarks share.

#![deny(unsafe_code)]

mod bulk;
mod cycles;
mod exchange;
mod frame;
mod goodput;
pub mod measure;
mod message;
mod mux;
mod papers;
mod profile;
mod published;
mod scale;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

use bulk::BulkOptions;
use cycles::CyclesOptions;
use exchange::ExchangeOptions;
use goodput::GoodputOptions;
use message::one_thread::{self, OneThreadOptions};
use message::{MessageOptions, SideOptions};
use mill::failure::Failure;
use mill::serve::ServeOptions;
use mill::wire::WireOptions;
use mux::MuxOptions;
use papers::PapersOptions;
use scale::ScaleOptions;

/// Measurements of Millstream, against the kernel in the same run.
#[derive(Parser, Debug)]
#[command(
    name = "bench",
    bin_name = "cargo xtask bench",
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand, Clone, Debug)]
enum Benchmark {
    /// Transactions per second: connect, 64-byte request, 64-byte response, the server closes
    /// first; and the figures of mTCP's evaluation
    Message(MessageOptions),
    /// One side of `message`, which starts it
    #[command(hide = true)]
    MessageSide(SideOptions),
    /// Long transfers: Gbit/s, CPU time for each byte, and how evenly many downloads share
    Bulk(BulkOptions),
    /// One end of `bulk`, which starts it
    #[command(hide = true)]
    BulkSide(bulk::SideOptions),
    /// Flows with both ends of Millstream in one thread on a virtual clock: what `cycles` counts
    #[command(hide = true)]
    BulkThread(bulk::one_thread::ThreadOptions),
    /// Instructions per transaction and segment, against the baseline in the repository; where the
    /// server's cycles go
    Cycles(CyclesOptions),
    /// Requests and responses of a program to itself, by socket calls: what `cycles` counts
    #[command(hide = true)]
    Exchange(ExchangeOptions),
    /// Cost of a transaction beside idle connections and with several contexts
    Scale(ScaleOptions),
    /// Both ends of Millstream in one thread over an in-process link
    OneThread(OneThreadOptions),
    /// Bulk transfers to and from the kernel over a wire with loss, delay and reordering, against
    /// kernel to kernel
    Goodput(GoodputOptions),
    /// One end of `goodput`, which starts it
    #[command(hide = true)]
    GoodputSide(goodput::SideOptions),
    /// A bad wire between the ends of `goodput`, which starts it
    #[command(hide = true)]
    Wire(Box<WireOptions>),
    /// Virtual ports of `mill mux` against AF_XDP on the NIC and against the kernel
    Mux(MuxOptions),
    /// The figures and tables of the mTCP, MultiStack and receive-path papers on one page, beside
    /// the values that the papers state
    Papers(PapersOptions),
    /// One end of `mux`, which starts it
    #[command(hide = true)]
    MuxSide(mux::side::SideOptions),
    /// The service of `mux`: `mill mux`
    #[command(hide = true)]
    MuxService(Box<mill::mux::MuxOptions>),
    /// The server of the figure `crowd`, which starts it: `mill serve`
    #[command(hide = true)]
    Serve(Box<ServeOptions>),
    /// All of message, bulk, scale and cycles, and the page
    All {
        /// The directory for tables, charts and the page
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Few points, short runs: to see that everything works
        #[arg(long)]
        quick: bool,
        /// A `bench` that was built with the feature `stage-cycles`
        #[arg(long, value_name = "FILE")]
        stages: Option<PathBuf>,
    },
    /// Put what the benchmarks wrote into a directory together on one page, report.md
    Report {
        /// The directory
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Reads the command line and runs the benchmark that it names.
pub fn run() -> ExitCode {
    match bench(&Cli::parse().benchmark) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let line = failure.to_string();
            if !line.is_empty() {
                eprintln!("bench: {line}");
            }
            failure.exit_code()
        }
    }
}

fn bench(benchmark: &Benchmark) -> Result<(), Failure> {
    match benchmark {
        Benchmark::Message(options) => message::message(options),
        Benchmark::MessageSide(options) => message::side(options),
        Benchmark::Bulk(options) => bulk::bulk(options),
        Benchmark::BulkSide(options) => bulk::side(options),
        Benchmark::BulkThread(options) => bulk::one_thread::bulk_thread(options),
        Benchmark::Cycles(options) => cycles::cycles(options),
        Benchmark::Exchange(options) => exchange::exchange(options),
        Benchmark::Scale(options) => scale::scale(options),
        Benchmark::OneThread(options) => one_thread::one_thread(options),
        Benchmark::Goodput(options) => goodput::goodput(options),
        Benchmark::GoodputSide(options) => goodput::side(options),
        Benchmark::Wire(options) => mill::wire::wire(options),
        Benchmark::Mux(options) => mux::mux(options),
        Benchmark::Papers(options) => papers::papers(options),
        Benchmark::MuxSide(options) => mux::side::side(options),
        Benchmark::MuxService(options) => mill::mux::mux(options),
        Benchmark::Serve(options) => mill::serve::serve(options),
        Benchmark::All { out, quick, stages } => all(out, *quick, stages.as_deref()),
        Benchmark::Report { out } => frame::page::write(out).map_err(Failure::Run),
    }
}

/// Runs each benchmark in a process of its own, so that none inherits what another left. One that
/// fails does not keep the others from the page.
fn all(out: &Path, quick: bool, stages: Option<&Path>) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for (name, words) in [
        ("message", &["--figure", "all"][..]),
        ("bulk", &[]),
        ("scale", &[]),
        ("cycles", &[]),
    ] {
        // Results of an earlier run would stand on the page as if they were this run's.
        frame::page::forget(out, name).map_err(Failure::Run)?;
        let program = frame::process::ourselves().map_err(Failure::Run)?;
        let mut command = Command::new(program);
        command.arg(name).args(words);
        command
            .arg("--out")
            .arg(out)
            .args(quick.then_some("--quick"));
        if let Some(stages) = stages.filter(|_| name == "cycles") {
            command.arg("--stages").arg(stages);
        }
        let status = command.status();
        if !status.is_ok_and(|status| status.success()) {
            failed.push(name);
        }
    }
    frame::page::write(out).map_err(Failure::Run)?;
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::Run(format!("failed: {}", failed.join(", ")))),
    }
}
