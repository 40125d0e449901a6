//! `cargo xtask bench papers`: the figures and tables of the three papers on one page. Each stands
//! beside the values that its paper states, or with the reason why it is not shown.
//!
//! The other benchmarks measure: this one names their figures, collects the outcomes, and writes
//! the page ([`page`]). The papers' contents stand in [`published`](crate::published).

mod page;

use std::path::Path;

use clap::{Args, ValueEnum};

use crate::bulk::{self, BulkOptions};
use crate::frame::{Outcome, Repeats, page as report};
use crate::message::{MessageOptions, figures};
use crate::mux::{self, MuxOptions};
use crate::published::{Benchmark, CONTENTS, Paper, Row};
use mill::failure::Failure;
use page::Page;

/// The page's file.
const PAGE: &str = "papers.md";

/// Options of `cargo xtask bench papers`.
#[derive(Args, Clone, Debug)]
pub struct PapersOptions {
    /// Papers to show; all if none is named
    #[arg(long = "paper", value_enum, value_delimiter = ',')]
    pub papers: Vec<Paper>,
    #[command(flatten)]
    pub repeats: Repeats,
}

/// Measures the figures that the papers' rows need, and writes the page.
///
/// # Errors
///
/// A usage error without a directory. A benchmark that failed, after the page was written.
pub fn papers(options: &PapersOptions) -> Result<(), Failure> {
    let Some(directory) = &options.repeats.out else {
        return Err(Failure::Usage(
            "papers: --out DIR is missing: the page has charts beside it".to_owned(),
        ));
    };
    let is_wanted = |row: &&Row| options.papers.is_empty() || options.papers.contains(&row.paper);
    let rows: Vec<&Row> = CONTENTS.iter().filter(is_wanted).collect();
    let (outcomes, failures) = measure(&rows, &options.repeats, directory)?;
    let page = Page {
        rows: &rows,
        outcomes: &outcomes,
        failures: &failures,
    };
    page.write(directory, PAGE).map_err(Failure::Run)?;
    eprintln!("papers: {}", directory.join(PAGE).display());
    match failures.is_empty() {
        true => Ok(()),
        false => Err(Failure::Run(format!("papers: {}", failures.join("; ")))),
    }
}

/// Runs each benchmark with the figures that rows take of it, one after the other. One that fails
/// does not keep the others from the page.
fn measure(
    rows: &[&Row],
    repeats: &Repeats,
    directory: &Path,
) -> Result<(Vec<Outcome>, Vec<String>), Failure> {
    let (mut outcomes, mut failures) = (Vec::new(), Vec::new());
    for benchmark in Benchmark::ALL {
        // Results of an earlier run would stand beside the page as if they were this run's.
        report::forget(directory, benchmark.name()).map_err(Failure::Run)?;
        let figures = figures_of(benchmark, rows);
        if figures.is_empty() {
            continue;
        }
        let mut outcome = collect(benchmark, figures, repeats)?;
        if let Err(failure) = repeats.settled().deliver(&mut outcome) {
            failures.push(failure.to_string());
        }
        outcomes.push(outcome);
    }
    Ok((outcomes, failures))
}

/// The `--figure` of a benchmark that rows take, each once.
fn figures_of(benchmark: Benchmark, rows: &[&Row]) -> Vec<String> {
    let mut figures: Vec<String> = Vec::new();
    let drawn = rows.iter().flat_map(|row| row.drawn());
    for drawn in drawn.filter(|drawn| drawn.benchmark == benchmark) {
        if figures.iter().all(|name| name != drawn.figure) {
            figures.push(drawn.figure.to_owned());
        }
    }
    figures
}

fn collect(
    benchmark: Benchmark,
    figures: Vec<String>,
    repeats: &Repeats,
) -> Result<Outcome, Failure> {
    let repeats = repeats.clone();
    match benchmark {
        Benchmark::Message => figures::collect(&MessageOptions {
            figures,
            repeats,
            ..MessageOptions::default()
        }),
        Benchmark::Bulk => bulk::collect(&BulkOptions { figures, repeats }),
        Benchmark::Mux => Ok(mux::collect(&MuxOptions {
            figures: shown(&figures)?,
            repeats,
        })),
    }
}

/// The figures of `mux` by their names.
fn shown(names: &[String]) -> Result<Vec<mux::Shown>, Failure> {
    let of = |name: &String| mux::Shown::from_str(name, false);
    let found: Result<Vec<mux::Shown>, String> = names.iter().map(of).collect();
    found.map_err(|cause| Failure::Usage(format!("papers: {cause}")))
}

#[cfg(test)]
mod tests;
