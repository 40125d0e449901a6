//! A benchmark's outcome and its written forms: JSON with everything, Markdown tables, an SVG chart
//! for each figure.

use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Machine, Spread, chart};

/// One benchmark's figures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the command, with which the files' names begin.
    pub name: String,
    /// The rule of measurement, the same for every system.
    pub rule: String,
    pub machine: Machine,
    /// Names and values of settings.
    pub parameters: Vec<(String, String)>,
    pub figures: Vec<Figure>,
    /// Statements of papers on figures: the figure's name, and a line for below it.
    #[serde(default)]
    pub stated: Vec<(String, String)>,
    pub claims: Vec<Claim>,
    /// Claims of which a side was not measured.
    #[serde(default)]
    pub unmeasured: Vec<String>,
    /// Failures and omissions.
    pub notes: Vec<String>,
    /// Failures of Millstream, for which the command fails.
    #[serde(default)]
    pub failures: Vec<String>,
}

/// One table and one chart.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// A part of the files' names.
    pub id: String,
    pub title: String,
    pub x: String,
    /// The quantity on the y axis, with its unit.
    pub y: String,
    /// Less is better.
    pub falls: bool,
    /// The series are systems to be compared with the first; otherwise parts of a whole.
    pub compares: bool,
    pub series: Vec<Series>,
}

/// One system's points.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    pub system: String,
    pub points: Vec<Point>,
}

/// A system's values at one x.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    pub x: f64,
    pub y: Spread,
}

/// A comparison: the value that was measured, the bar that it must reach, and the better aim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    pub measure: String,
    /// The comparison in words with numbers.
    pub seen: String,
    pub value: f64,
    pub bar: f64,
    pub aim: f64,
    /// The value is to be at most the bar; otherwise at least.
    pub at_most: bool,
    /// Figures that others came to, in their papers or on another machine: for orientation.
    #[serde(default)]
    pub elsewhere: String,
}

/// A [`Claim`] before anything is measured.
pub struct Goal {
    measure: String,
    bar: f64,
    aim: f64,
    at_most: bool,
    elsewhere: &'static str,
}

impl Goal {
    /// A goal: `measure` must be at least the bar, and should be at least the aim.
    pub fn at_least(measure: impl Into<String>, (bar, aim): (f64, f64)) -> Self {
        Self {
            measure: measure.into(),
            bar,
            aim,
            at_most: false,
            elsewhere: "",
        }
    }

    /// A goal: `measure` must be at most the bar, and should be at most the aim.
    pub fn at_most(measure: impl Into<String>, goals: (f64, f64)) -> Self {
        Self {
            at_most: true,
            ..Self::at_least(measure, goals)
        }
    }

