//! `mill bench bulk`: long transfers, one flow and many, at several frame sizes, in both directions, and how evenly many downloads share.
//!
//! [`side`] is one end; it is the same code for Millstream and the kernel.

pub mod one_thread;
mod run;
mod side;

use clap::Args;

use super::frame::{Claim, Figure, Outcome, Point, Repeats, Series, Spread, turns};
use crate::failure::Failure;
use crate::net::options::Acks;
pub use side::{SideOptions, side};

/// Options of `mill bench bulk`.
#[derive(Args, Clone, Debug)]
pub struct BulkOptions {
    #[command(flatten)]
    pub repeats: Repeats,
}

/// A stack, a wire, and the bytes of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// Over memif with buffers for packets of so many bytes.
    Memif(usize),
    /// The same at an MTU of 1500 with this limit of receive aggregation, and this done with ACKs.
    Aggregated(u16, Acks),
    KernelVeth(usize),
    KernelLoopback,
    /// Both ends in one thread.
    Smoltcp(usize),
}

impl std::fmt::Display for System {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memif(mtu) => write!(formatter, "Millstream, memif, MTU {mtu}"),
            Self::Aggregated(limit, acks) => {
                let acks = acks.name();
                write!(
                    formatter,
                    "Millstream, aggregation {limit}, ACK offload {acks}"
                )
            }
            Self::KernelVeth(mtu) => {
                write!(formatter, "kernel, veth without TSO and GRO, MTU {mtu}")
            }
            Self::KernelLoopback => write!(formatter, "kernel, loopback"),
            Self::Smoltcp(mtu) => write!(formatter, "smoltcp, one thread, MTU {mtu}"),
        }
    }
}

/// Downloads of which the mTCP paper tells how evenly they share.
const CROWD: usize = 8_192;
/// How many times longer those are counted.
const CROWD_TIMES: f64 = 4.0;
/// The largest packet: IPv4's length field is the limit, the buffer's 64 KiB come next.
const LARGE: usize = 65_000;
const SMALL: [System; 3] = [
    System::KernelVeth(1500),
    System::Memif(1500),
    System::Smoltcp(1500),
];
const JUMBO: [System; 3] = [
    System::KernelVeth(9000),
    System::Memif(9000),
    System::Smoltcp(9000),
];
const LONG: [System; 2] = [System::KernelLoopback, System::Memif(LARGE)];

/// Receive aggregation and ACK offload by the tables of Menon and Zwaenepoel (USENIX ATC 2008): figure 11's limits, figure 7's switch, and both off.
const LIMITS: [System; 8] = [
    System::Aggregated(1, Acks::Off),
    System::Aggregated(1, Acks::On),
    System::Aggregated(2, Acks::On),
    System::Aggregated(5, Acks::On),
    System::Aggregated(10, Acks::On),
    AGGREGATED,
    System::Aggregated(40, Acks::On),
    System::Aggregated(20, Acks::Merge),
];
/// The first and the best of them, for figure 12's many flows.
const SWITCHED: [System; 2] = [LIMITS[0], AGGREGATED];
const AGGREGATED: System = System::Aggregated(20, Acks::On);

/// One run's numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    gbit_per_second: f64,
    receiver_s_per_gb: f64,
    sender_s_per_gb: f64,
    jain: f64,
}

/// A transfer to measure.
#[derive(Clone, Copy, Debug)]
struct Load {
    flows: usize,
    /// From the client to the server.
    up: bool,
    seconds: f64,
    warm_up: f64,
    cores: (usize, usize),
}

/// Measures, prints and writes.
pub fn bulk(options: &BulkOptions) -> Result<(), Failure> {
    let mut outcome = Outcome::new(
        "bulk",
        "One end writes as fast as it may, the other reads; whoever receives counts. Server and client are processes of their own, each pinned \
         to a core; smoltcp has both ends in one thread. The receiver's CPU is without the time in which it looked for more. Over veth neither side has segmentation or checksum offload. Over loopback the kernel computes no checksum.",
    );
    let repeats = options.repeats.settled();
    repeats.describe(&mut outcome);
    let many: &[usize] = if repeats.quick {
        &[1]
    } else {
        &[1, 10, 100, 400]
    };
    for (id, title, systems) in [
        ("1500", "MTU 1500", &SMALL[..]),
        ("9000", "MTU 9000", &JUMBO[..]),
        ("large", "large frames", &LONG[..]),
    ] {
        study(&repeats, &mut outcome, systems, (id, title), (many, false));
    }
    let limits = if repeats.quick {
        &SWITCHED[..]
    } else {
        &LIMITS[..]
    };
    let title = "MTU 1500, receive aggregation and ACK offload";
    study(
        &repeats,
        &mut outcome,
        limits,
        ("aggregation", title),
        (&[1], false),
    );
    if !repeats.quick {
        study(
            &repeats,
            &mut outcome,
            &SWITCHED,
            (
                "aggregation-flows",
                "MTU 1500, aggregation and ACK offload, many flows",
            ),
            (&[1, 10, 50, 100, 200, 400], false),
        );
        study(
            &repeats,
            &mut outcome,
            &SMALL[..2],
            ("up-1500", "MTU 1500, from client to server"),
            (&[1], true),
        );
        study(
            &repeats,
            &mut outcome,
            &LONG,
            ("up-large", "large frames, from client to server"),
            (&[1], true),
        );
        study(
            &repeats,
            &mut outcome,
            &SMALL[..2],
            ("jain", "8,192 downloads, MTU 1500"),
            (&[CROWD], false),
        );
    }
    claims(&mut outcome);
    repeats.deliver(&mut outcome)
}

