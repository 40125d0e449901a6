//! The page: a table of all figures and tables, then a section for each that is shown. A section
//! has the published values with ours beside them, then our figures with their charts.

use std::fmt::Write;
use std::path::Path;

use crate::frame::outcome::{Grid, number};
use crate::frame::{Figure, Outcome, Point, Series, Spread, chart};
use crate::published::{Benchmark, Here, Paper, Row, Shown, Value};

/// The page's first words.
const PREFACE: &str = "This page redraws the figures and tables of three papers on one machine, beside the values that the papers state. The papers' machines were others, so ratios compare and rates do not. No value was read off a drawn curve: where a paper draws and its text states nothing, the page says so. `cargo xtask bench papers --out DIR` makes it.";
/// The words of a row without a published value.
const UNSTATED: &str =
    "Published: no value is stated in numbers in what this project has read of the paper.";

/// The contents of the page.
pub struct Page<'a> {
    pub rows: &'a [&'a Row],
    pub outcomes: &'a [Outcome],
    pub failures: &'a [String],
}

impl Page<'_> {
    /// Writes the page and the charts that compare. The outcomes have written their own charts
    /// before.
    pub fn write(&self, directory: &Path, name: &str) -> Result<(), String> {
        for row in self.rows {
            for figure in self.comparisons(row) {
                chart::draw(&directory.join(chart_name(&figure)), &figure)?;
            }
        }
        let path = directory.join(name);
        std::fs::write(&path, self.markdown())
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The page as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("# The papers' figures\n\n{PREFACE}\n\n");
        for failure in self.failures {
            let _ = writeln!(text, "**Failed**: {failure}\n");
        }
        self.circumstances(&mut text);
        text.push_str(&self.overview().markdown());
        for paper in Paper::ALL {
            let own = self.rows.iter().filter(|row| row.paper == paper);
            let own: Vec<&&Row> = own.collect();
            if own.is_empty() {
                continue;
            }
            let _ = write!(text, "\n## {}\n", paper.title());
            for row in own {
                self.section(row, &mut text);
            }
        }
        text
    }

    /// Appends the lines that all outcomes share, once, and then those of each outcome.
    fn circumstances(&self, text: &mut String) {
        let of_each: Vec<Vec<String>> = self.outcomes.iter().map(Outcome::circumstances).collect();
        let is_common = |line: &String| of_each.iter().all(|lines| lines.contains(line));
        let first = of_each.first().into_iter().flatten();
        for line in first.filter(|line| is_common(line)) {
            let _ = writeln!(text, "* {line}");
        }
        for (outcome, lines) in self.outcomes.iter().zip(&of_each) {
            for line in lines.iter().filter(|line| !is_common(line)) {
                let _ = writeln!(text, "* `{}`: {line}", outcome.name);
            }
        }
        text.push('\n');
    }

    /// A line for each row.
    fn overview(&self) -> Grid {
        let rows = self.rows.iter().map(|row| {
            let state = match row.shown {
                Shown::Not(reason) => format!("not shown: {reason}"),
                Shown::Here { .. } if self.figures(row).next().is_some() => "shown".to_owned(),
                Shown::Here { .. } => "not measured in this run".to_owned(),
            };
            let names = row.names.join(", ");
            vec![
                row.paper.name().to_owned(),
                names,
                row.about.to_owned(),
                state,
            ]
        });
        Grid {
            head: ["paper", "figure", "subject", "here"]
                .map(str::to_owned)
                .to_vec(),
            rows: rows.collect(),
        }
    }

    fn section(&self, row: &Row, text: &mut String) {
        let _ = write!(text, "\n### {}\n", row.heading());
        match row.shown {
            Shown::Not(reason) => {
                let _ = write!(text, "\nNot shown: {reason}\n");
            }
            Shown::Here { differs, .. } => {
                let _ = write!(text, "\n{differs}\n");
            }
        }
        if row.values().next().is_some() {
            let _ = write!(text, "\n{}", self.beside(row).markdown());
        } else if !row.drawn().is_empty() {
            let _ = write!(text, "\n{UNSTATED}\n");
        }
        for figure in self.comparisons(row) {
            let _ = write!(text, "\n![{}]({})\n", figure.title, chart_name(&figure));
        }
        for missing in self.missing(row) {
            let _ = write!(text, "\nNot measured in this run: `{missing}`.\n");
        }
        for (outcome, figure) in self.figures(row) {
            let (title, caption) = (&figure.title, figure.caption());
            let grid = figure.grid().markdown();
            let chart = outcome.chart_name(figure);
            let _ = write!(
                text,
                "\n#### {title}\n\n{caption}\n\n{grid}\n![{title}]({chart})\n"
            );
        }
    }

    /// The outcome of a benchmark, if it ran.
    fn outcome(&self, benchmark: Benchmark) -> Option<&Outcome> {
        let mut outcomes = self.outcomes.iter();
        outcomes.find(|outcome| outcome.name == benchmark.name())
    }

    /// Figures that were measured for a row.
    fn figures<'b>(&'b self, row: &'b Row) -> impl Iterator<Item = (&'b Outcome, &'b Figure)> {
        row.drawn().iter().flat_map(move |drawn| {
            let outcome = self.outcome(drawn.benchmark);
            drawn.ids.iter().filter_map(move |id| {
                let outcome = outcome?;
                let figure = outcome.figures.iter().find(|figure| figure.id == *id)?;
                Some((outcome, figure))
            })
        })
    }

    /// Figures that were to be measured for a row and were not.
    fn missing(&self, row: &Row) -> Vec<&'static str> {
        let ids = row.drawn().iter().flat_map(|drawn| drawn.ids);
        let is_there = |id: &str| self.figures(row).any(|(_, figure)| figure.id == id);
        ids.copied().filter(|id| !is_there(id)).collect()
    }

    /// The published values of a row, ours beside them.
    fn beside(&self, row: &Row) -> Grid {
        let mut rows = Vec::new();
        for value in row.values() {
            let mut here = value.here.iter();
            let mut line = published(value);
            line.extend(self.cells(here.next()));
            rows.push(line);
            for more in here {
                let mut line = vec![String::new(); 4];
                line.extend(self.cells(Some(more)));
                rows.push(line);
            }
        }
        Grid {
            head: [
                "published of",
                "value",
                "stated in",
                "known by",
                "here",
                "of",
            ]
            .map(str::to_owned)
            .to_vec(),
            rows,
        }
    }

    /// Our value, and the name of its quantity.
    fn cells(&self, here: Option<&Here>) -> [String; 2] {
        let Some(here) = here else {
            return ["not measured".to_owned(), String::new()];
        };
        let value = match self.read(here) {
            None => "not measured in this run".to_owned(),
            Some((least, greatest)) if least == greatest => number(least),
            Some((least, greatest)) => format!("{} to {}", number(least), number(greatest)),
        };
        [value, here.words()]
    }

    fn read(&self, here: &Here) -> Option<(f64, f64)> {
        here.read(self.outcome(here.benchmark)?)
    }

    /// Charts of a row: a bar for each published value and for each of ours, by unit. A unit of
    /// which nothing was measured has none.
    fn comparisons(&self, row: &Row) -> Vec<Figure> {
        let mut units: Vec<&str> = Vec::new();
        for value in row.values() {
            if !units.contains(&value.unit) {
                units.push(value.unit);
            }
        }
        let units = units.into_iter().enumerate();
        units
            .filter_map(|(index, unit)| self.comparison(row, index, unit))
            .collect()
    }

    fn comparison(&self, row: &Row, index: usize, unit: &str) -> Option<Figure> {
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for value in row.values().filter(|value| value.unit == unit) {
            let points = value.points.iter();
            theirs.extend(points.map(|stated| {
                let name = format!("published: {}, {}", value.series, stated.at);
                bar(name, stated.value, stated.value)
            }));
            ours.extend(value.here.iter().filter_map(|here| {
                let (least, greatest) = self.read(here)?;
                Some(bar(format!("here: {}", here.words()), least, greatest))
            }));
        }
        if ours.is_empty() {
            return None;
        }
        let paper = row.paper.name();
        theirs.extend(ours);
        Some(Figure {
            id: format!(
                "{}-{index}",
                file_words(&format!("{paper} {}", row.names[0]))
            ),
            title: format!("{paper}, {}: published and here", row.names[0]),
            x: String::new(),
            y: unit.to_owned(),
            falls: false,
            compares: false,
            series: theirs,
        })
    }
}

/// A bar with a stroke from the least to the greatest value.
fn bar(system: String, least: f64, greatest: f64) -> Series {
    Series {
        system,
        points: vec![Point {
            x: 0.0,
            y: Spread::of([least, greatest]),
        }],
    }
}

/// A published value's cells.
fn published(value: &Value) -> Vec<String> {
    vec![
        value.series.to_owned(),
        value.points(),
        value.place.to_owned(),
        value.source.words().to_owned(),
    ]
}

/// The file of a chart that compares.
fn chart_name(figure: &Figure) -> String {
    format!("papers-{}.svg", figure.id)
}

/// Letters and digits of a text, with dashes between its words.
fn file_words(text: &str) -> String {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<String> = words
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    words.join("-")
}
