//! The page that puts all outcomes of a directory together, with what issue 4 asks for on top.

use std::fmt::Write;
use std::path::Path;

use super::outcome::{Outcome, number};

/// The benchmarks in the order of the page.
const NAMES: [&str; 4] = ["message", "bulk", "scale", "cycles"];

/// Reads what the benchmarks wrote into `directory` and writes `report.md` beside it.
pub fn write(directory: &Path) -> Result<(), String> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for name in NAMES {
        let path = directory.join(format!("{name}.json"));
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        let outcome =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        outcomes.push(outcome);
    }
    if outcomes.is_empty() {
        return Err(format!("{}: no benchmark wrote here", directory.display()));
    }
    let path = directory.join("report.md");
    std::fs::write(&path, page(&outcomes)).map_err(|error| format!("{}: {error}", path.display()))
}

fn page(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "# Benchmarks\n\nEvery comparison is one run on the same two cores, the systems taking turns. \
         `cargo xtask bench all --out DIR` makes this page.\n",
    );
    let claims: Vec<_> = outcomes
        .iter()
        .flat_map(|outcome| &outcome.claims)
        .collect();
    if !claims.is_empty() {
        text.push_str(
            "\n## What they must show\n\n| measure | seen | value | bar | aim | reached |\n|---|---|---|---|---|---|\n",
        );
    }
    for claim in claims {
        let sign = if claim.at_most { "≤ " } else { "" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {sign}{} | {sign}{} | {} |",
            claim.measure,
            claim.seen,
            number(claim.value),
            number(claim.bar),
            number(claim.aim),
            claim.verdict()
        );
    }
    for outcome in outcomes {
        text.push('\n');
        text.push_str(&outcome.markdown());
    }
    text
}
