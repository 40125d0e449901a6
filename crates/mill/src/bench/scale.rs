//! `mill bench scale`: what a transaction costs beside idle connections, what those hold, and what several contexts on one core cost.

use clap::Args;
use measure::{Plan, Seen};

use super::frame::{Claim, Figure, Outcome, Point, Repeats, Series, Spread, turns};
use super::message::System;
use super::message::sides::{self, Run};
use crate::failure::Failure;

/// Beyond this the kernel's descriptors and the machine's memory are what is measured.
const KERNEL_IDLE_MAX: usize = 100_000;
/// Connections that exchange, over all contexts.
const BUSY: usize = 512;

/// Options of `mill bench scale`.
#[derive(Args, Clone, Debug)]
pub struct ScaleOptions {
    /// Idle connections beside those that exchange
    #[arg(
        long,
        value_name = "NUMBERS",
        value_delimiter = ',',
        default_value = "1000,10000,100000,1000000"
    )]
    pub idle: Vec<usize>,
    /// Stacks of each side, all on one core
    #[arg(
        long,
        value_name = "NUMBERS",
        value_delimiter = ',',
        default_value = "1,2,4,8"
    )]
    pub contexts: Vec<usize>,
    #[command(flatten)]
    pub repeats: Repeats,
}

/// What a figure reads off a run.
type Reading = fn(&Seen) -> f64;
/// Runs of each system by x.
type Columns = Vec<(System, Vec<(f64, Vec<Seen>)>)>;

/// Measures, prints and writes.
pub fn scale(options: &ScaleOptions) -> Result<(), Failure> {
    let mut options = options.clone();
    options.repeats = options.repeats.settled();
    if options.repeats.quick {
        options.idle = vec![1_000];
        options.contexts = vec![1, 2];
    }
    let mut outcome = Outcome::new(
        "scale",
        "64-byte request and response, one per connection, the server closes first. Idle connections come from a client address for each 25,000. Contexts share nothing, have a \
         thread each, and take turns on the server's core and on the client's, without spinning.",
    );
    options.repeats.describe(&mut outcome);
    idle(&options, &mut outcome);
    contexts(&options, &mut outcome);
    claims(&options, &mut outcome);
    options.repeats.deliver(&mut outcome)
}

fn run_of(options: &ScaleOptions, connections: usize, idle: usize, contexts: usize) -> Run {
    Run {
        plan: Plan {
            connections,
            idle,
            seconds: options.repeats.seconds,
            warm_up: options.repeats.warm_up,
            ..Plan::default()
        },
        server_core: options.repeats.server_core,
        client_core: options.repeats.client_core,
        contexts,
        spin_us: Some(0),
    }
}

fn idle(options: &ScaleOptions, outcome: &mut Outcome) {
    let mut columns = vec![(System::Kernel, Vec::new()), (System::Inline, Vec::new())];
    for &count in &options.idle {
        let run = run_of(options, 64, count, 1);
        let systems: &[System] = match count <= KERNEL_IDLE_MAX {
            true => &[System::Kernel, System::Inline],
            false => &[System::Inline],
        };
        measure(options, &run, systems, count, &mut columns, outcome);
    }
    let x = "idle connections";
    let figures: [(&str, &str, &str, bool, Reading); 4] = [
        (
            "idle",
            "Transactions beside idle connections, 64 at once",
            "transactions per second",
            false,
            |seen| seen.per_second,
        ),
        (
            "idle-server",
            "Server's CPU time for a transaction beside idle connections",
            "µs",
            true,
            |seen| seen.server_cpu_us,
        ),
        (
            "idle-growth",
            "What the server's process comes to hold for each idle connection",
            "bytes",
            true,
            |seen| seen.idle_bytes,
        ),
        (
            "idle-held",
            "What the server's process holds in all",
            "MB",
            true,
            |seen| seen.held_bytes / 1e6,
        ),
    ];
    for (id, title, y, falls, reading) in figures {
        outcome.add(figure((id, title, x, y, falls), &columns, reading));
    }
}

