//! Further figures of Menon and Zwaenepoel (USENIX ATC 2008). They show the whole gain (figure 7),
//! the receiver's work by kind (figures 8 and 9), latency (table 1), and aggregation where the
//! packets of many flows interleave (section 3.5). The list of figures with a measurement of their
//! own also names that of the offloads.

use super::{Load, Merging, OFF, ON, Seen, System, Wired, add_figures, load, offload, run};
use crate::frame::turns::{self, Case};
use crate::frame::{Figure, Outcome, Point, Repeats, Series, Spread, machine};
use crate::measure::Plan;
use crate::message::System as Message;
use crate::message::sides::{self, Run};
use crate::profile::attribution::{Received, Work};
use crate::profile::{SECONDS_MIN, Sampler};

/// A figure with a measurement of its own.
pub(super) struct Own {
    pub name: &'static str,
    pub measure: fn(&Repeats, &mut Outcome),
}

/// All figures with a measurement of their own.
pub(super) const OWN: [Own; 6] = [
    Own {
        name: "7",
        measure: overall,
    },
    Own {
        name: "8",
        measure: |repeats, outcome| {
            let systems = [
                System::Aggregated(OFF.0, OFF.1),
                System::Aggregated(ON.0, ON.1),
            ];
            let title = "Receiver's work for a packet, Millstream over memif (ATC'08, fig. 8)";
            work(repeats, outcome, ("work-ours", title), systems);
        },
    },
    Own {
        name: "9",
        measure: |repeats, outcome| {
            let systems = KERNELS.map(|wired| System::Interleaved(wired, LONG_BURST));
            let title = "Receiver's work for a packet, the kernel over veth (ATC'08, fig. 9)";
            work(repeats, outcome, ("work-kernel", title), systems);
        },
    },
    Own {
        name: "table1",
        measure: latency,
    },
    Own {
        name: "interleaved",
        measure: interleaved,
    },
    Own {
        name: "offload",
        measure: offload::measure,
    },
];

/// Segments in a row where one flow is alone: as many as are merged at most.
const LONG_BURST: usize = 20;
const KERNELS: [Wired; 2] = [
    Wired::Kernel { merges: false },
    Wired::Kernel { merges: true },
];
/// Receivers of interleaved flows.
const RECEIVERS: [Wired; 8] = [
    Wired::Memif(Merging::Off),
    Wired::Memif(Merging::On),
    Wired::Xdp(Merging::Off),
    Wired::Xdp(Merging::On),
    KERNELS[0],
    KERNELS[1],
    Wired::OneThread(Merging::Off),
    Wired::OneThread(Merging::On),
];
/// Numbers of flows that interleave: of a full measurement, and of a quick one.
const FLOWS: (&[usize], &[usize]) = (&[1, 16, 64, 400], &[16]);

/// A system's name, and its runs at each x.
pub(super) type Named = (String, super::Column);

/// The columns by the names of their systems.
pub(super) fn named<S: std::fmt::Display>(columns: Vec<turns::Column<S, Seen>>) -> Vec<Named> {
    let columns = columns.into_iter();
    columns
        .map(|(system, column)| (system.to_string(), column))
        .collect()
}

/// Figure 7: one flow with the mechanisms and without, and the kernel with and without its own.
fn overall(repeats: &Repeats, outcome: &mut Outcome) {
    let systems = [
        System::Aggregated(OFF.0, OFF.1),
        System::Aggregated(ON.0, ON.1),
        System::Interleaved(KERNELS[0], LONG_BURST),
        System::Interleaved(KERNELS[1], LONG_BURST),
    ];
    let cases = systems.map(|system| Case { system, x: 1.0 });
    let columns = turns::columns(("7", repeats.runs), &systems, &cases, outcome, |case| {
        run::run(case.system, load(repeats, 1, false))
    });
    let title = "MTU 1500, one flow, receive aggregation and ACK offload (ATC'08, fig. 7)";
    let columns = named(columns);
    add_figures(outcome, ("overall", title), "flows", &columns);
    outcome.add(both_ends(("overall", title), "flows", &columns));
}

