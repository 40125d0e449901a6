//! What a benchmark found, and how it is written down: JSON with everything, Markdown tables, an SVG chart for each figure.

use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Machine, Spread, chart};

/// One benchmark's figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The command's name; also the files'.
    pub name: String,
    /// What is measured, the same for every system.
    pub rule: String,
    pub machine: Machine,
    /// Name and value.
    pub parameters: Vec<(String, String)>,
    pub figures: Vec<Figure>,
    pub claims: Vec<Claim>,
    /// What failed, what was left out.
    pub notes: Vec<String>,
}

/// One table and one chart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// A part of the files' names.
    pub id: String,
    pub title: String,
    pub x: String,
    /// What the values are, with their unit.
    pub y: String,
    /// Less is better.
    pub falls: bool,
    /// The series are systems to be compared with the first; otherwise parts of a whole.
    pub compares: bool,
    pub series: Vec<Series>,
}

/// One system.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    pub system: String,
    pub points: Vec<Point>,
}

/// One value of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub x: f64,
    pub y: Spread,
}

/// A row of issue 4's table: what must be shown, and what was seen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    pub measure: String,
    /// What is compared with what, in words with numbers.
    pub seen: String,
    pub value: f64,
    pub bar: f64,
    pub aim: f64,
    /// The value is to be at most the bar; otherwise at least.
    pub at_most: bool,
}

impl Claim {
    pub fn verdict(&self) -> &'static str {
        let reaches = |goal: f64| match self.at_most {
            true => self.value <= goal,
            false => self.value >= goal,
        };
        match (reaches(self.aim), reaches(self.bar)) {
            (true, _) => "aim",
            (_, true) => "bar",
            _ => "below",
        }
    }
}

impl Outcome {
    pub fn new(name: &str, rule: &str) -> Self {
        let outcome = Self {
            name: name.to_owned(),
            rule: rule.to_owned(),
            machine: Machine::look(),
            parameters: Vec::new(),
            figures: Vec::new(),
            claims: Vec::new(),
            notes: Vec::new(),
        };
        eprintln!("{name}: {}", outcome.machine);
        outcome
    }

    pub fn parameter(&mut self, name: &str, value: impl ToString) {
        self.parameters.push((name.to_owned(), value.to_string()));
    }

    /// Adds a figure, and shows it at once: the next one may take long.
    pub fn add(&mut self, figure: Figure) {
        eprintln!("\n{}", figure.table());
        self.figures.push(figure);
    }

    /// Adds a claim if both of its sides were measured.
    pub fn claim(&mut self, claim: Option<Claim>) {
        // A side that carried nothing gives no quotient.
        self.claims
            .extend(claim.filter(|claim| claim.value.is_finite()));
    }

    /// The median of a point of a figure, if it was measured.
    pub fn median(&self, figure: &str, system: &str, x: f64) -> Option<f64> {
        let figure = self.figures.iter().find(|other| other.id == figure)?;
        figure.median(system, x)
    }

    /// Writes `NAME.json`, `NAME.md` and the charts.
    pub fn write(&mut self, directory: &Path) -> Result<(), String> {
        self.machine.look_again();
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
        let json = format!("{:#}\n", serde_json::json!(self));
        write(&directory.join(format!("{}.json", self.name)), &json)?;
        write(
            &directory.join(format!("{}.md", self.name)),
            &self.markdown(),
        )?;
        for figure in &self.figures {
            chart::draw(&directory.join(self.chart_name(figure)), figure)?;
        }
        Ok(())
    }

    fn chart_name(&self, figure: &Figure) -> String {
        format!("{}-{}.svg", self.name, figure.id)
    }

