//! The bars for small messages, read off the figures.

use crate::frame::{Goal, Outcome};
use crate::message::System;

/// A goal: a figure at an x, ours and theirs, and the bar and aim of their quotient.
struct Wanted {
    measure: &'static str,
    figure: &'static str,
    x: f64,
    /// Systems of ours; the best of them counts.
    ours: &'static [System],
    /// The system that ours is divided by; if there is none, our value itself counts.
    theirs: Option<System>,
    bar: f64,
    aim: f64,
    at_most: bool,
    elsewhere: &'static str,
}

const CRANKS: &[System] = &[System::Inline, System::Dedicated];
const KERNEL: Option<System> = Some(System::Kernel);
const VETH: Option<System> = Some(System::KernelVeth);
const SMOLTCP: Option<System> = Some(System::Smoltcp);

/// The common part of most rows: a rate, many times the kernel's.
const RATE: Wanted = Wanted {
    measure: "",
    figure: "7a",
    x: 64.0,
    ours: CRANKS,
    theirs: KERNEL,
    bar: 15.0,
    aim: 25.0,
    at_most: false,
    elsewhere: "",
};
const SERVER: Wanted = Wanted {
    figure: "7a-server",
    theirs: None,
    bar: 1.5,
    aim: 1.0,
    at_most: true,
    elsewhere: "F-Stack ≈ 2.6 µs",
    ..RATE
};
const THREAD: Wanted = Wanted {
    figure: "one-thread",
    ours: &[System::OneThread],
    theirs: SMOLTCP,
    bar: 1.5,
    aim: 3.0,
    ..RATE
};
/// Short connections must be as fast with a bulk lane as without, within the spread of runs.
const LANES: Wanted = Wanted {
    ours: &[System::XdpServer],
    theirs: Some(System::XdpServerOneLane),
    bar: 0.95,
    aim: 1.0,
    ..RATE
};
const CROWD_LANES: Wanted = Wanted {
    x: 2000.0,
    ours: &[System::MillServe],
    theirs: Some(System::MillServeOneLane),
    bar: 1.1,
    aim: 1.0,
    at_most: true,
    ..RATE
};
const LATENCY: Wanted = Wanted {
    x: 1.0,
    ours: &[System::Inline],
    bar: 0.5,
    aim: 0.25,
    at_most: true,
    ..RATE
};

const WANTED: &[Wanted] = &[
    Wanted {
        measure: "short connections, 64 at once, × kernel",
        elsewhere: "25 × (mTCP's paper); F-Stack 9.1 ×, mTCP 5.1 ×",
        ..RATE
    },
    Wanted {
        measure: "short connections, 256 at once, × kernel",
        x: 256.0,
        ..RATE
    },
    Wanted {
        measure: "short connections, 8,192 at once, × kernel",
        x: 8192.0,
        elsewhere: "F-Stack 8.2 ×, mTCP 3.9 ×",
        ..RATE
    },
    Wanted {
        measure: "both ends in one thread, 64 at once, × smoltcp",
        ..THREAD
    },
    Wanted {
        measure: "both ends in one thread, 1,024 at once, × smoltcp",
        x: 1024.0,
        ..THREAD
    },
    Wanted {
        measure: "server's own CPU per short connection, 64 at once, µs",
        ..SERVER
    },
    Wanted {
        measure: "server's own CPU per short connection, 256 at once, µs",
        x: 256.0,
        ..SERVER
    },
    Wanted {
        measure: "server's own CPU per short connection, 8,192 at once, µs",
        x: 8192.0,
        ..SERVER
    },
    Wanted {
        measure: "accept and reset, 64 at once, × kernel",
        figure: "8",
        ..RATE
    },
    Wanted {
        measure: "accept and reset, 1,024 at once, × kernel",
        figure: "8",
        x: 1024.0,
        ..RATE
    },
    Wanted {
        measure: "kernel client over veth, 64 at once, × kernel server",
        figure: "veth",
        ours: &[System::XdpServer],
        theirs: VETH,
        bar: 2.0,
        aim: 2.5,
        elsewhere: "F-Stack 1.75 ×, mTCP 1.4 ×",
        ..RATE
    },
    Wanted {
        measure: "kernel client over veth, 1,024 at once, × kernel server",
        figure: "veth",
        x: 1024.0,
        ours: &[System::XdpServer],
        theirs: VETH,
        bar: 2.3,
        aim: 3.0,
        elsewhere: "F-Stack 2.07 ×",
        ..RATE
    },
    Wanted {
        measure: "both ends over veth with AF_XDP, 64 at once, × kernel",
        figure: "veth",
        ours: &[System::XdpBoth],
        theirs: VETH,
        bar: 4.0,
        aim: 6.0,
        ..RATE
    },
    Wanted {
        measure: "both ends over veth with AF_XDP, 1,024 at once, × kernel",
        figure: "veth",
        x: 1024.0,
        ours: &[System::XdpBoth],
        theirs: VETH,
        bar: 4.0,
        aim: 6.0,
        ..RATE
    },
    Wanted {
        measure: "kernel client over veth, 64 at once, with the bulk lane × without",
        figure: "veth",
        ..LANES
    },
    Wanted {
        measure: "kernel client over veth, 1,024 at once, with the bulk lane × without",
        figure: "veth",
        x: 1024.0,
        ..LANES
    },
    Wanted {
        measure: "crowd of 2,000 that stay, 99th percentile, with the bulk lane × without",
        figure: "crowd-stay-p99",
        ..CROWD_LANES
    },
    Wanted {
        measure: "crowd of 2,000 short connections, 99th percentile, with the bulk lane × without",
        figure: "crowd-short-p99",
        ..CROWD_LANES
    },
    Wanted {
        measure: "connections that stay, 64 at once, × kernel",
        figure: "persistent",
        bar: 8.0,
        aim: 15.0,
        elsewhere: "F-Stack 5.8 ×",
        ..RATE
    },
    Wanted {
        measure: "one-byte request and response, inline, median, × kernel",
        figure: "latency-p50",
        ..LATENCY
    },
    Wanted {
        measure: "one-byte request and response, inline, 99.9th percentile, × kernel",
        figure: "latency-p999",
        ..LATENCY
    },
    Wanted {
        measure: "longest response at 8,192 connections, µs",
        figure: "table2-max",
        x: 8192.0,
        theirs: None,
        bar: 100_000.0,
        aim: 20_000.0,
        at_most: true,
        elsewhere: "Linux 127 s, mTCP 2.3 s (mTCP's paper)",
        ..RATE
    },
];