/// A figure of the CPU time of both ends together. The kernel takes what arrives over veth in the
/// sender's process, so one end's time alone says little.
pub(super) fn both_ends((id, title): (&str, &str), x: &str, columns: &[Named]) -> Figure {
    let cycles = |seen: &Seen| {
        let both_ns = seen.receiver_ns_per_byte? + seen.sender_ns_per_byte?;
        Some(both_ns * machine::gigahertz())
    };
    let point = |(x, runs): &(f64, Vec<Seen>)| {
        let values: Vec<f64> = runs.iter().filter_map(cycles).collect();
        (!values.is_empty()).then(|| Point {
            x: *x,
            y: Spread::of(values),
        })
    };
    let series = columns.iter().map(|(name, column)| Series {
        system: name.clone(),
        points: column.iter().filter_map(point).collect(),
    });
    Figure {
        id: format!("{id}-both"),
        title: format!("CPU of both ends, {title}"),
        x: x.to_owned(),
        y: super::CYCLES.to_owned(),
        falls: true,
        compares: true,
        series: series.collect(),
    }
}

/// Figures 8 and 9: the receiver's work by kind, without merging and with it.
fn work(
    repeats: &Repeats,
    outcome: &mut Outcome,
    (id, title): (&str, &str),
    [off, on]: [System; 2],
) {
    if let Err(cause) = Sampler::is_there() {
        return outcome.notes.push(format!("{id}: {cause}"));
    }
    let cases = [(off, 0.0), (on, 1.0)].map(|(system, x)| Case { system, x });
    let columns = turns::columns((id, repeats.runs), &[off, on], &cases, outcome, |case| {
        let load = Load {
            is_sampled: true,
            seconds: repeats.seconds.max(SECONDS_MIN),
            ..load(repeats, 1, false)
        };
        run::run(case.system, load)
    });
    let series = Received::ALL.iter().enumerate().map(|(index, part)| {
        let points = columns.iter().flat_map(|(_, column)| column);
        let point = |(x, runs): &(f64, Vec<Seen>)| Point {
            x: *x,
            y: Spread::of(runs.iter().filter_map(|seen| Some(seen.parts?[index]))),
        };
        Series {
            system: part.name().to_owned(),
            points: points.map(point).collect(),
        }
    });
    outcome.add(Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        x: "merging (0: off, 1: on)".to_owned(),
        y: "cycles for a packet of 1,448 bytes, by samples at the processor's nominal rate"
            .to_owned(),
        falls: true,
        compares: false,
        series: series.collect(),
    });
}

/// Table 1: a byte each way on one connection, with the mechanisms and without.
fn latency(repeats: &Repeats, outcome: &mut Outcome) {
    let systems = [Message::InlineAlone, Message::Inline];
    let cases = systems.map(|system| Case { system, x: 1.0 });
    let rounds = ("table1", repeats.runs);
    let columns = turns::columns(rounds, &systems, &cases, outcome, |case| {
        let plan = Plan {
            connections: 1,
            messages: 0,
            request_bytes: 1,
            response_bytes: 1,
            ..Plan::default()
        };
        sides::run(case.system, &Run::of(repeats, plan))
    });
    outcome.add(Figure {
        id: "table1".to_owned(),
        title: "A byte each way on one connection (ATC'08, table 1)".to_owned(),
        x: "connections".to_owned(),
        y: "requests per second".to_owned(),
        falls: false,
        compares: true,
        series: turns::series(&columns, |seen, _| seen.per_second),
    });
}

/// Section 3.5: many flows, one frame at a time and in bursts of 2 to 20.
fn interleaved(repeats: &Repeats, outcome: &mut Outcome) {
    for (burst, id, how) in [
        (1, "interleaved-1", "one frame at a time"),
        (0, "interleaved-bursts", "in bursts of 2 to 20"),
    ] {
        let systems = RECEIVERS.map(|wired| System::Interleaved(wired, burst));
        let flows = if repeats.quick { FLOWS.1 } else { FLOWS.0 };
        let at = |&flows: &usize| {
            let x = flows as f64;
            systems.map(|system| Case { system, x })
        };
        let cases: Vec<Case<System>> = flows.iter().flat_map(at).collect();
        let columns = turns::columns((id, repeats.runs), &systems, &cases, outcome, |case| {
            run::run(case.system, load(repeats, case.x as usize, false))
        });
        let title = format!("MTU 1500, flows that interleave {how}");
        let columns = named(columns);
        add_figures(outcome, (id, &title), "flows", &columns);
        outcome.add(both_ends((id, &title), "flows", &columns));
    }
}
