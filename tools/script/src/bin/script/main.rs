//! `cargo xtask script`: packet scripts in packetdrill's language, run against the stack in virtual
//! time.
//!
//! Prints a line for each file. A failed file's line shows the first mismatch: place, cause, and
//! what was expected against what was seen. With `--compare` each script is played on our stack and
//! on the kernel, and differences are shown. Exit status: 0 if all scripts passed, 1 if one did
//! not, 2 if a file or option cannot be used.

#![forbid(unsafe_code)]

mod compare;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use script::{Machine, Mismatch, Options, Report};

/// Tolerance of times for a kernel whose clock ticks 250 times a second.
const KERNEL_TOLERANCE_MS: u32 = 14;

/// Plays packet scripts in packetdrill's language against the stack in virtual time
#[derive(Parser, Debug)]
#[command(name = "script", bin_name = "cargo xtask script")]
struct ScriptOptions {
    /// Scripts to play; -v shows each packet and call of theirs
    #[arg(required_unless_present_any = ["random", "states"], value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A word in the scripts and its replacement
    #[arg(short = 'D', long = "define", value_name = "WORD=VALUE", value_parser = pair)]
    defines: Vec<(String, String)>,
    /// An option as scripts have them, such as ip_version=ipv6; a script's own options override it
    #[arg(short, long = "option", value_name = "NAME=VALUE", value_parser = pair)]
    options: Vec<(String, String)>,
    /// Plays the scripts on this machine's kernel: each in its own network namespace, over a TUN
    /// device, in real time. Needs root
    #[arg(long)]
    kernel: bool,
    /// Plays each script on our stack and on the kernel, without expectations, and shows where they
    /// differ. Needs root
    #[arg(long, conflicts_with = "kernel")]
    compare: bool,
    /// Number of scripts to draw from seeds and compare
    #[arg(long, value_name = "N", requires = "compare")]
    random: Option<u64>,
    /// Compares the state table: every kind of segment in every state
    #[arg(long, requires = "compare", conflicts_with = "random")]
    states: bool,
    /// The first seed
    #[arg(long, value_name = "S", default_value_t = 1, requires = "random")]
    seed: u64,
    /// The peer is a receiver behind a lossy path, which tests the sender's loss recovery
    #[arg(long, requires = "random")]
    path: bool,
    /// Number of kernels played on at once, each in its own namespace
    #[arg(long, value_name = "J", default_value_t = 8, requires = "compare")]
    jobs: usize,
    /// Longest script in seconds of its time; longer ones are not compared
    #[arg(long, value_name = "S", default_value_t = 20, requires = "compare")]
    longest: u64,
    /// The least tolerance of times in ms; 14 with --kernel, 30 with --compare, else the script's
    /// own
    #[arg(long, value_name = "MS")]
    tolerance: Option<u32>,
    /// Fails a script at whose end packets have left that it does not expect
    #[arg(long)]
    nothing_left: bool,
    /// Shows each packet and call
    #[arg(short, long)]
    verbose: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("no '=' in it".to_owned()),
    }
}

/// The reason why the command fails.
#[derive(Debug)]
enum Failure {
    /// A file or option cannot be used. Status 2.
    Usage(String),
    /// A printed report has named the failure. Status 1.
    Reported,
}

fn main() -> ExitCode {
    let outcome = script(&ScriptOptions::parse());
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Reported) => ExitCode::FAILURE,
        Err(Failure::Usage(cause)) => {
            eprintln!("script: {cause}");
            ExitCode::from(2)
        }
    }
}

fn script(options: &ScriptOptions) -> Result<(), Failure> {
    if options.compare {
        return compare::compare(options, options.verbose);
    }
    let on = match options.kernel {
        true => Machine::Kernel,
        false => Machine::Stack,
    };
    let usual = if options.kernel {
        KERNEL_TOLERANCE_MS
    } else {
        0
    };
    let how = Options {
        on,
        tolerance_us_min: options.tolerance.unwrap_or(usual).saturating_mul(1000),
        trace: options.verbose,
        options: options.options.clone(),
        defines: BTreeMap::from_iter(options.defines.clone()),
        nothing_left: options.nothing_left,
        record: false,
        echoes_what_left: false,
        ticks_ms: None,
    };
    let mut failed = 0;
    for file in &options.files {
        let text = read(file)?;
        match script::run(&text, &how) {
            Ok(report) => passed(file, &report),
            Err(mismatch) => {
                failed += 1;
                differs(file, &mismatch);
            }
        }
    }
    if options.files.len() > 1 {
        println!("{} passed, {failed} failed", options.files.len() - failed);
    }
    if failed == 0 {
        Ok(())
    } else {
        Err(Failure::Reported)
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    let text = fs::read(file).map_err(|e| Failure::Usage(format!("{}: {e}", file.display())))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn passed(file: &Path, report: &Report) {
    print!("{}", report.trace);
    let elapsed_s = report.elapsed_ns as f64 / 1e9;
    println!(
        "{}: passed ({} events, {elapsed_s:.3} s)",
        file.display(),
        report.events
    );
}

fn differs(file: &Path, mismatch: &Mismatch) {
    print!("{}", mismatch.trace);
    println!("{}: failed", file.display());
    eprintln!("{}:{mismatch}", file.display());
}