    /// Sets the values of other machines or papers.
    pub fn elsewhere(self, elsewhere: &'static str) -> Self {
        Self { elsewhere, ..self }
    }
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
            stated: Vec::new(),
            claims: Vec::new(),
            unmeasured: Vec::new(),
            notes: Vec::new(),
            failures: Vec::new(),
        };
        eprintln!("{name}: {}", outcome.machine);
        outcome
    }

    pub fn parameter(&mut self, name: &str, value: impl ToString) {
        self.parameters.push((name.to_owned(), value.to_string()));
    }

    /// Adds a figure and prints it at once, because the next one may take long. A figure without
    /// points is left out.
    pub fn add(&mut self, figure: Figure) {
        if figure.xs().is_empty() {
            return;
        }
        eprintln!("\n{}", figure.table());
        self.figures.push(figure);
    }

    /// Adds the claim of a goal with its value and a text on what was seen. Without a value the
    /// goal is listed as unmeasured.
    pub fn judge(&mut self, goal: Goal, found: Option<(f64, String)>) {
        // A side that carried nothing gives no quotient, or a cost of 0.
        let is_measured = |value: f64| value.is_finite() && value > 0.0;
        let Some((value, seen)) = found.filter(|(value, _)| is_measured(*value)) else {
            return self.unmeasured.push(goal.measure);
        };
        self.claims.push(Claim {
            measure: goal.measure,
            seen,
            value,
            bar: goal.bar,
            aim: goal.aim,
            at_most: goal.at_most,
            elsewhere: goal.elsewhere.to_owned(),
        });
    }

    /// True if nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.figures.is_empty()
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
        let markdown = self.markdown() + &self.claims_markdown();
        write(&directory.join(format!("{}.md", self.name)), &markdown)?;
        for figure in &self.figures {
            chart::draw(&directory.join(self.chart_name(figure)), figure)?;
        }
        Ok(())
    }

    /// Statements of papers on a figure, a line each.
    pub fn stated_of<'a>(&'a self, figure: &'a Figure) -> impl Iterator<Item = &'a String> {
        let stated = self.stated.iter();
        let own = stated.filter(|(id, _)| *id == figure.id);
        own.map(|(_, line)| line)
    }

    pub fn chart_name(&self, figure: &Figure) -> String {
        format!("{}-{}.svg", self.name, figure.id)
    }

    /// Machine, parameters, notes, and points with two groups of runs, a line each.
    pub fn circumstances(&self) -> Vec<String> {
        let parameters = self.parameters.iter();
        let parameters = parameters.map(|(name, value)| format!("{name}: {value}"));
        let notes = self.notes.iter().map(|note| format!("Note: {note}"));
        std::iter::once(self.machine.to_string())
            .chain(parameters)
            .chain(notes)
            .chain(self.figures.iter().flat_map(Figure::split_points))
            .collect()
    }

    /// The claims as a Markdown table; empty without claims.
    pub fn claims_markdown(&self) -> String {
        let claims: Vec<&Claim> = self.claims.iter().collect();
        match claims.is_empty() {
            true => String::new(),
            false => format!(
                "\n### What they must show\n\n{}",
                claims_grid(&claims).markdown()
            ),
        }
    }

    /// A section for the page.
    pub fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n{}\n\n", self.name, self.rule);
        for line in self.circumstances() {
            let _ = writeln!(text, "* {line}");
        }
        for figure in &self.figures {
            let chart = self.chart_name(figure);
            let _ = write!(text, "\n{}\n![{}]({chart})\n", figure.table(), figure.title);
            for line in self.stated_of(figure) {
                let _ = write!(text, "\nPublished: {line}.\n");
            }
        }
        text
    }
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

impl Figure {
    /// The median of a point, if it was measured.
    pub fn median(&self, system: &str, x: f64) -> Option<f64> {
        let series = self.series.iter().find(|series| series.system == system)?;
        let point = series.points.iter().find(|point| point.x == x)?;
        Some(point.y.median)
    }

    /// Points whose runs fall into two groups, a line each: a median says little of them.
    fn split_points(&self) -> Vec<String> {
        let points = self.series.iter().flat_map(|series| {
            let points = series.points.iter();
            points.map(move |point| (&series.system, point))
        });
        let lines = points.filter_map(|(system, point)| {
            let levels = point.y.levels?;
            let (id, x) = (&self.id, number(point.x));
            Some(format!("Note: {id}: {system} at {x}: {levels}"))
        });
        lines.collect()
    }

    /// All x that any system has, in order.
    pub fn xs(&self) -> Vec<f64> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let mut xs: Vec<f64> = points.map(|point| point.x).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        xs
    }

    /// Heading and table: medians with the least and the largest value, and each system's ratio to
    /// the first.
    pub fn table(&self) -> String {
        let caption = self.caption();
        format!(
            "### {}\n\n{caption}\n\n{}",
            self.title,
            self.grid().markdown()
        )
    }

    /// The meaning of the table's numbers.
    pub fn caption(&self) -> String {
        let points = self.series.iter().flat_map(|series| &series.points);
        let runs = points.map(|point| point.y.values.len()).max().unwrap_or(0);
        let mut text = self.y.clone();
        if let [x] = self.xs()[..]
            && self.compares
        {
            text = format!("{}: {}; {text}", self.x, number(x));
        }
        if runs > 1 {
            let _ = write!(text, "; median of {runs} runs (least to largest)");
        }
        let first = self.series.first().filter(|first| !first.points.is_empty());
        if let Some(first) = first.filter(|_| self.compares && self.series.len() > 1) {
            let _ = write!(text, "; × {}", first.system);
        }
        if self.compares {
            text.push_str(match self.falls {
                true => "; less is better",
                false => "; more is better",
            });
        }
        text
    }

    /// The figure as a table. With one x each system is a row, otherwise a column.
    pub fn grid(&self) -> Grid {
        let first = |x| self.series.first().and_then(|series| at(series, x));
        let cell_of = |index: usize, x: f64| {
            let compared = first(x).filter(|_| index > 0 && self.compares);
            at(&self.series[index], x).map(|point| cell(point, compared))
        };
        if let [x] = self.xs()[..] {
            let rows = (0..self.series.len()).map(|index| {
                let cell = cell_of(index, x).unwrap_or_else(|| "–".to_owned());
                vec![self.series[index].system.clone(), cell]
            });
            return Grid {
                head: vec![String::new(), self.y.clone()],
                rows: rows.collect(),
            };
        }
        let mut head = vec![self.x.clone()];
        head.extend(self.series.iter().map(|series| series.system.clone()));
        let row = |x: f64| {
            let cells = (0..self.series.len()).map(|index| cell_of(index, x));
            let cells = cells.map(|cell| cell.unwrap_or_else(|| "–".to_owned()));
            std::iter::once(number(x)).chain(cells).collect()
        };
        Grid {
            head,
            rows: self.xs().into_iter().map(row).collect(),
        }
    }
}

