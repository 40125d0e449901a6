//! Further figures of the mTCP paper's evaluation: the parts of a transaction (table 2), shares of
//! CPU time (figures 1 and 2), and servers on one core and on two (figures 7a and 8). The first
//! also shows the sizes of the server's batches.
//!
//! These studies read more off a run than one number, so they draw their figures themselves.

use crate::frame::outcome::number;
use crate::frame::turns::{self, Case, Column};
use crate::frame::{Figure, Outcome, Point, Repeats, Series, Spread, machine};
use crate::measure::{Batches, Exchange, Plan, Seen, Times};
use crate::message::System;
use crate::message::sides::{self, Run};
use crate::profile::{SECONDS_MIN, Sampler};

/// Connections at once of table 2: in a full measurement, and in a quick one.
const CROWD: (usize, usize) = (8_192, 1_024);
/// Connections at once of the other studies, likewise.
const CONNECTIONS: (usize, usize) = (1_024, 64);
/// Microseconds that a stack looks for work before it sleeps: looking would be sampled as work.
const SPIN_US: u64 = 0;

/// A study that draws its own figures.
pub(super) struct Own {
    pub name: &'static str,
    pub measure: fn(&Repeats, &mut Outcome),
}

/// All studies that draw their own figures.
pub(super) const OWN: [Own; 4] = [
    Own {
        name: "parts",
        measure: parts,
    },
    Own {
        name: "cpu",
        measure: cpu,
    },
    Own {
        name: "7a-cores",
        measure: |repeats, outcome| cores("7a-cores", Exchange::Messages, repeats, outcome),
    },
    Own {
        name: "8-cores",
        measure: |repeats, outcome| cores("8-cores", Exchange::Reset, repeats, outcome),
    },
];

type Columns = Vec<Column<System, Seen>>;

fn chosen((whole, quick): (usize, usize), repeats: &Repeats) -> usize {
    if repeats.quick { quick } else { whole }
}

/// The parts of a transaction, and the sizes of the server's batches in the same runs.
fn parts(repeats: &Repeats, outcome: &mut Outcome) {
    let systems = [System::Kernel, System::Inline, System::Dedicated];
    let connections = chosen(CROWD, repeats);
    let x = connections as f64;
    let cases = systems.map(|system| Case { system, x });
    let rounds = ("parts", repeats.runs);
    let columns = turns::columns(rounds, &systems, &cases, outcome, |case| {
        let plan = Plan {
            connections,
            parts: true,
            ..Plan::default()
        };
        sides::run(case.system, &Run::of(repeats, plan))
    });
    for (part, title) in [
        ("connect", "Connect time"),
        (
            "processing",
            "Processing time, from the open connection to the server's close",
        ),
        ("total", "Total time"),
    ] {
        let title = format!("{title}, {} at once (table 2)", number(x));
        outcome.add(distribution(part, &title, &columns));
        outcome.add(moments(part, &title, x, &columns));
    }
    for name in ["events", "jobs"] {
        let title = format!("Batches of {name}, {} connections at once", number(x));
        outcome.add(batches(name, &title, &columns));
        outcome.add(batch_means(name, &title, x, &columns));
    }
}

/// The values that a reading gives, by x.
type ByX = Vec<(f64, Vec<f64>)>;
/// A moment of a distribution, and its name.
type Moment = (&'static str, fn(&Times) -> f64);

/// A figure of the values of each system; systems without one are left out.
fn figure_of(
    (id, title): (String, String),
    (x, y): (&str, &str),
    columns: impl Iterator<Item = (String, ByX)>,
) -> Figure {
    let points = |values: ByX| {
        let points = values.into_iter().map(|(x, values)| Point {
            x,
            y: Spread::of(values),
        });
        points.collect()
    };
    let series = columns.map(|(system, values)| Series {
        system,
        points: points(values),
    });
    Figure {
        id,
        title,
        x: x.to_owned(),
        y: y.to_owned(),
        falls: true,
        compares: true,
        series: series.filter(|series| !series.points.is_empty()).collect(),
    }
}

/// Sorts the values of several runs by their x.
fn by_x(runs: impl Iterator<Item = Vec<(f64, f64)>>) -> ByX {
    let mut found: ByX = Vec::new();
    for (x, value) in runs.flatten() {
        match found.iter_mut().find(|(other, _)| *other == x) {
            Some((_, values)) => values.push(value),
            None => found.push((x, vec![value])),
        }
    }
    found.sort_by(|one, other| one.0.total_cmp(&other.0));
    found
}

/// All runs of a column.
fn runs(column: &Column<System, Seen>) -> impl Iterator<Item = &Seen> {
    column.1.iter().flat_map(|(_, runs)| runs)
}

fn times_of<'a>(seen: &'a Seen, part: &str) -> Option<&'a Times> {
    let found = seen.parts.iter().find(|(name, _)| name == part);
    found.map(|(_, times)| times)
}

