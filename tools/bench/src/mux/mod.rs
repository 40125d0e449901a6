//! `cargo xtask bench mux`: what a virtual port of `mill mux` costs against AF_XDP on the NIC, and
//! against the kernel (figures 4 and 6 of the MultiStack paper).
//!
//! The NIC is a veth pair, whose far end is another host. The rule: both systems of a ratio run in
//! turns, on the same two cores, and the far side is the same program for both.
//!
//! | module | what it is |
//! |---|---|
//! | `ports` | figure 4: frames a second, by the size of a frame and the number of ports |
//! | `side` | the ends of figure 4 |
//! | `service` | `mill mux` on the server's end |

pub mod ports;
pub mod service;
pub mod side;

use clap::{Args, ValueEnum};
use mill::failure::Failure;

use crate::frame::turns::{self, Case};
use crate::frame::{Figure, Goal, Outcome, Point, Repeats, Spread};
use crate::measure::{Plan, Seen};
use crate::message::System;
use crate::message::sides::{self, Run, Wire};
use crate::published;

/// Options of `cargo xtask bench mux`.
#[derive(Args, Clone, Debug)]
pub struct MuxOptions {
    /// Figures to measure; all if none is named
    #[arg(long = "figure", value_enum, value_delimiter = ',')]
    pub figures: Vec<Shown>,
    #[command(flatten)]
    pub repeats: Repeats,
}

/// A figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shown {
    /// Figure 4: frames a second
    Ports,
    /// Short connections and echoes
    Connections,
    /// Figure 6: documents by HTTP
    Http,
    /// Long documents by HTTP, which a virtual port sends by its bulk lane
    Downloads,
}

const ALL: [Shown; 4] = [
    Shown::Ports,
    Shown::Connections,
    Shown::Http,
    Shown::Downloads,
];
/// Kilobytes of a document.
const BODIES: [usize; 6] = [1, 2, 4, 8, 16, 32];
const BODIES_QUICK: [usize; 2] = [1, 32];
/// Kilobytes of a long document.
const DOWNLOADS: [usize; 2] = [1 << 10, 16 << 10];
/// Connections at once.
const CONNECTIONS: usize = 64;

type Column = turns::Column<System, Seen>;

/// Measures, prints and writes.
pub fn mux(options: &MuxOptions) -> Result<(), Failure> {
    let mut outcome = collect(options);
    options.repeats.settled().deliver(&mut outcome)
}

/// Measures.
pub fn collect(options: &MuxOptions) -> Outcome {
    let repeats = options.repeats.settled();
    let mut outcome = Outcome::new(
        "mux",
        "A veth pair is the NIC and another host. Its driver runs both programs of the service and the copy to AF_XDP on the sender's core, so frames a second are what that core can do. The far side is the same program for all systems of a figure.",
    );
    repeats.describe(&mut outcome);
    let figures = match options.figures.is_empty() {
        true => &ALL[..],
        false => &options.figures[..],
    };
    for shown in figures {
        match shown {
            Shown::Ports => ports::measure(&repeats, &mut outcome),
            Shown::Connections => connections(&repeats, &mut outcome),
            Shown::Http => {
                http(&repeats, false, &mut outcome);
                http(&repeats, true, &mut outcome);
            }
            Shown::Downloads => downloads(&repeats, &mut outcome),
        }
    }
    outcome.stated = published::lines(&outcome);
    outcome
}

fn run_of(repeats: &Repeats, plan: Plan, segmentation: bool) -> Run {
    Run {
        wire: Wire {
            segmentation,
            is_shared: true,
        },
        ..Run::of(repeats, plan)
    }
}

/// Short connections, and one byte each way on one connection.
fn connections(repeats: &Repeats, outcome: &mut Outcome) {
    let systems = [
        System::KernelVeth,
        System::XdpServer,
        System::MuxServer,
        System::MuxMemifServer,
    ];
    let cases = systems.map(|system| Case {
        system,
        x: CONNECTIONS as f64,
    });
    let study = ("connections", repeats.runs);
    let columns = turns::columns(study, &systems, &cases, outcome, |case| {
        let plan = Plan {
            connections: CONNECTIONS,
            ..Plan::default()
        };
        sides::run(case.system, &run_of(repeats, plan, false))
    });
    let title = "Short connections of a kernel client";
    let texts = ("connections", title, "connections at once");
    outcome.add(figure(texts, "connections per second", &columns, |seen| {
        seen.per_second
    }));
    let cases = systems.map(|system| Case { system, x: 1.0 });
    let study = ("echo", repeats.runs);
    let columns = turns::columns(study, &systems, &cases, outcome, |case| {
        let plan = Plan {
            connections: 1,
            messages: 0,
            request_bytes: 1,
            response_bytes: 1,
            ..Plan::default()
        };
        sides::run(case.system, &run_of(repeats, plan, false))
    });
    let texts = ("echo", "One byte each way, median", "connections at once");
    let mut echo = figure(texts, "µs", &columns, |seen| seen.latency_us_p50);
    echo.falls = true;
    outcome.add(echo);
    judge_connections(outcome);
}

