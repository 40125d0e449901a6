//! `bench`: the benchmarks' program, and each side that a benchmark starts.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    bench::run()
}