fn distribution(part: &str, title: &str, columns: &Columns) -> Figure {
    let columns = columns.iter().map(|column| {
        let times = runs(column).filter_map(|seen| times_of(seen, part));
        let values = by_x(times.map(|times| times.percentiles_us.clone()));
        (column.0.name().to_owned(), values)
    });
    let texts = (format!("parts-{part}"), title.to_owned());
    figure_of(
        texts,
        ("percentile (0: shortest, 100: longest)", "µs"),
        columns,
    )
}

/// Mean and standard deviation, as bars.
fn moments(part: &str, title: &str, x: f64, columns: &Columns) -> Figure {
    let rows: [Moment; 2] = [
        ("mean", |times| times.mean_us),
        ("standard deviation", |times| times.deviation_us),
    ];
    let columns = columns.iter().flat_map(|column| {
        rows.iter().map(move |(name, reading)| {
            let times = runs(column).filter_map(|seen| times_of(seen, part));
            let values = by_x(times.map(|times| vec![(x, reading(times))]));
            (format!("{}: {name}", column.0.name()), values)
        })
    });
    let texts = (
        format!("parts-{part}-mean"),
        format!("{title}, mean and deviation"),
    );
    let mut figure = figure_of(texts, ("connections at once", "µs"), columns);
    figure.compares = false;
    figure
}

fn batches_of<'a>(seen: &'a Seen, name: &str) -> Option<&'a Batches> {
    seen.batches.iter().find(|batches| batches.name == name)
}

fn batches(name: &str, title: &str, columns: &Columns) -> Figure {
    let columns = columns.iter().map(|column| {
        let found = runs(column).filter_map(|seen| batches_of(seen, name));
        (column.0.name().to_owned(), by_x(found.map(Batches::shares)))
    });
    let texts = (format!("batch-{name}"), title.to_owned());
    let x = format!("{name} of a turn, at most");
    let y = "percent of the turns that had any";
    let mut figure = figure_of(texts, (&x, y), columns);
    figure.compares = false;
    figure
}

fn batch_means(name: &str, title: &str, x: f64, columns: &Columns) -> Figure {
    let columns = columns.iter().map(|column| {
        let found = runs(column).filter_map(|seen| batches_of(seen, name)?.mean());
        let values = by_x(found.map(|mean| vec![(x, mean)]));
        (column.0.name().to_owned(), values)
    });
    let texts = (format!("batch-{name}-mean"), format!("{title}, mean"));
    let y = format!("{name} of a turn that had any");
    let mut figure = figure_of(texts, ("connections at once", &y), columns);
    figure.falls = false;
    figure
}

/// Figures 1 and 2: shares of both processes' CPU time by kind of work, and transactions for a
/// million cycles.
fn cpu(repeats: &Repeats, outcome: &mut Outcome) {
    if let Err(cause) = Sampler::is_there() {
        return outcome.notes.push(format!("cpu: {cause}"));
    }
    let systems = [System::Kernel, System::Inline, System::Dedicated];
    let connections = chosen(CONNECTIONS, repeats);
    let x = connections as f64;
    let cases = systems.map(|system| Case { system, x });
    let rounds = ("cpu", repeats.runs);
    let columns = turns::columns(rounds, &systems, &cases, outcome, |case| {
        let plan = Plan {
            connections,
            ..Plan::default()
        };
        let mut run = Run {
            spin_us: Some(SPIN_US),
            is_sampled: true,
            ..Run::of(repeats, plan)
        };
        run.plan.seconds = run.plan.seconds.max(SECONDS_MIN);
        sides::run(case.system, &run)
    });
    for (index, column) in columns.iter().enumerate() {
        outcome.add(shares(index, x, column));
    }
    type Reading = fn(&Seen) -> f64;
    let rows: [(&str, &str, Reading); 2] = [
        ("cycles", "all cycles of both ends", |_| 1.0),
        ("cycles-stack", "cycles without the applications'", |seen| {
            1.0 - share_of(seen, "application")
        }),
    ];
    for (id, of, part) in rows {
        let columns = columns.iter().map(|column| {
            let values = runs(column).map(|seen| vec![(x, per_million_cycles(seen, part(seen)))]);
            (column.0.name().to_owned(), by_x(values))
        });
        let title = format!("Transactions for a million cycles, {of} (fig. 2)");
        let y = "transactions per million cycles (CPU time at the processor's nominal rate)";
        let mut figure = figure_of((id.to_owned(), title), ("connections at once", y), columns);
        figure.falls = false;
        outcome.add(figure);
    }
}