fn judge_connections(outcome: &mut Outcome) {
    let median = |figure: &str, system: System, x: f64| outcome.median(figure, system.name(), x);
    let x = CONNECTIONS as f64;
    let ours = median("connections", System::MuxServer, x);
    let kernel = median("connections", System::KernelVeth, x);
    let direct = median("connections", System::XdpServer, x);
    let rate = ours.zip(kernel).map(|(ours, kernel)| {
        let direct = direct.map_or(f64::NAN, |direct| direct / kernel);
        let seen = format!("{ours:.0} against {kernel:.0}/s; AF_XDP on the NIC {direct:.2}");
        (ours / kernel, seen)
    });
    let ours = median("echo", System::MuxServer, 1.0);
    let direct = median("echo", System::XdpServer, 1.0);
    // A result that is not slower counts as slower by 0.01 µs: the value of a claim must be above
    // zero.
    let slower = ours.zip(direct).map(|(ours, direct)| {
        let seen = format!("{ours:.1} against {direct:.1} µs");
        ((ours - direct).max(0.01), seen)
    });
    let what =
        "short connections of a kernel client, server on a virtual port, against the kernel's";
    outcome.judge(Goal::at_least(what, (1.9, 2.2)), rate);
    let what = "µs more for an echo through a virtual port than on the NIC";
    outcome.judge(Goal::at_most(what, (2.0, 1.0)), slower);
}

/// Documents of several sizes, one for each connection.
fn http(repeats: &Repeats, segmentation: bool, outcome: &mut Outcome) {
    let systems = [
        System::KernelServe,
        System::Nginx,
        System::MillServe,
        System::MuxServe,
        System::MuxMemifServe,
    ];
    let bodies = match repeats.quick {
        true => &BODIES_QUICK[..],
        false => &BODIES[..],
    };
    let at = |&kilobytes: &usize| {
        let x = kilobytes as f64;
        systems.map(|system| Case { system, x })
    };
    let cases: Vec<Case<System>> = bodies.iter().flat_map(at).collect();
    let (id, words) = match segmentation {
        true => ("http-tso", "segmentation offload on"),
        false => ("http", "segmentation offload off"),
    };
    let columns = turns::columns((id, repeats.runs), &systems, &cases, outcome, |case| {
        let plan = Plan {
            connections: CONNECTIONS,
            response_bytes: case.x as usize * 1024,
            ..Plan::default()
        };
        sides::run(case.system, &run_of(repeats, plan, segmentation))
    });
    let title = format!("A document for each connection, {CONNECTIONS} at once, {words}");
    let texts = (id, title.as_str(), "KiB of the document");
    outcome.add(figure(texts, "documents per second", &columns, |seen| {
        seen.per_second
    }));
}

/// Long documents, one after the other on one connection at a time, segmentation offload on.
fn downloads(repeats: &Repeats, outcome: &mut Outcome) {
    let systems = [System::Nginx, System::MuxServe];
    let at = |&kilobytes: &usize| {
        let x = kilobytes as f64;
        systems.map(|system| Case { system, x })
    };
    let cases: Vec<Case<System>> = DOWNLOADS.iter().flat_map(at).collect();
    let study = ("downloads", repeats.runs);
    let columns = turns::columns(study, &systems, &cases, outcome, |case| {
        let plan = Plan {
            connections: 1,
            response_bytes: case.x as usize * 1024,
            ..Plan::default()
        };
        sides::run(case.system, &run_of(repeats, plan, true))
    });
    let title = "A long document for each connection, one at once, segmentation offload on";
    let texts = ("downloads", title, "KiB of the document");
    outcome.add(figure(texts, "documents per second", &columns, |seen| {
        seen.per_second
    }));
    let x = DOWNLOADS[DOWNLOADS.len() - 1] as f64;
    let median = |system: System| outcome.median("downloads", system.name(), x);
    let rate = median(System::MuxServe)
        .zip(median(System::Nginx))
        .map(|(ours, nginx)| (ours / nginx, format!("{ours:.1} against {nginx:.1}/s")));
    let what = "long documents of mill serve on a virtual port, against nginx with TSO";
    outcome.judge(Goal::at_least(what, (0.5, 1.0)), rate);
}

fn figure(
    (id, title, x): (&str, &str, &str),
    y: &str,
    columns: &[Column],
    reading: fn(&Seen) -> f64,
) -> Figure {
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        x: x.to_owned(),
        y: y.to_owned(),
        falls: false,
        compares: true,
        series: turns::series(columns, |seen, _| reading(seen)),
    }
}

/// The points of a series, with the spread of a reading of the runs at each x.
fn points<T>(column: &[(f64, Vec<T>)], reading: impl Fn(&T) -> f64) -> Vec<Point> {
    let point = |(x, runs): &(f64, Vec<T>)| Point {
        x: *x,
        y: Spread::of(runs.iter().map(&reading)),
    };
    column.iter().map(point).collect()
}
