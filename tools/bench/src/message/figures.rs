//! The figures and tables of mTCP's evaluation that are about small messages, and the bars that
//! they are held to.

mod claims;
mod crowd;
mod papers;

use std::collections::BTreeMap;

use crate::measure::{Exchange, Plan, Seen};

use super::sides::{self, Run};
use super::{MessageOptions, System};
use crate::frame::turns::{self, Case, Column};
use crate::frame::{Figure, Outcome, Repeats};
use crate::published;
use mill::failure::Failure;

/// The concurrency that table 2 is about.
const CROWD: usize = 8_192;
/// The name of all studies together.
const ALL: &str = "all";

/// The value that a figure reads off a run, at its x.
type Reading = fn(&Seen, f64) -> f64;

/// A set of runs, and the figures that are read off them.
struct Study {
    name: &'static str,
    x: &'static str,
    systems: &'static [System],
    xs: &'static [f64],
    quick_xs: &'static [f64],
    plan: fn(f64, Plan) -> Plan,
    readings: &'static [Shown],
    /// Microseconds that Millstream looks for work before it sleeps; its default if none.
    spin_us: Option<u64>,
}

/// One figure of a study.
struct Shown {
    id: &'static str,
    title: &'static str,
    y: &'static str,
    falls: bool,
    reading: Reading,
}

const fn rate(id: &'static str, title: &'static str) -> Shown {
    Shown {
        id,
        title,
        y: "transactions per second",
        falls: false,
        reading: |seen, _| seen.per_second,
    }
}

const fn falling(
    id: &'static str,
    title: &'static str,
    y: &'static str,
    reading: Reading,
) -> Shown {
    Shown {
        id,
        title,
        y,
        falls: true,
        reading,
    }
}

const PROCESSES: &[System] = &[
    System::Kernel,
    System::KernelUring,
    System::Inline,
    System::Dedicated,
];
const THREADS: &[System] = &[System::Smoltcp, System::Gvisor, System::OneThread];
const POLLING: &[System] = &[
    System::Kernel,
    System::Inline,
    System::Dedicated,
    System::KernelVeth,
    System::XdpServer,
];
const WIRED: &[System] = &[
    System::KernelVeth,
    System::XdpServer,
    System::XdpServerOneLane,
    System::XdpBoth,
];