/// Share of one kind of work in all samples.
fn share_of(seen: &Seen, name: &str) -> f64 {
    let all: u64 = seen.samples.iter().map(|(_, count)| count).sum();
    let found = seen.samples.iter().find(|(other, _)| other == name);
    found.map_or(0.0, |(_, count)| *count as f64) / all.max(1) as f64
}

fn per_million_cycles(seen: &Seen, part: f64) -> f64 {
    let cycles = (seen.server_cpu_us + seen.client_cpu_us) * 1e3 * machine::gigahertz();
    1e6 / (cycles * part)
}

/// A figure of one system's CPU time by kind of work.
fn shares(index: usize, x: f64, column: &Column<System, Seen>) -> Figure {
    let first = runs(column).next();
    let names = first.map_or(Vec::new(), |seen| seen.samples.clone());
    let columns = names.into_iter().map(|(name, _)| {
        let values = runs(column).map(|seen| vec![(x, share_of(seen, &name) * 100.0)]);
        let values = by_x(values);
        (name, values)
    });
    let title = format!(
        "Where the CPU time goes: {}, both ends, {} connections (fig. 1 and 2)",
        column.0.name(),
        number(x)
    );
    let texts = (format!("cpu-{index}"), title);
    let y = "percent of the samples of both processes";
    let mut figure = figure_of(texts, ("connections at once", y), columns);
    figure.compares = false;
    figure
}

/// The kernel's server with one listener, with `SO_REUSEPORT` and with io_uring, and ours, on one
/// core and on two.
fn cores(name: &'static str, exchange: Exchange, repeats: &Repeats, outcome: &mut Outcome) {
    let systems = [
        System::KernelOne,
        System::Kernel,
        System::KernelUring,
        System::Inline,
    ];
    let at = |x: f64| systems.map(|system| Case { system, x });
    let cases: Vec<Case<System>> = [1.0, 2.0].into_iter().flat_map(at).collect();
    let connections = chosen(CONNECTIONS, repeats);
    let columns = turns::columns((name, repeats.runs), &systems, &cases, outcome, |case| {
        let plan = Plan {
            connections,
            exchange,
            ..Plan::default()
        };
        let server_cores = case.x as usize;
        let is_ours = turns::System::is_ours(case.system);
        let run = Run {
            server_cores,
            contexts: if is_ours { server_cores } else { 1 },
            ..Run::of(repeats, plan)
        };
        sides::run(case.system, &run)
    });
    let title = match exchange {
        Exchange::Messages => "64-byte message, one per connection",
        Exchange::Reset => "Accept, then reset",
    };
    let title = format!(
        "{title}, {} at once, by the server's cores",
        number(connections as f64)
    );
    type Reading = fn(&Seen) -> f64;
    let rows: [(&str, &str, bool, Reading); 2] = [
        ("", "transactions per second", false, |seen| seen.per_second),
        ("-cpu", "µs of both ends' CPU time for each", true, |seen| {
            seen.server_cpu_us + seen.client_cpu_us
        }),
    ];
    for (end, y, falls, reading) in rows {
        let columns = columns.iter().map(|column| {
            let points = column.1.iter();
            let values =
                points.map(|(x, runs)| (*x, runs.iter().map(reading).collect::<Vec<f64>>()));
            (column.0.name().to_owned(), values.collect())
        });
        let texts = (format!("{name}{end}"), title.clone());
        let x = "cores of the server (the second is the client's, too)";
        let mut figure = figure_of(texts, (x, y), columns);
        figure.falls = falls;
        outcome.add(figure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(samples: [u64; 2], cpu_us: f64) -> Seen {
        let [kernel, application] = samples;
        Seen {
            samples: vec![
                ("kernel without TCP/IP".to_owned(), kernel),
                ("application".to_owned(), application),
            ],
            server_cpu_us: cpu_us,
            ..Seen::default()
        }
    }

    #[test]
    fn shares_are_of_all_samples_and_of_none_nothing() {
        assert_eq!(share_of(&seen([3, 1], 1.0), "application"), 0.25);
        assert_eq!(share_of(&Seen::default(), "application"), 0.0);
    }

    #[test]
    fn fewer_cycles_make_more_transactions_for_a_million() {
        let whole = per_million_cycles(&seen([3, 1], 2.0), 1.0);
        let stack = per_million_cycles(&seen([3, 1], 2.0), 0.5);
        assert_eq!(stack, 2.0 * whole);
    }

    #[test]
    fn values_of_runs_come_together_by_x() {
        let runs = [vec![(2.0, 5.0), (1.0, 3.0)], vec![(1.0, 4.0)]];
        let found = by_x(runs.into_iter());
        assert_eq!(found, [(1.0, vec![3.0, 4.0]), (2.0, vec![5.0])]);
    }
}
