//! `mill bench`: measurements of Millstream and of the kernel, in one run on the same cores.

pub mod goodput;
pub mod message;

use clap::{Args, Subcommand};

use crate::failure::Failure;
use goodput::GoodputOptions;
use message::{MessageOptions, SideOptions};

/// Options of `mill bench`.
#[derive(Args, Clone, Debug)]
pub struct BenchOptions {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand, Clone, Debug)]
enum Benchmark {
    /// Transactions per second: connect, 64-byte request, 64-byte response, the server closes first
    Message(MessageOptions),
    /// One side of `message`, which starts it
    #[command(hide = true)]
    MessageSide(SideOptions),
    /// Bulk transfers to and from the kernel over a wire with loss, delay and reordering, against kernel to kernel
    Goodput(GoodputOptions),
    /// One end of `goodput`, which starts it
    #[command(hide = true)]
    GoodputSide(goodput::SideOptions),
}

/// Runs the benchmark.
pub fn bench(options: &BenchOptions) -> Result<(), Failure> {
    match &options.benchmark {
        Benchmark::Message(options) => message::message(options),
        Benchmark::MessageSide(options) => message::side(options),
        Benchmark::Goodput(options) => goodput::goodput(options),
        Benchmark::GoodputSide(options) => goodput::side(options),
    }
}
