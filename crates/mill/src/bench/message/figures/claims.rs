//! What issue 4 wants shown with small messages, read off the figures.

use crate::bench::frame::{Claim, Outcome};
use crate::bench::message::System;

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
pub fn add(outcome: &mut Outcome) {
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
