//! `mill doctor`: checks whether this host can run Millstream well, and names commands that help.
//!
//! ```text
//! gather   the host's files and programs → facts (texts, as read)
//! checks   facts → findings; pure functions
//! ```
//!
//! Owns the options and the output.

mod checks;
mod facts;
mod gather;
#[cfg(test)]
mod tests;

use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::net::options::{Cidr, Wire};
use crate::output::print;

/// Options of `mill doctor`.
#[derive(Args, Clone, Debug)]
pub struct DoctorOptions {
    /// The wire that is to be opened; without it only the host is looked at
    #[arg(long, value_name = "SPEC")]
    pub wire: Option<Wire>,
    /// Our address on the wire; may be given several times
    #[arg(long = "addr", value_name = "IP/PREFIX")]
    pub addresses: Vec<Cidr>,
    /// Contexts that share the wire
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub contexts: u16,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Everything is right.
    Ok,
    /// Millstream works, but slower or less reliably than it could.
    Warning,
    /// Millstream cannot work.
    Failure,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check's name: `kernel`, `memlock`.
    pub check: &'static str,
    /// The outcome.
    pub verdict: Verdict,
    /// The value that was read, in one line.
    pub found: String,
    /// The command that solves the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            verdict: Verdict::Ok,
            found: found.into(),
            fix: None,
        }
    }

    fn warning(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            check,
            verdict: Verdict::Warning,
            found: found.into(),
            fix: Some(fix.into()),
        }
    }

    /// A check that could not look.
    fn not_looked(check: &'static str, why: &str, fix: impl Into<String>) -> Self {
        Self::warning(check, format!("not looked at: {why}"), fix)
    }

    fn failure(check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Failure,
            ..Self::warning(check, found, fix)
        }
    }
}

/// Checks the host and prints the findings. Status 1 if a check fails.
pub fn doctor(options: &DoctorOptions) -> Result<(), Failure> {
    let wire = match &options.wire {
        Some(Wire::Millstream(spec)) => Some(&**spec),
        Some(Wire::Kernel) | None => None,
    };
    let facts = gather::facts(wire, &options.addresses, options.contexts);
    let findings = checks::all(&facts);
    let text = match options.json {
        true => json(&findings)?,
        false => lines(&findings),
    };
    print(&text)?;
    match findings.iter().map(|one| one.verdict).max() {
        Some(Verdict::Failure) => Err(Failure::Reported),
        _ => Ok(()),
    }
}

fn json(findings: &[Finding]) -> Result<String, Failure> {
    let mut text = serde_json::to_string_pretty(findings)
        .map_err(|error| Failure::Run(format!("doctor: {error}")))?;
    text.push('\n');
    Ok(text)
}

fn lines(findings: &[Finding]) -> String {
    let mut text = String::new();
    for one in findings {
        let verdict = match one.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failure => "FAILURE",
        };
        text.push_str(&format!("{verdict:<8} {:<13} {}\n", one.check, one.found));
        if let Some(fix) = &one.fix {
            text.push_str(&format!("{:<22} {fix}\n", ""));
        }
    }
    text
}
