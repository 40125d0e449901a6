//! `cargo xtask bench scale`: what a transaction costs beside idle connections, what those hold,
//! what several contexts on one core cost, and what huge pages gain.

use crate::measure::{Plan, Seen};
use clap::Args;
use millstream::HugePages;
use std::fmt;

use super::frame::turns::{self, Case};
use super::frame::{Figure, Goal, Outcome, Repeats};
use super::message::System;
use super::message::sides::{self, Run};
use mill::failure::Failure;

/// Most idle connections with which the kernel is measured. With more, its descriptors and the
/// machine's memory would be what is measured.
const KERNEL_IDLE_MAX: usize = 100_000;
/// Connections that exchange: over all contexts, or for each.
const BUSY: usize = 512;

/// Numbers of connections for several contexts.
struct Load {
    /// Beginning of its figures' names.
    id: &'static str,
    title: &'static str,
    busy: fn(contexts: usize) -> usize,
}

/// The same number in all, of which each context has a share. Or the same number for each, as when
/// every core has a load of its own.
const LOADS: [Load; 2] = [
    Load {
        id: "contexts",
        title: "512 at once in all",
        busy: |_| BUSY,
    },
    Load {
        id: "contexts-each",
        title: "512 at once for each",
        busy: |contexts| contexts * BUSY,
    },
];

/// Connections that stay and exchange where pages are compared: their slots take more pages of 4
/// KiB than a TLB has entries.
const BUSY_MANY: usize = 32_768;

/// A stack whose tables lie on these pages.
#[derive(Clone, Copy, PartialEq)]
struct OnPages(HugePages);

impl fmt::Display for OnPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hugetlb = {}", self.0)
    }
}

impl turns::System for OnPages {
    fn is_ours(self) -> bool {
        true
    }
}

/// Options of `cargo xtask bench scale`.
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
    /// Compare nothing but these pages under both ends' tables, beside the most idle connections:
    /// off, auto, require. `auto` is transparent huge pages as long as no reserved ones are free
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    pub hugetlb: Vec<HugePages>,
    #[command(flatten)]
    pub repeats: Repeats,
}

/// The value that a figure reads off a run.
type Reading = fn(&Seen) -> f64;
type Column = turns::Column<System, Seen>;

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
        "64-byte request and response, one per connection, the server closes first. Idle connections come from a client address for each 25,000; what the kernel holds for its own is in no process and is not shown. Contexts share nothing, have a \
         thread each, and take turns on the server's core and on the client's, without spinning. Beside idle connections our stacks look for more work for 50 µs before they sleep, as by default; the kernel's programs sleep.",
    );
    options.repeats.describe(&mut outcome);
    if !options.hugetlb.is_empty() {
        pages(&options, &mut outcome);
        return options.repeats.deliver(&mut outcome);
    }
    idle(&options, &mut outcome);
    for load in &LOADS {
        contexts(&options, load, &mut outcome);
    }
    judge(&options, &mut outcome);
    options.repeats.deliver(&mut outcome)
}

/// A run in which stacks look for work for `spin_us` microseconds before they sleep, or their
/// default.
fn run_of(
    options: &ScaleOptions,
    connections: usize,
    (idle, contexts): (usize, usize),
    spin_us: Option<u64>,
) -> Run {
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
        spin_us,
        ..Run::default()
    }
}

