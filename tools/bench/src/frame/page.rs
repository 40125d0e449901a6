//! The page that puts all outcomes of a directory together, with all claims on top. It is written
//! as Markdown beside its charts, and as one file for a browser.

use std::fmt::Write;
use std::path::Path;

use super::html;
use super::outcome::{self, Claim, Outcome, claims_grid};

/// The benchmarks in the order of the page.
const NAMES: [&str; 5] = ["message", "bulk", "scale", "cycles", "mux"];

/// Reads what the benchmarks wrote into `directory` and writes `report.md` and `report.html` beside
/// it.
pub fn write(directory: &Path) -> Result<(), String> {
    let mut page = Page::default();
    for name in NAMES {
        let path = directory.join(format!("{name}.json"));
        let Ok(text) = std::fs::read_to_string(&path) else {
            page.missing.push(name);
            continue;
        };
        let outcome =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        page.outcomes.push(outcome);
    }
    if page.outcomes.is_empty() {
        return Err(format!("{}: no benchmark wrote here", directory.display()));
    }
    outcome::write(&directory.join("report.md"), &page.markdown())?;
    outcome::write(
        &directory.join("report.html"),
        &html::page(&page, directory)?,
    )
}

/// Removes what a benchmark wrote into `directory` before, so that it is not on the next page.
pub fn forget(directory: &Path, name: &str) -> Result<(), String> {
    let path = directory.join(format!("{name}.json"));
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

/// The contents of the page.
#[derive(Default)]
pub(super) struct Page {
    pub outcomes: Vec<Outcome>,
    /// Benchmarks that did not run.
    pub missing: Vec<&'static str>,
}

/// The page's first paragraph: how to read it.
pub(super) const PREFACE: &str = "Every comparison is one run on the same two cores, the systems taking turns; what is shown is the median of the runs, \
with the least and the largest. Where six or more runs fall into two groups, the table says how many runs had which value. Ratios are to the first system of a table. `cargo xtask bench all --out DIR` makes this page.";

impl Page {
    pub fn claims(&self) -> Vec<&Claim> {
        let outcomes = self.outcomes.iter();
        outcomes.flat_map(|outcome| &outcome.claims).collect()
    }

    /// Goals and benchmarks that were not measured, in a line; none if all were.
    pub fn unmeasured(&self) -> Option<String> {
        let outcomes = self.outcomes.iter();
        let rows = outcomes.flat_map(|outcome| outcome.unmeasured.iter().cloned());
        let missing = self.missing.iter().map(|name| format!("all of `{name}`"));
        let all: Vec<String> = rows.chain(missing).collect();
        (!all.is_empty()).then(|| format!("Not measured here: {}.", all.join("; ")))
    }

    fn markdown(&self) -> String {
        let mut text = format!("# Benchmarks\n\n{PREFACE}\n");
        let claims = self.claims();
        if !claims.is_empty() {
            let grid = claims_grid(&claims).markdown();
            let _ = write!(text, "\n## What they must show\n\n{grid}");
        }
        if let Some(line) = self.unmeasured() {
            let _ = write!(text, "\n{line}\n");
        }
        for outcome in &self.outcomes {
            text.push('\n');
            text.push_str(&outcome.markdown());
        }
        text
    }
}
