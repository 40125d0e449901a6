//! `cargo xtask bench goodput`: bulk transfers between Millstream and the kernel over a bad wire,
//! against kernel to kernel.
//!
//! A cell is a loss rate, a delay and a share of reordering. In each cell, for each seed, three
//! pairs send for the same time over wires with the same faults: kernel to kernel, Millstream to
//! kernel, kernel to Millstream. The goodput is what the receiver's application read. Seconds
//! suffice where few frames are lost. Where every fifth frame is lost, minutes pass in timeouts,
//! but many wires fit on the machine. So seconds and wires at once may be given for each loss rate.
//! [`world`] makes the namespaces and the wire, [`schedule`] runs the cells, [`side`] sends and
//! receives, [`table`] and [`plot`] show what came out. Needs root, since it makes namespaces.

mod plot;
mod schedule;
mod side;
mod table;
mod world;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::frame::{median, quartiles};
use mill::failure::Failure;
pub use side::{SideOptions, side};

/// Options of `cargo xtask bench goodput`.
#[derive(Args, Clone, Debug)]
pub struct GoodputOptions {
    /// Shares of frames lost, each way
    #[arg(
        long,
        value_name = "SHARES",
        value_delimiter = ',',
        default_value = "0,0.1%,1%,5%,20%"
    )]
    pub loss: Vec<String>,
    /// Delays of a frame, each way
    #[arg(
        long,
        value_name = "TIMES",
        value_delimiter = ',',
        default_value = "1ms,10ms,50ms"
    )]
    pub delay: Vec<String>,
    /// Shares of frames that others overtake
    #[arg(
        long,
        value_name = "SHARES",
        value_delimiter = ',',
        default_value = "0,1%"
    )]
    pub reorder: Vec<String>,
    /// Bits per second of the wire
    #[arg(long, value_name = "RATE", default_value = "100mbit")]
    pub rate: String,
    /// Bytes that may queue for the wire
    #[arg(long, value_name = "BYTES", default_value = "512kb")]
    pub limit: String,
    /// Seeds per cell; the median over them is compared
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub seeds: u32,
    /// Seconds that each transfer is counted, from its first byte: one number, or one for each loss
    #[arg(
        long,
        value_name = "SECONDS",
        value_delimiter = ',',
        default_value = "5"
    )]
    pub seconds: Vec<f64>,
    /// Congestion control of all ends, the kernel's and ours; without this the machine's setting.
    /// While this runs, namespaces may choose it, even if they may not otherwise
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    /// Wires at once: one number, or one for each loss. Two CPUs bear two full wires, and two
    /// hundred that wait for timeouts
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub jobs: Vec<u32>,
    /// Write everything that was measured to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the table to this file, as Markdown
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
    /// Write a plot of the ratios to this file, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// Faults of the wire, both ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    pub loss: String,
    pub delay: String,
    pub reorder: String,
}

/// The two stacks of a transfer, sender first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pair {
    KernelToKernel,
    OursToKernel,
    KernelToOurs,
}

const PAIRS: [Pair; 3] = [Pair::KernelToKernel, Pair::OursToKernel, Pair::KernelToOurs];

/// Goodput of one cell: megabits per second, one value per seed from the first on, in the order of
/// [`PAIRS`].
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub cell: Cell,
    pub seconds: f64,
    pub mbit_per_second: [Vec<f64>; 3],
}

impl Measured {
    /// Median over the seeds.
    pub fn median(&self, pair: Pair) -> f64 {
        median(self.mbit_per_second[pair as usize].iter().copied())
    }

    /// A quarter of the seeds lie below the first, a quarter above the second.
    pub fn quartiles(&self, pair: Pair) -> (f64, f64) {
        quartiles(self.mbit_per_second[pair as usize].iter().copied())
    }

    /// Ratio of the medians to those of kernel to kernel; `None` if that pair carried nothing.
    pub fn ratio(&self, pair: Pair) -> Option<f64> {
        let kernel = self.median(Pair::KernelToKernel);
        (kernel > 0.0).then(|| self.median(pair) / kernel)
    }
}

/// Measures every cell and shows the table.
pub fn goodput(options: &GoodputOptions) -> Result<(), Failure> {
    let _permission =
        world::Permission::to_use(options.congestion.as_deref()).map_err(Failure::Run)?;
    let found = schedule::measure(options)?;
    let table = table::table(&found);
    print!("{table}");
    let json = serde_json::json!({ "rate": options.rate, "congestion": world::congestion(options).map_err(Failure::Run)?, "limit": options.limit, "cells": found });
    for (path, text) in [
        (&options.json, format!("{json:#}\n")),
        (&options.table, table),
    ] {
        if let Some(path) = path {
            std::fs::write(path, text)
                .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        }
    }
    match &options.plot {
        Some(path) => plot::plot(path, &found).map_err(Failure::Run),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
