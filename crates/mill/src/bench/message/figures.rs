//! The figures and tables of mTCP's evaluation that are about small messages, and what issue 4 wants shown with them.

use measure::{Exchange, Plan, Seen};

use super::sides::{self, Run};
use super::{MessageOptions, System};
use crate::bench::frame::{Claim, Figure, Outcome, Point, Series, Spread, turns};
use crate::failure::Failure;

/// The concurrency that table 2 is about.
const CROWD: usize = 8_192;

/// What a figure reads off a run.
type Reading = fn(&Seen) -> f64;

/// A set of runs, and the figures that are read off them.
struct Study {
    name: &'static str,
    x: &'static str,
    systems: &'static [System],
    xs: &'static [f64],
    quick_xs: &'static [f64],
    plan: fn(f64, Plan) -> Plan,
    readings: &'static [Shown],
    /// Microseconds that Millstream looks for work before it sleeps.
    spin_us: u64,
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
        reading: |seen| seen.per_second,
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
const WIRED: &[System] = &[System::KernelVeth, System::XdpServer, System::XdpBoth];

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
                |seen| seen.server_cpu_us,
            ),
            falling(
                "7a-cpu",
                "CPU time of both processes for each (fig. 7a)",
                "µs",
                |seen| seen.server_cpu_us + seen.client_cpu_us,
            ),
        ],
        spin_us: 0,
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
        spin_us: 0,
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
                |seen| seen.server_cpu_us,
            ),
        ],
        spin_us: 0,
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
        spin_us: 0,
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
        readings: &[rate(
            "7c",
            "Size of request and response, 1,024 at once (fig. 7c)",
        )],
        spin_us: 0,
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
                |seen| seen.server_cpu_us,
            ),
        ],
        spin_us: 0,
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
                "table2-mean",
                "Response time, mean (table 2)",
                "µs",
                |seen| seen.latency_us_mean,
            ),
            falling(
                "table2-p50",
                "Response time, median (table 2)",
                "µs",
                |seen| seen.latency_us_p50,
            ),
            falling(
                "table2-p99",
                "Response time, 99th percentile (table 2)",
                "µs",
                |seen| seen.latency_us_p99,
            ),
            falling(
                "table2-p999",
                "Response time, 99.9th percentile (table 2)",
                "µs",
                |seen| seen.latency_us_p999,
            ),
            falling(
                "table2-max",
                "Response time, longest (table 2)",
                "µs",
                |seen| seen.latency_us_max,
            ),
        ],
        spin_us: 0,
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
                |seen| seen.server_cpu_us,
            ),
        ],
        spin_us: 0,
    },
    Study {
        name: "latency",
        x: "connections",
        systems: &[System::Kernel, System::Inline],
        xs: &[1.0],
        quick_xs: &[1.0],
        plan: |_, plan| Plan {
            messages: 0,
            request_bytes: 1,
            response_bytes: 1,
            connections: 1,
            ..plan
        },
        readings: &[
            falling(
                "latency-p50",
                "One-byte request and response, median",
                "µs",
                |seen| seen.latency_us_p50,
            ),
            falling(
                "latency-p999",
                "One-byte request and response, 99.9th percentile",
                "µs",
                |seen| seen.latency_us_p999,
            ),
        ],
        spin_us: 0,
    },
    Study {
        name: "latency-spin",
        x: "connections",
        systems: &[System::Kernel, System::Inline],
        xs: &[1.0],
        quick_xs: &[1.0],
        plan: |_, plan| Plan {
            messages: 0,
            request_bytes: 1,
            response_bytes: 1,
            connections: 1,
            ..plan
        },
        readings: &[
            falling(
                "latency-spin-p50",
                "One-byte request and response, median, Millstream spinning 50 µs",
                "µs",
                |seen| seen.latency_us_p50,
            ),
            falling(
                "latency-spin-p999",
                "The same, 99.9th percentile",
                "µs",
                |seen| seen.latency_us_p999,
            ),
        ],
        spin_us: 50,
    },
];