const STUDIES: &[Study] = &[
    Study {
        name: "7a",
        x: "concurrent connections",
        systems: PROCESSES,
        xs: &[64.0, 256.0, 1_024.0, 4_096.0, 8_192.0, 16_384.0],
        quick_xs: &[64.0],
        plan: |x, plan| Plan {
            connections: x as usize,
            ..plan
        },
        readings: &[
            rate("7a", "64-byte message, one per connection (fig. 7a)"),
            falling(
                "7a-server",
                "Server's CPU time for each (fig. 7a)",
                "µs",
                |seen, _| seen.server_cpu_us,
            ),
            falling(
                "7a-work",
                "The same without the time in which it looked for more (inline)",
                "µs",
                |seen, _| seen.server_cpu_us - seen.server_looked_us,
            ),
            falling(
                "7a-cpu",
                "CPU time of both processes for each (fig. 7a)",
                "µs",
                |seen, _| seen.server_cpu_us + seen.client_cpu_us,
            ),
        ],
        spin_us: None,
    },
    Study {
        name: "one-thread",
        x: "concurrent connections",
        systems: THREADS,
        xs: &[64.0, 1_024.0, 8_192.0, 16_384.0],
        quick_xs: &[64.0],
        plan: |x, plan| Plan {
            connections: x as usize,
            ..plan
        },
        readings: &[rate(
            "one-thread",
            "64-byte message, one per connection, both ends in one thread",
        )],
        spin_us: None,
    },
    Study {
        name: "veth",
        x: "concurrent connections",
        systems: WIRED,
        xs: &[64.0, 1_024.0],
        quick_xs: &[64.0],
        plan: |x, plan| Plan {
            connections: x as usize,
            ..plan
        },
        readings: &[
            rate("veth", "64-byte message, one per connection, over veth"),
            falling(
                "veth-server",
                "Server's CPU time for each, over veth",
                "µs",
                |seen, _| seen.server_cpu_us,
            ),
        ],
        spin_us: None,
    },
    Study {
        name: "7b",
        x: "messages per connection",
        systems: PROCESSES,
        xs: &[1.0, 2.0, 8.0, 32.0, 128.0],
        quick_xs: &[8.0],
        plan: |x, plan| Plan {
            messages: x as u64,
            connections: 1_024,
            ..plan
        },
        readings: &[rate(
            "7b",
            "Messages per connection, 1,024 at once (fig. 7b)",
        )],
        spin_us: None,
    },
    Study {
        name: "7c",
        x: "bytes of a message",
        systems: PROCESSES,
        xs: &[64.0, 256.0, 1_024.0, 4_096.0, 8_192.0, 16_384.0],
        quick_xs: &[8_192.0],
        plan: |x, plan| Plan {
            request_bytes: x as usize,
            response_bytes: x as usize,
            connections: 1_024,
            ..plan
        },
        readings: &[
            rate(
                "7c",
                "Size of request and response, 1,024 at once (fig. 7c)",
            ),
            Shown {
                id: "7c-bits",
                title: "Payload of the responses, 1,024 at once (fig. 7c)",
                y: "Gbit/s",
                falls: false,
                reading: |seen, bytes| seen.per_second * bytes * 8.0 / 1e9,
            },
        ],
        spin_us: None,
    },
    Study {
        name: "8",
        x: "concurrent connections",
        systems: PROCESSES,
        xs: &[64.0, 1_024.0],
        quick_xs: &[64.0],
        plan: |x, plan| Plan {
            exchange: Exchange::Reset,
            connections: x as usize,
            ..plan
        },
        readings: &[
            rate("8", "Accept, then reset (fig. 8)"),
            falling(
                "8-server",
                "Server's CPU time for each (fig. 8)",
                "µs",
                |seen, _| seen.server_cpu_us,
            ),
        ],
        spin_us: None,
    },
    Study {
        name: "table2",
        x: "concurrent connections",
        systems: PROCESSES,
        xs: &[CROWD as f64],
        quick_xs: &[1_024.0],
        plan: |x, plan| Plan {
            connections: x as usize,
            ..plan
        },
        readings: &[
            falling(
                "table2-min",
                "Response time, shortest (table 2)",
                "µs",
                |seen, _| seen.latency_us_min,
            ),
            falling(
                "table2-mean",
                "Response time, mean (table 2)",
                "µs",
                |seen, _| seen.latency_us_mean,
            ),
            falling(
                "table2-deviation",
                "Response time, standard deviation (table 2)",
                "µs",
                |seen, _| seen.latency_us_deviation,
            ),
            falling(
                "table2-p50",
                "Response time, median (table 2)",
                "µs",
                |seen, _| seen.latency_us_p50,
            ),
            falling(
                "table2-p99",
                "Response time, 99th percentile (table 2)",
                "µs",
                |seen, _| seen.latency_us_p99,
            ),
            falling(
                "table2-p999",
                "Response time, 99.9th percentile (table 2)",
                "µs",
                |seen, _| seen.latency_us_p999,
            ),
            falling(
                "table2-max",
                "Response time, longest (table 2)",
                "µs",
                |seen, _| seen.latency_us_max,
            ),
        ],
        spin_us: None,
    },
    Study {
        name: "persistent",
        x: "concurrent connections",
        systems: PROCESSES,
        xs: &[1.0, 64.0, 1_024.0],
        quick_xs: &[64.0],
        plan: |x, plan| Plan {
            messages: 0,
            connections: x as usize,
            ..plan
        },
        readings: &[
            rate(
                "persistent",
                "64-byte request and response on connections that stay",
            ),
            falling(
                "persistent-server",
                "Server's CPU time for each, on connections that stay",
                "µs",
                |seen, _| seen.server_cpu_us,
            ),
        ],
        spin_us: None,
    },
    Study {
        name: "polling",
        x: "concurrent connections",
        systems: POLLING,
        xs: &[1.0, 64.0],
        quick_xs: &[64.0],
        plan: |x, plan| Plan {
            messages: 0,
            connections: x as usize,
            polls: true,
            ..plan
        },
        readings: &[
            rate(
                "polling",
                "64-byte request and response on connections that stay, a server whose waits have no timeout",
            ),
            falling(
                "polling-p99",
                "Response time of a server that polls, 99th percentile",
                "µs",
                |seen, _| seen.latency_us_p99,
            ),
        ],
        spin_us: None,
    },
    Study {
        name: "latency",
        x: "connections",
        // The last two compare aggregation and ACK offload with neither: table 1 of Menon and
        // Zwaenepoel (USENIX ATC 2008).
        systems: &[
            System::Kernel,
            System::KernelLooks,
            System::Inline,
            System::InlineAlone,
        ],
        xs: &[1.0],
        quick_xs: &[1.0],
        plan: one_byte,
        readings: &[
            falling(
                "latency-p50",
                "One-byte request and response, median",
                "µs",
                |seen, _| seen.latency_us_p50,
            ),
            falling(
                "latency-p999",
                "One-byte request and response, 99.9th percentile",
                "µs",
                |seen, _| seen.latency_us_p999,
            ),
        ],
        spin_us: None,
    },
    Study {
        name: "latency-asleep",
        x: "connections",
        systems: &[System::Kernel, System::Inline],
        xs: &[1.0],
        quick_xs: &[1.0],
        plan: one_byte,
        readings: &[
            falling(
                "latency-asleep-p50",
                "One-byte request and response, median, Millstream asleep between them",
                "µs",
                |seen, _| seen.latency_us_p50,
            ),
            falling(
                "latency-asleep-p999",
                "The same, 99.9th percentile",
                "µs",
                |seen, _| seen.latency_us_p999,
            ),
        ],
        spin_us: Some(0),
    },
];

