//! `mill bench`: measurements of Millstream and of the kernel, in one run on the same cores.

pub mod bulk;
pub mod frame;
pub mod goodput;
pub mod message;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use bulk::BulkOptions;
use goodput::GoodputOptions;
use message::one_thread::{self, OneThreadOptions};
use message::{MessageOptions, SideOptions};

/// Options of `mill bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchOptions {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand, Clone, Debug)]
enum Benchmark {
    /// Transactions per second: connect, 64-byte request, 64-byte response, the server closes first; and the figures of mTCP's evaluation
    Message(MessageOptions),
    /// One side of `message`, which starts it
    #[command(hide = true)]
    MessageSide(SideOptions),
    /// Long transfers: Gbit/s, CPU time for each byte, and how evenly many downloads share
    Bulk(BulkOptions),
    /// One end of `bulk`, which starts it
    #[command(hide = true)]
    BulkSide(bulk::SideOptions),
    /// Both ends of Millstream in one thread over an in-process link
    OneThread(OneThreadOptions),
    /// Bulk transfers to and from the kernel over a wire with loss, delay and reordering, against kernel to kernel
    Goodput(GoodputOptions),
    /// One end of `goodput`, which starts it
    #[command(hide = true)]
    GoodputSide(goodput::SideOptions),
    /// Put what the benchmarks wrote into a directory together on one page, report.md
    Report {
        /// The directory
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Runs the benchmark.
pub fn bench(options: &BenchOptions) -> Result<(), Failure> {
    match &options.benchmark {
        Benchmark::Message(options) => message::message(options),
        Benchmark::MessageSide(options) => message::side(options),
        Benchmark::Bulk(options) => bulk::bulk(options),
        Benchmark::BulkSide(options) => bulk::side(options),
        Benchmark::OneThread(options) => one_thread::one_thread(options),
        Benchmark::Goodput(options) => goodput::goodput(options),
        Benchmark::GoodputSide(options) => goodput::side(options),
        Benchmark::Report { out } => frame::page::write(out).map_err(Failure::Run),
    }
}
