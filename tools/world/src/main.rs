//! `sim`: random worlds from the command line. `cargo xtask sim` builds and calls it.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use world::faults::FaultSet;
use world::seeds::{self, Campaign, Report};
use world::{Options, draw};

/// Random worlds of stacks, networks, faults and applications, each from a seed
#[derive(Parser)]
#[command(name = "sim", bin_name = "cargo xtask sim")]
struct Cli {
    /// Number of seeds to run
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    seeds: u64,
    /// Run only this seed
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    from: u64,
    /// Distance from one seed to the next; `--from 40 --step 40` runs only worlds in which flows
    /// compete
    #[arg(long, value_name = "N", default_value_t = 1)]
    step: u64,
    /// Number of threads
    #[arg(long, value_name = "J", default_value_t = default_jobs())]
    jobs: usize,
    /// Print everything that happens
    #[arg(long)]
    trace: bool,
    /// Kinds of faults to leave out, separated by commas
    #[arg(long, value_name = "KINDS", default_value = "", value_parser = FaultSet::parse)]
    off: FaultSet,
    /// Print the world without running it
    #[arg(long)]
    show: bool,
    /// Stop after this many failures
    #[arg(long, value_name = "N", default_value_t = 5)]
    failures: usize,
    /// Print only a line for each failure
    #[arg(long)]
    brief: bool,
}

fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.show {
        let seed = cli.seed.unwrap_or(cli.from);
        print!("{}", draw::draw(seed).without(cli.off));
        return ExitCode::SUCCESS;
    }
    // Silence the default message: a panic is reported once, with its seed.
    std::panic::set_hook(Box::new(|panic| {
        if std::env::var_os("RUST_BACKTRACE").is_some() {
            eprintln!("{panic}\n{}", std::backtrace::Backtrace::force_capture());
        } else if let Some(place) = panic.location() {
            eprintln!("panic at {place}");
        }
    }));
    let campaign = Campaign {
        first: cli.seed.unwrap_or(cli.from),
        count: if cli.seed.is_some() { 1 } else { cli.seeds },
        step: cli.step,
        jobs: if cli.trace { 1 } else { cli.jobs },
        failures_max: cli.failures,
        options: Options {
            trace: cli.trace,
            off: cli.off,
            twice: false,
            shrink: !cli.trace && !cli.brief,
        },
    };
    let begun = Instant::now();
    let report = seeds::run(&campaign, |failure| {
        if cli.brief {
            println!(
                "seed {} at {} ms: {}",
                failure.seed,
                failure.at_ns / 1_000_000,
                failure.cause
            );
        } else {
            println!("{failure}\n");
        }
    });
    summarize(&report, begun.elapsed().as_secs_f64());
    if report.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn summarize(report: &Report, seconds: f64) {
    let total = &report.total;
    println!(
        "{} seeds in {seconds:.1} s: {} failed; {} events, {} ends of connections: {} done, {} failed as excused, {} abandoned; {:.0} s of virtual time",
        report.seeds,
        report.failures.len(),
        total.events,
        total.ends,
        total.done,
        total.failed,
        total.abandoned,
        total.ended_ns as f64 / 1e9,
    );
}