    /// A section for the page.
    pub fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n{}\n\n", self.name, self.rule);
        let _ = writeln!(text, "* {}", self.machine);
        for (name, value) in &self.parameters {
            let _ = writeln!(text, "* {name}: {value}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "* Note: {note}");
        }
        for figure in &self.figures {
            let chart = self.chart_name(figure);
            let _ = write!(text, "\n{}\n![{}]({chart})\n", figure.table(), figure.title);
        }
        text
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

impl Figure {
    /// The median of a point, if it was measured.
    pub fn median(&self, system: &str, x: f64) -> Option<f64> {
        let series = self.series.iter().find(|series| series.system == system)?;
        let point = series.points.iter().find(|point| point.x == x)?;
        Some(point.y.median)
    }

    /// All x that any system has, in order.
    pub fn xs(&self) -> Vec<f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let mut xs: Vec<f64> = points.map(|point| point.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    /// Heading and table: medians with the least and the largest value, and each system's ratio to the first.
    pub fn table(&self) -> String {
        if let [x] = self.xs()[..] {
            return self.list(x);
        }
        let mut text = format!(
            "### {}\n\n{}; median (least to largest) × the first column\n\n| {} |",
            self.title, self.y, self.x
        );
        for series in &self.series {
            let _ = write!(text, " {} |", series.system);
        }
        text.push_str("\n|---|");
        text.push_str(&"---|".repeat(self.series.len()));
        text.push('\n');
        for x in self.xs() {
            let _ = write!(text, "| {} |", number(x));
            let first = self.series.first().and_then(|series| at(series, x));
            for (index, series) in self.series.iter().enumerate() {
                let cell = at(series, x).map(|point| cell(point, first.filter(|_| index > 0)));
                let _ = write!(text, " {} |", cell.unwrap_or_else(|| "–".to_owned()));
            }
            text.push('\n');
        }
        text
    }
}

impl Figure {
    /// The table of a figure with one x: a row for each system.
    fn list(&self, x: f64) -> String {
        let mut text = format!("### {}\n\n", self.title);
        if self.compares {
            let _ = write!(
                text,
                "{}: {}; median (least to largest) × the first row\n\n",
                self.x,
                number(x)
            );
        }
        let _ = write!(text, "| | {} |\n|---|---|\n", self.y);
        let first = self.series.first().and_then(|series| at(series, x));
        for (index, series) in self.series.iter().enumerate() {
            let compared = first.filter(|_| index > 0 && self.compares);
            if let Some(point) = at(series, x) {
                let _ = writeln!(text, "| {} | {} |", series.system, cell(point, compared));
            }
        }
        text
    }
}

fn at(series: &Series, x: f64) -> Option<&Point> {
    series.points.iter().find(|point| point.x == x)
}

fn cell(point: &Point, first: Option<&Point>) -> String {
    let Spread {
        median, min, max, ..
    } = &point.y;
    let mut text = number(*median);
    if point.y.values.len() > 1 {
        let _ = write!(text, " ({} to {})", number(*min), number(*max));
    }
    if let Some(first) = first.filter(|first| first.y.median > 0.0) {
        let _ = write!(text, " × {:.2}", median / first.y.median);
    }
    text
}

/// With as many digits as mean something, and commas between thousands.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size < 1.0 => 4,
        size if size < 100.0 && size.fract() != 0.0 => 2,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if index > 0 && left.is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if !fraction.is_empty() {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, values: [f64; 2]) -> Point {
        let y = Spread::of(values);
        Point { x, y }
    }

    #[test]
    fn table_compares_with_the_first_system() {
        let series = |system: &str, points| Series {
            system: system.to_owned(),
            points,
        };
        let figure = Figure {
            id: "7a".to_owned(),
            title: "Rate".to_owned(),
            x: "connections".to_owned(),
            y: "per second".to_owned(),
            falls: false,
            compares: true,
            series: vec![
                series("kernel", vec![point(64.0, [1000.0, 3000.0])]),
                series(
                    "ours",
                    vec![point(64.0, [8000.0; 2]), point(1024.0, [1.25; 2])],
                ),
            ],
        };
        let table = figure.table();
        assert!(
            table.contains("| 64 | 2,000 (1,000 to 3,000) | 8,000 (8,000 to 8,000) × 4.00 |"),
            "{table}"
        );
        assert!(
            table.contains("| 1,024 | – | 1.25 (1.25 to 1.25) |"),
            "{table}"
        );
    }

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        let shown = [0.0, 0.99987, 1.5, 64.0, 1234.56, 1_000_000.0].map(number);
        assert_eq!(shown, ["0", "0.9999", "1.50", "64", "1,235", "1,000,000"]);
    }

    #[test]
    fn claims_know_which_way_is_better() {
        let claim = |value, at_most| Claim {
            measure: String::new(),
            seen: String::new(),
            value,
            bar: if at_most { 1.5 } else { 15.0 },
            aim: if at_most { 1.0 } else { 25.0 },
            at_most,
        };
        let verdicts = [
            (0.9, true),
            (1.2, true),
            (1.6, true),
            (26.0, false),
            (3.0, false),
        ];
        let verdicts = verdicts.map(|(value, at_most)| claim(value, at_most).verdict());
        assert_eq!(verdicts, ["aim", "bar", "below", "aim", "below"]);
    }
}
