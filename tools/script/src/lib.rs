//! Packet scripts: packetdrill's language, run in this process against the whole stack in virtual
//! time.
//!
//! A script says at which time which system call is made, which packet arrives, and which packet is
//! expected to leave. [`run`] plays it through `posix` and a wire of raw IP packets. The clock
//! jumps from event to event, so minutes take milliseconds and every run is the same. `cargo xtask
//! script` and the tests call it. The same script can be played on this machine's kernel
//! ([`Machine::Kernel`]).
//!
//! ```text
//!   text ─ lex ─ parse ─▶ ast ─┬─ calls ────▶ posix ─ millstream ─ stack ─ tcp
//!                              ├─ inbound ──▶ wire ──────────────────▲
//!                              ├─ outbound ◀─ wire ◀─────────────────┘
//!                              ├─ shell ────▶ settings
//!                              └─ python ◀── tcp_info
//! ```
//!
//! Files: `lex`, `parse` and `ast` are the language, `python` and `shell` the code embedded in it.
//! `datagram`, `icmp`, `option`, `tcp_info` and `symbols` are the formats. `host` is the machine:
//! our stack and its clock, or this machine's kernel. `runner` is the play.

#![deny(unsafe_code)]

mod ast;
mod config;
mod datagram;
mod difference;
mod host;
mod icmp;
mod lex;
mod limits;
mod option;
mod parse;
mod python;
pub mod random;
mod record;
mod runner;
mod shell;
pub mod states;
mod symbols;
mod tcp_info;

use std::collections::BTreeMap;
use std::fmt;

pub use difference::{Difference, differences};
pub use record::Record;

/// The machine on which a script is played.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Machine {
    /// Our stack, in this process and in virtual time.
    #[default]
    Stack,
    /// The kernel that this program runs on: in a network namespace of its own, over a TUN device,
    /// in real time. Needs root.
    Kernel,
}

/// Options of a run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The machine on which the script is played.
    pub on: Machine,
    /// The least tolerance in µs, whatever a script says. A kernel's timers tick, and a busy
    /// machine is late.
    pub tolerance_us_min: u32,
    /// Records packets, calls and ignored commands in [`Report::trace`] and [`Mismatch::trace`].
    pub trace: bool,
    /// Compares nothing that the script expects, and puts what is seen into [`Report::record`].
    pub record: bool,
    /// With [`Options::record`]: an echo in the script stands for the timestamp that left at that
    /// time or a little later. A kernel in real time is late by parts of a millisecond.
    pub echoes_what_left: bool,
    /// On our stack: timers fire with the ticks of a Linux clock whose first tick comes after so
    /// many ms.
    pub ticks_ms: Option<u16>,
    /// Options without the dashes, put before the script's own: `("ip_version", "ipv6")`. The
    /// script's own override them.
    pub options: Vec<(String, String)>,
    /// Words and their replacements: `--define`. They are added to those of the known suites.
    pub defines: BTreeMap<String, String>,
    /// Fails a script at whose end a packet has left that it does not expect. Otherwise such a
    /// packet fails it only when another one is expected, as in packetdrill.
    pub nothing_left: bool,
}

/// The result of a script that passed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// Events played.
    pub events: usize,
    /// Time from the first event to the last, in ns; virtual unless the kernel plays.
    pub elapsed_ns: u64,
    /// A line per packet, call and ignored command, with [`Options::trace`].
    pub trace: String,
    /// The packets and results that were seen, with [`Options::record`].
    pub record: Record,
}

/// The first fault in a script: something that the stack did otherwise, or an error in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The line of the script.
    pub line: u32,
    /// The expectation beside what was seen; packets on lines of their own.
    pub cause: String,
    /// The lines of [`Report::trace`] up to the mismatch.
    pub trace: String,
}

impl Mismatch {
    fn new(line: u32, cause: impl Into<String>) -> Mismatch {
        Mismatch {
            line,
            cause: cause.into(),
            trace: String::new(),
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.cause)
    }
}

impl std::error::Error for Mismatch {}

/// Runs the script `text`.
///
/// # Errors
/// The first [`Mismatch`].
pub fn run(text: &str, options: &Options) -> Result<Report, Mismatch> {
    let mut given: Vec<(String, Option<String>)> = Vec::new();
    for (name, value) in &options.options {
        given.push((name.clone(), Some(value.clone())));
    }
    let is_v6 = options
        .options
        .iter()
        .any(|option| option.0 == "ip_version" && option.1 == "ipv6");
    let mut defines = config::suite_defines(is_v6);
    defines.extend(options.defines.clone());
    let script = parse::script(text, &defines)?;
    given.extend(script.options.iter().cloned());
    let mut config = config::Config::new(&given).map_err(|cause| Mismatch::new(1, cause))?;
    config.tolerance = config.tolerance.max(options.tolerance_us_min.into());
    match options.on {
        Machine::Stack => runner::play(&script, config, options),
        // A thread of its own, since the kernel's network namespace belongs to a thread.
        Machine::Kernel => {
            let played = std::thread::scope(|scope| {
                scope
                    .spawn(|| runner::play(&script, config, options))
                    .join()
            });
            played.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }
    }
}

/// Reads the script `text` without running it, with the code and the commands in it.
///
/// # Errors
/// The first error in the text.
pub fn check(text: &str) -> Result<(), Mismatch> {
    let script = parse::script(text, &config::suite_defines(false))?;
    let mut allowed = shell::Allowance::default();
    // Any text is a valid command, but it may exceed the allowance.
    let mut command = |line, text: &str| match shell::outcome(text, &mut allowed) {
        Ok(_) => Ok(()),
        Err(cause) => Err(Mismatch::new(line, cause)),
    };
    if let Some(init) = &script.init {
        command(init.line, &init.text)?;
    }
    for event in &script.events {
        match &event.action {
            ast::Action::Code(code) => python::check(event.line, code)?,
            ast::Action::Shell(text) => command(event.line, text)?,
            ast::Action::Packet(_) | ast::Action::Call(_) => {}
        }
    }
    if let Some(cleanup) = &script.cleanup {
        command(cleanup.line, &cleanup.text)?;
    }
    config::Config::new(&script.options)
        .map(|_| ())
        .map_err(|cause| Mismatch::new(1, cause))
}

#[cfg(test)]
mod tests;
