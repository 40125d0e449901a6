//! `mill top`: the activity of all Millstream processes' contexts, live in 80 columns and 24 lines,
//! or once as a table or as JSON.
//!
//! Owns the options. `rates` makes rows from two looks, `screen` shows them.

mod rates;
mod screen;
#[cfg(test)]
pub(crate) mod tests;

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::output::print;
use crate::processes::Processes;

/// Options of `mill top`.
#[derive(Args, Clone, Debug)]
pub struct TopOptions {
    /// Only this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    delay: f64,
    /// Order of the rows
    #[arg(short, long, value_enum, default_value_t = Sort::Bits)]
    sort: Sort,
    /// Look twice, print a table and end
    #[arg(long)]
    once: bool,
    /// Print JSON; with --once
    #[arg(long, requires = "once")]
    json: bool,
}

/// A column that rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    Process,
    Connections,
    Packets,
    Bits,
    Retransmissions,
    Drops,
    Pools,
    Busy,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("not between 0.1 and 3600".to_owned()),
    }
}

/// Runs the command.
pub fn top(options: &TopOptions) -> Result<(), Failure> {
    let mut processes = Processes::find(options.pid)?;
    let delay = Duration::from_secs_f64(options.delay);
    if !options.once {
        return screen::run(&mut processes, delay, options.sort)
            .map_err(|error| Failure::Run(format!("terminal: {error}")));
    }
    let before = processes.snapshots();
    std::thread::sleep(delay);
    let mut rows = rates::rows(&before, &processes.snapshots());
    processes.warn_of_unseen();
    rates::sort(&mut rows, options.sort, false);
    match options.json {
        true => print(&format!("{}\n", serde_json::json!(rows))),
        false => print(&rates::table(&rows)),
    }
}