fn contexts(options: &ScaleOptions, outcome: &mut Outcome) {
    let mut columns = vec![
        (System::Inline, Vec::new()),
        (System::Dedicated, Vec::new()),
    ];
    for &count in &options.contexts {
        let run = run_of(options, BUSY, 0, count);
        measure(
            options,
            &run,
            &[System::Inline, System::Dedicated],
            count,
            &mut columns,
            outcome,
        );
    }
    let x = "contexts of each side";
    let figures: [(&str, &str, &str, bool, Reading); 2] = [
        (
            "contexts",
            "Transactions with several contexts on a core, 512 at once in all",
            "transactions per second",
            false,
            |seen| seen.per_second,
        ),
        (
            "contexts-cpu",
            "CPU time of both processes for a transaction, several contexts on a core",
            "µs",
            true,
            |seen| seen.server_cpu_us + seen.client_cpu_us,
        ),
    ];
    for (id, title, y, falls, reading) in figures {
        outcome.add(figure((id, title, x, y, falls), &columns, reading));
    }
}

fn measure(
    options: &ScaleOptions,
    run: &Run,
    systems: &[System],
    x: usize,
    columns: &mut Columns,
    outcome: &mut Outcome,
) {
    let mut notes = Vec::new();
    let found = turns::alternate(options.repeats.runs, systems, &mut notes, |&system| {
        sides::run(system, run)
    });
    for (system, runs) in systems.iter().zip(found) {
        let column = columns.iter_mut().find(|column| column.0 == *system);
        if let Some((_, column)) = column
            && !runs.is_empty()
        {
            column.push((x as f64, runs));
        }
    }
    outcome
        .notes
        .extend(notes.into_iter().map(|note| format!("at {x}: {note}")));
}

fn figure(
    (id, title, x, y, falls): (&str, &str, &str, &str, bool),
    columns: &Columns,
    reading: Reading,
) -> Figure {
    let series = columns.iter().map(|(system, column)| Series {
        system: system.name().to_owned(),
        points: column
            .iter()
            .map(|(x, runs)| Point {
                x: *x,
                y: Spread::of(runs.iter().map(reading)),
            })
            .collect(),
    });
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        x: x.to_owned(),
        y: y.to_owned(),
        falls,
        compares: true,
        series: series.filter(|series| !series.points.is_empty()).collect(),
    }
}

/// The rows of issue 4's table that are about scale.
fn claims(options: &ScaleOptions, outcome: &mut Outcome) {
    let ours = System::Inline.name();
    let ends = |values: &[usize]| {
        let least = values.iter().min().copied().unwrap_or(0) as f64;
        (least, values.iter().max().copied().unwrap_or(0) as f64)
    };
    let (few, many) = ends(&options.idle);
    let (one, all) = ends(&options.contexts);
    let quotient = |figure: &str, (low, high): (f64, f64)| {
        let low = outcome.median(figure, ours, low)?;
        let high = outcome.median(figure, ours, high)?;
        Some((high / low, format!("{high:.2} against {low:.2} µs")))
    };
    let cost = quotient("idle-server", (few, many)).map(|(value, seen)| Claim {
        measure: format!(
            "server's CPU for a transaction beside {many} idle connections against {few}"
        ),
        seen,
        value,
        bar: 1.3,
        aim: 1.1,
        at_most: true,
    });
    let shared = quotient("contexts-cpu", (one, all)).map(|(value, seen)| Claim {
        measure: format!("CPU for a transaction with {all} contexts against {one}"),
        seen,
        value,
        bar: 1.15,
        aim: 1.0,
        at_most: true,
    });
    let held = outcome
        .median("idle-held", ours, many)
        .map(|megabytes| Claim {
            measure: "bytes per idle connection, all that the server's process holds".to_owned(),
            seen: format!("{megabytes:.0} MB for {many} connections"),
            value: megabytes * 1e6 / many,
            bar: 1024.0,
            aim: 512.0,
            at_most: true,
        });
    for claim in [cost, held, shared] {
        outcome.claim(claim);
    }
}