/// Measures the studies that are named, prints and writes their figures.
pub fn figures(options: &MessageOptions) -> Result<(), Failure> {
    let all = options.figures.iter().any(|name| name == "all");
    let known = |name: &String| name == "all" || STUDIES.iter().any(|study| study.name == name);
    if let Some(name) = options.figures.iter().find(|name| !known(name)) {
        let names: Vec<&str> = STUDIES.iter().map(|study| study.name).collect();
        return Err(Failure::Usage(format!(
            "--figure {name}: not one of all, {}",
            names.join(", ")
        )));
    }
    let mut outcome = Outcome::new(
        "message",
        "The client connects, sends a request, gets the response, and sees the server's close before it closes: the server closes first in \
         every system. Server and client are processes of their own, each pinned to a core; `one thread` has both in one. Checksums are computed by Millstream, \
         smoltcp and, over veth, by the kernel; on its loopback the kernel computes none.",
    );
    outcome.parameter(
        "seconds per run, after warm-up",
        format!("{}, {}", options.seconds, options.warm_up),
    );
    outcome.parameter("runs of each system", options.runs);
    outcome.parameter(
        "cores of server and client",
        format!("{}, {}", options.server_core, options.client_core),
    );
    let wanted = |study: &&Study| all || options.figures.iter().any(|name| name == study.name);
    for study in STUDIES.iter().filter(wanted) {
        measure(study, options, &mut outcome);
    }
    claims(&mut outcome);
    match &options.out {
        Some(directory) => outcome.write(directory).map_err(Failure::Run),
        None => {
            print!("{}", outcome.markdown());
            Ok(())
        }
    }
}

fn measure(study: &Study, options: &MessageOptions, outcome: &mut Outcome) {
    let systems: Vec<System> = study
        .systems
        .iter()
        .copied()
        .filter(|system| options.systems.is_empty() || options.systems.contains(system))
        .collect();
    let xs = if options.quick {
        study.quick_xs
    } else {
        study.xs
    };
    let mut columns: Vec<Vec<(f64, Vec<Seen>)>> = systems.iter().map(|_| Vec::new()).collect();
    for &x in xs {
        let plan = Plan {
            seconds: if options.quick { 0.3 } else { options.seconds },
            warm_up: if options.quick { 0.1 } else { options.warm_up },
            ..Plan::default()
        };
        let run = Run {
            plan: (study.plan)(x, plan),
            server_core: options.server_core,
            client_core: options.client_core,
            contexts: 1,
            spin_us: study.spin_us,
        };
        let rounds = if options.quick { 1 } else { options.runs };
        let mut notes = Vec::new();
        let found = turns::alternate(rounds, &systems, &mut notes, |&system| {
            sides::run(system, &run)
        });
        for (column, runs) in columns.iter_mut().zip(found) {
            if !runs.is_empty() {
                column.push((x, runs));
            }
        }
        let named = notes
            .into_iter()
            .map(|note| format!("{} at {x}: {note}", study.name));
        outcome.notes.extend(named);
    }
    for shown in study.readings {
        let series = systems.iter().zip(&columns).map(|(system, column)| Series {
            system: system.name().to_owned(),
            points: column
                .iter()
                .map(|(x, runs)| Point {
                    x: *x,
                    y: Spread::of(runs.iter().map(shown.reading)),
                })
                .collect(),
        });
        outcome.add(Figure {
            id: shown.id.to_owned(),
            title: shown.title.to_owned(),
            x: study.x.to_owned(),
            y: shown.y.to_owned(),
            falls: shown.falls,
            compares: true,
            series: series.filter(|series| !series.points.is_empty()).collect(),
        });
    }
}

/// A row of issue 4's table: a figure at an x, two systems, and how their quotient is to come out.
struct Wanted {
    measure: &'static str,
    figure: &'static str,
    x: f64,
    ours: &'static [System],
    theirs: Option<System>,
    bar: f64,
    aim: f64,
    at_most: bool,
}

const CRANKS: &[System] = &[System::Inline, System::Dedicated];

const fn wanted(
    measure: &'static str,
    figure: &'static str,
    x: f64,
    ours: &'static [System],
    theirs: System,
    goals: (f64, f64),
) -> Wanted {
    Wanted {
        measure,
        figure,
        x,
        ours,
        theirs: Some(theirs),
        bar: goals.0,
        aim: goals.1,
        at_most: false,
    }
}

const fn at_most(mut wanted: Wanted) -> Wanted {
    wanted.at_most = true;
    wanted
}

const fn alone(mut wanted: Wanted) -> Wanted {
    wanted.theirs = None;
    at_most(wanted)
}

const KERNEL: System = System::Kernel;

