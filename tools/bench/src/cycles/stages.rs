//! Cycles of the server, stage by stage of the turn: Millstream over memif, by a `bench` that was
//! built with the feature `stage-cycles`.

use std::path::Path;

use crate::measure::Plan;

use crate::frame::{Figure, Outcome, Point, Series, Spread};
use crate::message::System;
use crate::message::sides::{self, Run};

const RUNS: usize = 3;
const SECONDS: f64 = 2.0;
const WARM_UP: f64 = 0.5;
const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
/// Microseconds that a stack looks for work before it sleeps: looking would be counted as work.
const SPIN_US: u64 = 0;

/// Adds the figures. A failure becomes a note.
pub fn add(program: &Path, outcome: &mut Outcome) {
    outcome.parameter(
        "stages",
        format!(
            "{RUNS} runs of {SECONDS} s after {WARM_UP} s, server on core {SERVER_CORE} and client on core {CLIENT_CORE}, stacks that look for {SPIN_US} µs before they \
             sleep; the server is {}, a build without a profile",
            program.display()
        ),
    );
    for (id, connections) in [("stages-64", 64), ("stages-8192", 8_192)] {
        match figure(program, id, connections) {
            Ok(figure) => outcome.add(figure),
            Err(cause) => outcome.notes.push(format!("{id}: {cause}")),
        }
    }
}

fn figure(program: &Path, id: &str, connections: usize) -> Result<Figure, String> {
    let run = Run {
        plan: Plan {
            connections,
            seconds: SECONDS,
            warm_up: WARM_UP,
            ..Plan::default()
        },
        server_core: SERVER_CORE,
        client_core: CLIENT_CORE,
        spin_us: Some(SPIN_US),
        ..Run::default()
    };
    let mut stages: Vec<(String, Vec<f64>)> = Vec::new();
    for _ in 0..RUNS {
        let seen = sides::run_with(System::Inline, &run, Some(program))?;
        if seen.stages.is_empty() {
            return Err(format!(
                "{}: it was not built with stage-cycles",
                program.display()
            ));
        }
        for (index, (name, cycles)) in seen.stages.into_iter().enumerate() {
            match stages.get_mut(index) {
                Some((_, values)) => values.push(cycles),
                None => stages.push((name, vec![cycles])),
            }
        }
    }
    let series = stages.into_iter().map(|(system, values)| Series {
        system,
        points: vec![Point {
            x: 1.0,
            y: Spread::of(values),
        }],
    });
    Ok(Figure {
        id: id.to_owned(),
        title: format!("Where the server's cycles go, {connections} connections at once"),
        x: "run".to_owned(),
        y: "cycles of the time-stamp counter per transaction (with what reading it takes; `outside` is the application and sleep)"
            .to_owned(),
        falls: true,
        compares: false,
        series: series.collect(),
    })
}
