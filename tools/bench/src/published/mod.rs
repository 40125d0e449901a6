//! Publications of three papers: their figures and tables ([`CONTENTS`]), and the values that their
//! text states ([`VALUES`]). Each benchmark that redraws a figure shows them below it.
//!
//! A value stands here only with the place where it is stated and how it became known. No value
//! was read off a drawn curve. A figure without a value says so.

mod contents;
mod values;

use clap::ValueEnum;

pub use contents::CONTENTS;
pub use values::VALUES;

use crate::frame::outcome::number;
use crate::frame::{Figure, Outcome};

/// A paper whose mechanisms Millstream builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Paper {
    /// Jeong et al., mTCP, NSDI 2014
    Mtcp,
    /// Honda et al., MultiStack, CCR 2014
    Multistack,
    /// Menon and Zwaenepoel, Optimizing TCP Receive Performance, USENIX ATC 2008
    Receive,
}

impl Paper {
    pub const ALL: [Self; 3] = [Self::Mtcp, Self::Multistack, Self::Receive];

    /// Authors, title and place.
    pub fn title(self) -> &'static str {
        match self {
            Self::Mtcp => {
                "Jeong et al., \"mTCP: a Highly Scalable User-level TCP Stack for Multicore Systems\", NSDI 2014"
            }
            Self::Multistack => {
                "Honda et al., \"Rekindling Network Protocol Innovation with User-Level Stacks\" (MultiStack), CCR 44(2), 2014"
            }
            Self::Receive => {
                "Menon and Zwaenepoel, \"Optimizing TCP Receive Performance\", USENIX ATC 2008"
            }
        }
    }

    /// Short name of the paper, as text refers to it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mtcp => "mTCP",
            Self::Multistack => "MultiStack",
            Self::Receive => "ATC'08",
        }
    }
}

/// A benchmark that redraws figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Benchmark {
    Message,
    Bulk,
    Mux,
}

impl Benchmark {
    pub const ALL: [Self; 3] = [Self::Message, Self::Bulk, Self::Mux];

    /// The command's name, and that of its outcome.
    pub fn name(self) -> &'static str {
        match self {
            Self::Message => "message",
            Self::Bulk => "bulk",
            Self::Mux => "mux",
        }
    }
}

/// Figures or tables of a paper that are shown together, or not at all.
pub struct Row {
    pub paper: Paper,
    /// Names as the paper numbers them; `text: SUBJECT` for what only its text states.
    pub names: &'static [&'static str],
    /// Their subject.
    pub about: &'static str,
    pub shown: Shown,
}

/// The way in which a row is shown here, or the reason why it is not.
pub enum Shown {
    /// Shown by figures of these benchmarks, with how they differ from the paper's.
    Here {
        drawn: &'static [Drawn],
        differs: &'static str,
    },
    /// Not shown, for this reason.
    Not(&'static str),
}

/// Figures that come of one `--figure` of a benchmark.
pub struct Drawn {
    pub benchmark: Benchmark,
    pub figure: &'static str,
    /// The figures' ids in the outcome.
    pub ids: &'static [&'static str],
}

impl Row {
    /// All names, as a heading.
    pub fn heading(&self) -> String {
        format!("{}: {}", self.names.join(", "), self.about)
    }

    /// The figures that show the row; none if it is not shown.
    pub fn drawn(&self) -> &'static [Drawn] {
        match self.shown {
            Shown::Here { drawn, .. } => drawn,
            Shown::Not(_) => &[],
        }
    }

    /// The values that the paper states for the row.
    pub fn values(&self) -> impl Iterator<Item = &'static Value> {
        let of_row =
            |value: &&Value| value.paper == self.paper && self.names.contains(&value.figure);
        VALUES.iter().filter(of_row)
    }
}

/// A published value.
pub struct Value {
    pub paper: Paper,
    /// One name of its [`Row`].
    pub figure: &'static str,
    /// The system or the part that it is of.
    pub series: &'static str,
    pub points: &'static [Stated],
    pub unit: &'static str,
    /// The place in the paper that states the value.
    pub place: &'static str,
    pub source: Source,
    /// Readings of the same quantity here; empty if it is not measured here.
    pub here: &'static [Here],
}