/// Adds all goals. Those of which a side was not measured are listed as unmeasured.
pub fn add(outcome: &mut Outcome) {
    for wanted in WANTED {
        let goals = (wanted.bar, wanted.aim);
        let goal = match wanted.at_most {
            true => Goal::at_most(wanted.measure, goals),
            false => Goal::at_least(wanted.measure, goals),
        };
        let found = found(wanted, outcome);
        outcome.judge(goal.elsewhere(wanted.elsewhere), found);
    }
    // The rate at 16,384 connections must keep up with the rate at 64: with our own rate, and with
    // the one that the goal against smoltcp asks for.
    let read = |system: System, x| outcome.median("one-thread", system.name(), x);
    let many = read(System::OneThread, 16_384.0);
    let few = read(System::OneThread, 64.0);
    let wanted = read(System::Smoltcp, 64.0).map(|rate| rate * THREAD.bar);
    for (what, few) in [
        ("our rate at 64", few),
        ("the rate at 64 that is asked for", wanted),
    ] {
        let measure = format!("both ends in one thread, 16,384 at once, × {what}");
        let found = many.zip(few);
        let found = found.map(|(many, few)| (many / few, format!("{many:.0} against {few:.0}")));
        outcome.judge(Goal::at_least(measure, (0.8, 1.0)), found);
    }
}

/// The value, and a text with the systems and their values.
fn found(wanted: &Wanted, outcome: &Outcome) -> Option<(f64, String)> {
    let read = |system: &System| outcome.median(wanted.figure, system.name(), wanted.x);
    let ours = wanted
        .ours
        .iter()
        .filter_map(|system| Some((system, read(system)?)));
    let (best, ours) = match wanted.at_most {
        true => ours.min_by(|a, b| a.1.total_cmp(&b.1))?,
        false => ours.max_by(|a, b| a.1.total_cmp(&b.1))?,
    };
    let Some(system) = wanted.theirs else {
        return Some((ours, best.name().to_owned()));
    };
    let theirs = read(&system)?;
    let mut words = format!("{best}: {ours:.1}; {system}: {theirs:.1}");
    // The bars are multiples of epoll's rate. That of io_uring is shown beside it.
    if system == System::Kernel
        && let Some(uring) = read(&System::KernelUring)
    {
        words += &format!("; {}: {uring:.1}", System::KernelUring);
    }
    Some((ours / theirs, words))
}