fn idle(options: &ScaleOptions, outcome: &mut Outcome) {
    let systems = [System::Kernel, System::Inline];
    let is_measured =
        |case: &Case<System>| case.system != System::Kernel || case.x <= KERNEL_IDLE_MAX as f64;
    let cases: Vec<Case<System>> = cases(&systems, &options.idle).filter(is_measured).collect();
    let columns = turns::columns(
        ("idle", options.repeats.runs),
        &systems,
        &cases,
        outcome,
        |case| {
            // Stacks look for work as by default. A stack that sleeps pays for being woken, the
            // more the less work it then finds, and the cost of idle connections would be lost in
            // that.
            let run = run_of(options, 64, (case.x as usize, 1), None);
            sides::run(case.system, &run)
        },
    );
    let x = "idle connections";
    let figures: [(&str, &str, &str, bool, Reading); 5] = [
        (
            "idle",
            "Transactions beside idle connections, 64 at once",
            "transactions per second",
            false,
            |seen| seen.per_second,
        ),
        (
            "idle-server",
            "Server's CPU time for a transaction beside idle connections, without that in which it looked for more",
            "µs",
            true,
            |seen| seen.server_cpu_us - seen.server_looked_us,
        ),
        (
            "idle-server-all",
            "Server's CPU time for a transaction beside idle connections, with all of it",
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
    for (index, (id, title, y, falls, reading)) in figures.into_iter().enumerate() {
        // Memory that the kernel holds for its connections belongs to no process.
        let columns = if index < 3 {
            &columns[..]
        } else {
            &columns[1..]
        };
        outcome.add(figure((id, title, x, y, falls), columns, reading));
    }
}

/// Exchanges on many connections that stay, beside idle ones: each visit misses what the TLB does
/// not cover.
fn pages(options: &ScaleOptions, outcome: &mut Outcome) {
    let systems: Vec<OnPages> = options.hugetlb.iter().copied().map(OnPages).collect();
    let Some(idle) = options.idle.iter().copied().max() else {
        return;
    };
    let x = idle as f64;
    let cases: Vec<Case<OnPages>> = systems.iter().map(|&system| Case { system, x }).collect();
    let columns = turns::columns(
        ("pages", options.repeats.runs),
        &systems,
        &cases,
        outcome,
        |case| {
            let mut run = run_of(options, BUSY_MANY, (idle, 1), None);
            run.plan.messages = 0;
            run.hugetlb = case.system.0;
            sides::run(System::Inline, &run)
        },
    );
    let figures: [(&str, &str, &str, bool, Reading); 3] = [
        (
            "pages",
            "Exchanges by the pages under the tables, 32,768 connections beside idle ones",
            "exchanges per second",
            false,
            |seen| seen.per_second,
        ),
        (
            "pages-cpu",
            "CPU time of both processes for an exchange, by the pages",
            "µs",
            true,
            |seen| seen.server_cpu_us + seen.client_cpu_us,
        ),
        (
            "pages-held",
            "What the server's process holds in all, by the pages",
            "MB",
            true,
            |seen| seen.held_bytes / 1e6,
        ),
    ];
    for (id, title, y, falls, reading) in figures {
        outcome.add(Figure {
            id: id.to_owned(),
            title: title.to_owned(),
            x: "idle connections".to_owned(),
            y: y.to_owned(),
            falls,
            compares: true,
            series: turns::series(&columns, |seen, _| reading(seen)),
        });
    }
}

/// Every system at every x, the systems in turn at each: points at different x are compared.
fn cases<'a>(systems: &'a [System], xs: &'a [usize]) -> impl Iterator<Item = Case<System>> + 'a {
    let at = |x: usize| {
        let x = x as f64;
        systems.iter().map(move |&system| Case { system, x })
    };
    xs.iter().flat_map(move |&x| at(x))
}

fn contexts(options: &ScaleOptions, load: &Load, outcome: &mut Outcome) {
    let systems = [System::Inline, System::Dedicated];
    let cases: Vec<Case<System>> = cases(&systems, &options.contexts).collect();
    let columns = turns::columns(
        (load.id, options.repeats.runs),
        &systems,
        &cases,
        outcome,
        |case| {
            let count = case.x as usize;
            let run = run_of(options, (load.busy)(count), (0, count), Some(0));
            sides::run(case.system, &run)
        },
    );
    let x = "contexts of each side";
    let figures: [(&str, &str, &str, bool, Reading); 2] = [
        (
            "",
            "Transactions with several contexts on a core",
            "transactions per second",
            false,
            |seen| seen.per_second,
        ),
        (
            "-cpu",
            "CPU time of both processes for a transaction, several contexts on a core",
            "µs",
            true,
            |seen| seen.server_cpu_us + seen.client_cpu_us,
        ),
    ];
    for (end, what, y, falls, reading) in figures {
        let (id, title) = (load.id.to_owned() + end, format!("{what}, {}", load.title));
        outcome.add(figure((&id, &title, x, y, falls), &columns, reading));
    }
}

fn figure(
    (id, title, x, y, falls): (&str, &str, &str, &str, bool),
    columns: &[Column],
    reading: Reading,
) -> Figure {
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        x: x.to_owned(),
        y: y.to_owned(),
        falls,
        compares: true,
        series: turns::series(columns, |seen, _| reading(seen)),
    }
}

/// Judges the goals about scale.
fn judge(options: &ScaleOptions, outcome: &mut Outcome) {
    let ours = System::Inline.name();
    let least = |values: &[usize]| values.iter().min().copied().unwrap_or(0);
    let greatest = |values: &[usize]| values.iter().max().copied().unwrap_or(0);
    let quotient = |figure: &str, low: usize, high: usize| {
        let low = outcome.median(figure, ours, low as f64)?;
        let high = outcome.median(figure, ours, high as f64)?;
        Some((high / low, format!("{high:.2} against {low:.2} µs")))
    };
    let (few, many) = (least(&options.idle), greatest(&options.idle));
    // One number of connections has nothing to be compared with.
    let cost = (few < many)
        .then(|| quotient("idle-server-all", few, many))
        .flatten();
    let held = outcome.median("idle-held", ours, many as f64);
    let held = held.map(|megabytes| {
        let seen = format!("{megabytes:.0} MB for {many} connections");
        (megabytes * 1e6 / many as f64, seen)
    });
    // The worst number of contexts counts, not the last.
    let one = least(&options.contexts);
    let more = || options.contexts.iter().filter(|&&count| count > one);
    let shared = LOADS.map(|load| {
        let worst = more()
            .filter_map(|&count| {
                let (value, seen) = quotient(&format!("{}-cpu", load.id), one, count)?;
                Some((value, format!("{count} contexts: {seen}")))
            })
            .max_by(|a, b| a.0.total_cmp(&b.0));
        (load.title, worst)
    });
    outcome.judge(
        Goal::at_most(
            format!("server's CPU for a transaction beside {many} idle connections against {few}, with all of it"),
            (1.3, 1.1),
        ),
        cost,
    );
    outcome.judge(
        Goal::at_most(
            "bytes per idle connection, all that the server's process holds",
            (1024.0, 512.0),
        )
        .elsewhere("mTCP ≥ 16 KiB"),
        held,
    );
    for (title, worst) in shared {
        let what = format!("CPU for a transaction with several contexts against {one}, {title}");
        outcome.judge(Goal::at_most(what, (1.15, 1.0)), worst);
    }
}