/// One point of a series.
pub struct Stated {
    /// The place on the figure's x axis, or the circumstances.
    pub at: &'static str,
    pub value: f64,
}

/// The way by which a published value became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The paper's text was read.
    Text,
    /// The authors state it of the paper elsewhere: on their page about it, or in a talk.
    Authors,
    /// The value is quoted by another source; the paper itself was not read.
    Quoted,
}

impl Source {
    pub fn words(self) -> &'static str {
        match self {
            Self::Text => "the paper's text",
            Self::Authors => "the authors' page or talk",
            Self::Quoted => "quotations; the paper's page was not read",
        }
    }
}

/// A quantity of an outcome: a value of one series, or the factor by which it is better than
/// another.
pub struct Here {
    pub benchmark: Benchmark,
    pub figure: &'static str,
    pub series: &'static str,
    pub over: Option<&'static str>,
    pub at: At,
    /// Factor from the figure's unit to the published one; not used for a quotient of series.
    pub scale: f64,
}

/// Points of a series that are read: that of the least x, that of the greatest x, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Least,
    Greatest,
    All,
}

impl Here {
    /// The least and the greatest value of the points that are read; none if none was measured.
    pub fn read(&self, outcome: &Outcome) -> Option<(f64, f64)> {
        let is_named = |figure: &&Figure| figure.id == self.figure;
        let figure = outcome.figures.iter().find(is_named)?;
        let xs = figure.xs();
        let values = xs.iter().filter_map(|&x| self.value(figure, x));
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let chosen = match self.at {
            At::Least => values.get(..1)?,
            At::Greatest => values.last_chunk::<1>()?,
            At::All if values.is_empty() => return None,
            At::All => &values,
        };
        let least = chosen.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = chosen.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some((least, greatest))
    }

    fn value(&self, figure: &Figure, x: f64) -> Option<f64> {
        let own = figure.median(self.series, x)?;
        let Some(over) = self.over else {
            return Some(own * self.scale);
        };
        let other = figure.median(over, x)?;
        Some(if figure.falls {
            other / own
        } else {
            own / other
        })
    }

    /// The name of the quantity.
    pub fn words(&self) -> String {
        match self.over {
            None => self.series.to_owned(),
            Some(over) => format!("{} over {over}", self.series),
        }
    }
}

/// Statements of the papers on the figures of an outcome: a line each, with the figure's name.
pub fn lines(outcome: &Outcome) -> Vec<(String, String)> {
    let is_there = |id: &str| outcome.figures.iter().any(|figure| figure.id == id);
    let of_row = |row: &'static Row| {
        let drawn = row.drawn().iter();
        let own = drawn.filter(|drawn| drawn.benchmark.name() == outcome.name);
        let id = own.flat_map(|drawn| drawn.ids).find(|id| is_there(id))?;
        Some((id, row))
    };
    let rows = CONTENTS.iter().filter_map(of_row);
    let lines = rows.flat_map(|(id, row)| {
        let values = row.values();
        values.map(move |value| ((*id).to_owned(), value.line()))
    });
    lines.collect()
}

impl Value {
    /// All points with their unit.
    pub fn points(&self) -> String {
        let points = self.points.iter();
        let points: Vec<String> = points
            .map(|stated| format!("{} {} ({})", digits(stated.value), self.unit, stated.at))
            .collect();
        points.join(", ")
    }

    /// The value in one line, with where it is from.
    fn line(&self) -> String {
        format!(
            "{}, {}: {}: {}; {}, by {}",
            self.paper.name(),
            self.figure,
            self.series,
            self.points(),
            self.place,
            self.source.words()
        )
    }
}

/// The digits that the paper gives, with commas between thousands.
fn digits(value: f64) -> String {
    match value.fract() == 0.0 {
        true => number(value),
        false => value.to_string(),
    }
}

#[cfg(test)]
mod tests;