/// Runs of each system by the number of flows.
type Columns = Vec<Vec<(f64, Vec<Seen>)>>;

fn study(
    repeats: &Repeats,
    outcome: &mut Outcome,
    systems: &[System],
    (id, title): (&str, &str),
    (flows, up): (&[usize], bool),
) {
    let mut columns: Columns = systems.iter().map(|_| Vec::new()).collect();
    for &flows in flows {
        let load = Load {
            flows,
            up,
            // Thousands of flows take turns for longer before their shares say anything.
            seconds: match flows >= CROWD {
                true => repeats.seconds * CROWD_TIMES,
                false => repeats.seconds,
            },
            warm_up: repeats.warm_up,
            cores: (repeats.server_core, repeats.client_core),
        };
        let mut notes = Vec::new();
        // smoltcp's two ends in one thread say nothing of many flows.
        let fits = |system: &System| flows == 1 || !matches!(system, System::Smoltcp(_));
        let chosen: Vec<System> = systems.iter().copied().filter(fits).collect();
        let found = turns::alternate(repeats.runs, &chosen, &mut notes, |&system| {
            run::run(system, load)
        });
        for (system, runs) in chosen.iter().zip(found) {
            let place = systems.iter().position(|other| other == system);
            if let Some(column) = place.and_then(|place| columns.get_mut(place))
                && !runs.is_empty()
            {
                column.push((flows as f64, runs));
            }
        }
        let named = |note| format!("{title}, {flows} flows: {note}");
        outcome.notes.extend(notes.into_iter().map(named));
    }
    add_figures(outcome, systems, (id, title), &columns);
}

/// What one figure shows: its name's end, its title's begin, the unit, whether less is better, and where to read it.
type Shown = (
    &'static str,
    &'static str,
    &'static str,
    bool,
    fn(&Seen) -> f64,
);

const SHOWN: [Shown; 4] = [
    ("", "Bulk", "Gbit/s", false, |seen| seen.gbit_per_second),
    (
        "-receiver",
        "Receiver's CPU",
        "CPU seconds per GB",
        true,
        |seen| seen.receiver_s_per_gb,
    ),
    (
        "-sender",
        "Sender's CPU",
        "CPU seconds per GB",
        true,
        |seen| seen.sender_s_per_gb,
    ),
    ("-jain", "Jain's index", "index", false, |seen| seen.jain),
];

fn add_figures(
    outcome: &mut Outcome,
    systems: &[System],
    (id, title): (&str, &str),
    columns: &Columns,
) {
    let several = columns.iter().flatten().any(|(flows, _)| *flows > 1.0);
    for (end, begin, y, falls, reading) in SHOWN {
        if end == "-jain" && !several {
            continue;
        }
        let series = systems.iter().zip(columns).map(|(system, column)| Series {
            system: system.to_string(),
            points: column
                .iter()
                .map(|(x, runs)| Point {
                    x: *x,
                    y: Spread::of(runs.iter().map(reading)),
                })
                .collect(),
        });
        outcome.add(Figure {
            id: format!("{id}{end}"),
            title: format!("{begin}, {title}"),
            x: "flows".to_owned(),
            y: y.to_owned(),
            falls,
            compares: true,
            series: series.filter(|series| !series.points.is_empty()).collect(),
        });
    }
}

/// The rows of issue 4's table that are about bulk.
fn claims(outcome: &mut Outcome) {
    let rows = [
        (
            "one flow, MTU 1500, over memif, × kernel over veth without TSO and GRO",
            "1500",
            SMALL[1],
            SMALL[0],
            (3.0, 5.0),
        ),
        (
            "one flow, MTU 1500, over memif, × smoltcp",
            "1500",
            SMALL[1],
            SMALL[2],
            (1.2, 1.2),
        ),
        (
            "one flow, large frames over memif, × kernel over loopback",
            "large",
            LONG[1],
            LONG[0],
            (1.0, 1.5),
        ),
    ];
    for (measure, figure, ours, theirs, (bar, aim)) in rows {
        let read = |system: System| outcome.median(figure, &system.to_string(), 1.0);
        if let (Some(ours), Some(theirs)) = (read(ours), read(theirs)) {
            outcome.claim(Some(Claim {
                measure: measure.to_owned(),
                seen: format!("{ours:.1} against {theirs:.1} Gbit/s"),
                value: ours / theirs,
                bar,
                aim,
                at_most: false,
            }));
        }
    }
    let receiver =
        |system: System| outcome.median("aggregation-receiver", &system.to_string(), 1.0);
    if let (Some(off), Some(on)) = (receiver(SWITCHED[0]), receiver(SWITCHED[1])) {
        outcome.claim(Some(Claim {
            measure: "receive aggregation and ACK offload: receiver's CPU per byte at MTU 1500, off against on".to_owned(),
            seen: format!("{off:.3} against {on:.3} CPU seconds per GB"),
            value: off / on,
            bar: 1.5,
            aim: 2.0,
            at_most: false,
        }));
    }
    let index = outcome.median("jain-jain", &SMALL[1].to_string(), CROWD as f64);
    outcome.claim(index.map(|index| Claim {
        measure: "Jain's index, 8,192 downloads".to_owned(),
        seen: SMALL[1].to_string(),
        value: index,
        bar: 0.999,
        aim: 0.9999,
        at_most: false,
    }));
}