/// All studies.
fn studies() -> impl Iterator<Item = &'static Study> {
    STUDIES.iter().chain(&crowd::STUDIES)
}

impl Study {
    /// True if the name selects this study, alone or with others of its family.
    fn is_called(&self, name: &str) -> bool {
        let is_of_crowd = crowd::STUDIES.iter().any(|study| study.name == self.name);
        self.name == name || is_of_crowd && name == crowd::FAMILY
    }
}

/// A byte each way on one connection that stays.
fn one_byte(_: f64, plan: Plan) -> Plan {
    Plan {
        messages: 0,
        request_bytes: 1,
        response_bytes: 1,
        connections: 1,
        ..plan
    }
}

/// Measures the studies that are named, prints and writes their figures.
pub fn figures(options: &MessageOptions) -> Result<(), Failure> {
    let mut outcome = collect(options)?;
    options.repeats.settled().deliver(&mut outcome)
}

/// Refuses names that no study has.
pub fn check(names: &[String]) -> Result<(), Failure> {
    let own = |name: &str| papers::OWN.iter().any(|own| own.name == name);
    let known =
        |name: &str| name == ALL || own(name) || studies().any(|study| study.is_called(name));
    let Some(name) = names.iter().find(|name| !known(name)) else {
        return Ok(());
    };
    let mut names: Vec<&str> = studies().map(|study| study.name).collect();
    names.push(crowd::FAMILY);
    names.extend(papers::OWN.iter().map(|own| own.name));
    Err(Failure::Usage(format!(
        "--figure {name}: not one of {ALL}, {}",
        names.join(", ")
    )))
}