const WANTED: &[Wanted] = &[
    wanted(
        "short connections, 64 at once, × kernel",
        "7a",
        64.0,
        CRANKS,
        KERNEL,
        (15.0, 25.0),
    ),
    wanted(
        "short connections, 256 at once, × kernel",
        "7a",
        256.0,
        CRANKS,
        KERNEL,
        (15.0, 25.0),
    ),
    wanted(
        "short connections, 8,192 at once, × kernel",
        "7a",
        8192.0,
        CRANKS,
        KERNEL,
        (15.0, 25.0),
    ),
    wanted(
        "both ends in one thread, 64 at once, × smoltcp",
        "one-thread",
        64.0,
        &[System::OneThread],
        System::Smoltcp,
        (1.5, 3.0),
    ),
    wanted(
        "both ends in one thread, 1,024 at once, × smoltcp",
        "one-thread",
        1024.0,
        &[System::OneThread],
        System::Smoltcp,
        (1.5, 3.0),
    ),
    alone(wanted(
        "server's own CPU per short connection, 64 at once, µs",
        "7a-server",
        64.0,
        CRANKS,
        KERNEL,
        (1.5, 1.0),
    )),
    alone(wanted(
        "server's own CPU per short connection, 8,192 at once, µs",
        "7a-server",
        8192.0,
        CRANKS,
        KERNEL,
        (1.5, 1.0),
    )),
    wanted(
        "accept and reset, × kernel",
        "8",
        64.0,
        CRANKS,
        KERNEL,
        (15.0, 25.0),
    ),
    wanted(
        "kernel client over veth, 64 at once, × kernel server",
        "veth",
        64.0,
        &[System::XdpServer],
        System::KernelVeth,
        (2.0, 2.5),
    ),
    wanted(
        "kernel client over veth, 1,024 at once, × kernel server",
        "veth",
        1024.0,
        &[System::XdpServer],
        System::KernelVeth,
        (2.3, 3.0),
    ),
    wanted(
        "both ends over veth with AF_XDP, 64 at once, × kernel",
        "veth",
        64.0,
        &[System::XdpBoth],
        System::KernelVeth,
        (4.0, 6.0),
    ),
    wanted(
        "connections that stay, 64 at once, × kernel",
        "persistent",
        64.0,
        CRANKS,
        KERNEL,
        (8.0, 15.0),
    ),
    at_most(wanted(
        "one-byte request and response, inline, median, × kernel",
        "latency-p50",
        1.0,
        &[System::Inline],
        KERNEL,
        (0.5, 0.25),
    )),
    at_most(wanted(
        "one-byte request and response, inline, 99.9th percentile, × kernel",
        "latency-p999",
        1.0,
        &[System::Inline],
        KERNEL,
        (0.5, 0.25),
    )),
    at_most(wanted(
        "one-byte request and response, inline, spinning 50 µs, median, × kernel",
        "latency-spin-p50",
        1.0,
        &[System::Inline],
        KERNEL,
        (0.5, 0.25),
    )),
    alone(wanted(
        "longest response at 8,192 connections, µs",
        "table2-max",
        8192.0,
        CRANKS,
        KERNEL,
        (100_000.0, 20_000.0),
    )),
];

/// Where both sides were measured.
fn claims(outcome: &mut Outcome) {
    for wanted in WANTED {
        let claim = claim(wanted, outcome);
        outcome.claim(claim);
    }
    // At 16,384 what was reached at 64 is to be kept, as a share.
    let ours = |x| outcome.median("one-thread", System::OneThread.name(), x);
    if let (Some(few), Some(many)) = (ours(64.0), ours(16_384.0)) {
        let claim = Claim {
            measure: "both ends in one thread, 16,384 at once, × the rate at 64".to_owned(),
            seen: format!("{many:.0} against {few:.0}"),
            value: many / few,
            bar: 0.8,
            aim: 1.0,
            at_most: false,
        };
        outcome.claim(Some(claim));
    }
}

fn claim(wanted: &Wanted, outcome: &Outcome) -> Option<Claim> {
    let read = |system: &System| outcome.median(wanted.figure, system.name(), wanted.x);
    let ours = wanted
        .ours
        .iter()
        .filter_map(|system| Some((system, read(system)?)));
    let (best, ours) = match wanted.at_most {
        true => ours.min_by(|a, b| a.1.total_cmp(&b.1))?,
        false => ours.max_by(|a, b| a.1.total_cmp(&b.1))?,
    };
    let (value, seen) = match wanted.theirs {
        None => (ours, best.name().to_owned()),
        Some(system) => {
            let theirs = read(&system)?;
            let words = format!("{best}: {ours:.1}; {system}: {theirs:.1}");
            (ours / theirs, words)
        }
    };
    Some(Claim {
        measure: wanted.measure.to_owned(),
        seen,
        value,
        bar: wanted.bar,
        aim: wanted.aim,
        at_most: wanted.at_most,
    })
}