/// A table: its head and its rows.
pub struct Grid {
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Grid {
    pub fn markdown(&self) -> String {
        let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = row(&self.head);
        text.push_str(&format!("|{}\n", "---|".repeat(self.head.len())));
        text.extend(self.rows.iter().map(|cells| row(cells)));
        text
    }
}

/// The claims with their results, as a table.
pub fn claims_grid(claims: &[&Claim]) -> Grid {
    let head = [
        "measure",
        "seen",
        "value",
        "bar",
        "aim",
        "reached",
        "elsewhere",
    ];
    let rows = claims.iter().map(|claim| {
        let sign = if claim.at_most { "≤ " } else { "≥ " };
        vec![
            claim.measure.clone(),
            claim.seen.clone(),
            number(claim.value),
            format!("{sign}{}", number(claim.bar)),
            format!("{sign}{}", number(claim.aim)),
            claim.verdict().to_owned(),
            claim.elsewhere.clone(),
        ]
    });
    Grid {
        head: head.map(str::to_owned).to_vec(),
        rows: rows.collect(),
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
        let levels = point.y.levels.map(|levels| format!("; {levels}"));
        let levels = levels.unwrap_or_default();
        let _ = write!(text, " ({} to {}{levels})", number(*min), number(*max));
    }
    if let Some(first) = first.filter(|first| first.y.median > 0.0) {
        let _ = write!(text, " × {:.2}", median / first.y.median);
    }
    text
}

/// A number with as many digits as mean something, and commas between thousands.
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
    fn runs_in_two_groups_are_told_in_the_table_and_beside_it() {
        let values = [870.0, 1_200.0, 872.0, 1_210.0, 874.0, 1_205.0, 871.0];
        let mut outcome = Outcome::new("message", "");
        outcome.add(Figure {
            id: "7a".to_owned(),
            title: "Rate".to_owned(),
            x: "connections".to_owned(),
            y: "per second".to_owned(),
            falls: false,
            compares: true,
            series: vec![Series {
                system: "ours".to_owned(),
                points: vec![Point {
                    x: 64.0,
                    y: Spread::of(values),
                }],
            }],
        });
        let text = outcome.markdown();
        let groups = "two groups: 4 runs at 872, 3 at 1,205";
        assert!(
            text.contains(&format!("874 (870 to 1,210; {groups})")),
            "{text}"
        );
        assert!(
            text.contains(&format!("Note: 7a: ours at 64: {groups}")),
            "{text}"
        );
        let json = serde_json::json!(outcome);
        let levels = &json["figures"][0]["series"][0]["points"][0]["y"]["levels"];
        assert_eq!(levels["upper"]["runs"], 3, "{levels}");
    }

    #[test]
    fn what_costs_nothing_was_not_measured() {
        let mut outcome = Outcome::new("scale", "");
        for value in [0.0, f64::NAN, f64::INFINITY] {
            let goal = Goal::at_most("cost", (1.5, 1.0));
            outcome.judge(goal, Some((value, String::new())));
        }
        assert!(outcome.claims.is_empty());
        assert_eq!(outcome.unmeasured, ["cost"; 3]);
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
            elsewhere: String::new(),
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