/// Measures the studies that are named.
pub fn collect(options: &MessageOptions) -> Result<Outcome, Failure> {
    check(&options.figures)?;
    let all = options.figures.iter().any(|name| name == ALL);
    let mut outcome = Outcome::new(
        "message",
        "The client connects, sends a request, gets the response, and sees the server's close before it closes: the server closes first in \
         every system. Server and client are processes of their own, each pinned to a core; `one thread` has both in one, gVisor's one process runs on both cores. Checksums are computed by Millstream, \
         smoltcp and, over veth, by the kernel; on its loopback the kernel computes none. The crowd asks for documents with HTTP: the request's time ends with \
         the response on a connection that stays, and with the server's close where it has one request; requests that had waited 2 s at the end are part of the quantiles.",
    );
    let repeats = options.repeats.settled();
    repeats.describe(&mut outcome);
    let wanted = |study: &&Study| all || options.figures.iter().any(|name| study.is_called(name));
    for study in studies().filter(wanted) {
        measure(study, &options.systems, &repeats, &mut outcome);
    }
    for own in papers::OWN {
        if all || options.figures.iter().any(|name| name == own.name) {
            (own.measure)(&repeats, &mut outcome);
        }
    }
    claims::add(&mut outcome);
    outcome.stated = published::lines(&outcome);
    Ok(outcome)
}

/// A note on failed and hung transactions in runs that were good enough to count.
fn blemishes(system: System, runs: &[Seen]) -> Option<String> {
    let sum = |of: fn(&Seen) -> u64| runs.iter().map(of).sum::<u64>();
    let (failed, stalled) = (sum(|seen| seen.failures), sum(|seen| seen.stalled));
    (failed + stalled > 0).then(|| {
        let all = sum(|seen| seen.transactions_all);
        format!("{system}: {failed} of {all} transactions failed, {stalled} hung to the end")
    })
}

/// A note with the sums of all counters that tell of losses.
fn losses(system: System, runs: &[Seen]) -> Option<String> {
    let mut sums = BTreeMap::new();
    for (name, count) in runs.iter().flat_map(|seen| &seen.losses) {
        *sums.entry(name).or_insert(0) += count;
    }
    let words: Vec<String> = sums
        .iter()
        .map(|(name, sum)| format!("{name} {sum}"))
        .collect();
    (!words.is_empty()).then(|| format!("{system}: {}", words.join(", ")))
}

/// Measures every system at every x in turn. So values that a claim divides by each other, of two
/// systems or at two x, are measured close in time.
fn measure(study: &Study, chosen: &[System], repeats: &Repeats, outcome: &mut Outcome) {
    let is_chosen = |system: &System| chosen.is_empty() || chosen.contains(system);
    let systems: Vec<System> = study.systems.iter().copied().filter(is_chosen).collect();
    let xs = match repeats.quick {
        true => study.quick_xs,
        false => study.xs,
    };
    let at = |x: f64| systems.iter().map(move |&system| Case { system, x });
    let cases: Vec<Case<System>> = xs.iter().flat_map(|&x| at(x)).collect();
    let rounds = (study.name, repeats.runs);
    let columns = turns::columns(rounds, &systems, &cases, outcome, |case| {
        sides::run(case.system, &run_of(study, repeats, case.x))
    });
    for (system, column) in &columns {
        for (x, runs) in column {
            let notes = [blemishes(*system, runs), losses(*system, runs)];
            let notes = notes.into_iter().flatten();
            outcome
                .notes
                .extend(notes.map(|note| format!("{} at {x}: {note}", study.name)));
        }
    }
    for shown in study.readings {
        outcome.add(figure(study, shown, &columns));
    }
}

fn run_of(study: &Study, repeats: &Repeats, x: f64) -> Run {
    let plan = Plan {
        seconds: repeats.seconds,
        warm_up: repeats.warm_up,
        ..Plan::default()
    };
    Run {
        plan: (study.plan)(x, plan),
        server_core: repeats.server_core,
        client_core: repeats.client_core,
        spin_us: study.spin_us,
        ..Run::default()
    }
}

fn figure(study: &Study, shown: &Shown, columns: &[Column<System, Seen>]) -> Figure {
    Figure {
        id: shown.id.to_owned(),
        title: shown.title.to_owned(),
        x: study.x.to_owned(),
        y: shown.y.to_owned(),
        falls: shown.falls,
        compares: true,
        series: turns::series(columns, shown.reading),
    }
}
