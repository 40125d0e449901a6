//! Which transfer runs when: the cells of one loss rate together, as many wires at once as it allows.

use std::sync::{Mutex, PoisonError};
use std::thread;

use super::{Cell, GoodputOptions, Measured, PAIRS, Pair, table, world};
use crate::failure::Failure;

/// The cells of one loss rate.
struct Part {
    cells: Vec<Cell>,
    seconds: f64,
    jobs: u32,
}

/// Megabits per second of one seed, in the order of [`PAIRS`].
type Row = [f64; 3];

/// Measures every cell; in the order of the table.
pub fn measure(options: &GoodputOptions) -> Result<Vec<Measured>, Failure> {
    let mut columns = Vec::new();
    for part in parts(options)? {
        columns.push(run(options, &part).map_err(Failure::Run)?.into_iter());
    }
    let rows = options.reorder.len() * options.delay.len();
    let turns = (0..rows).flat_map(|_| 0..options.loss.len());
    Ok(turns.filter_map(|loss| columns[loss].next()).collect())
}

fn parts(options: &GoodputOptions) -> Result<Vec<Part>, Failure> {
    let seconds = for_each_loss("seconds", options, &options.seconds)?;
    let jobs = for_each_loss("jobs", options, &options.jobs)?;
    let parts = options.loss.iter().zip(seconds).zip(jobs);
    Ok(parts
        .map(|((loss, seconds), jobs)| Part {
            cells: cells(options, loss),
            seconds,
            jobs,
        })
        .collect())
}

/// One value stands for all.
fn for_each_loss<T: Copy>(
    name: &str,
    options: &GoodputOptions,
    values: &[T],
) -> Result<Vec<T>, Failure> {
    let losses = options.loss.len();
    match *values {
        [value] => Ok(vec![value; losses]),
        _ if values.len() == losses => Ok(values.to_vec()),
        _ => Err(Failure::Usage(format!(
            "--{name}: {} values for {losses} of --loss",
            values.len()
        ))),
    }
}

fn cells(options: &GoodputOptions, loss: &str) -> Vec<Cell> {
    let mut cells = Vec::new();
    for reorder in &options.reorder {
        for delay in &options.delay {
            cells.push(Cell {
                loss: loss.to_owned(),
                delay: delay.clone(),
                reorder: reorder.clone(),
            });
        }
    }
    cells
}

/// Every cell with every seed. The pairs of a seed take turns, so that they meet the same machine.
fn run(options: &GoodputOptions, part: &Part) -> Result<Vec<Measured>, String> {
    let seeds = options.seeds as usize;
    let turns = Mutex::new(0..part.cells.len() * seeds);
    let next = || turns.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = |job: u32| {
        let mut rows = Vec::new();
        while let Some(turn) = next() {
            let cell = &part.cells[turn / seeds];
            // There are a thousand at most.
            let seed = (turn % seeds) as u32 + 1;
            let mut row = [0.0; 3];
            for pair in PAIRS {
                let transfer = world::Transfer {
                    cell,
                    pair,
                    seconds: part.seconds,
                    seed,
                    job,
                };
                row[pair as usize] = world::run(options, &transfer)?;
            }
            eprintln!("{}, seed {seed}: {row:.3?}", cell.name());
            rows.push((turn, row));
        }
        Ok::<_, String>(rows)
    };
    let mut rows = thread::scope(|scope| {
        let workers: Vec<_> = (0..part.jobs)
            .map(|job| scope.spawn(move || worker(job)))
            .collect();
        let mut rows = Vec::new();
        for worker in workers {
            let done = worker.join().map_err(|_| "a worker panicked".to_owned())?;
            rows.extend(done?);
        }
        Ok::<_, String>(rows)
    })?;
    rows.sort_unstable_by_key(|(turn, _)| *turn);
    let rows: Vec<Row> = rows.into_iter().map(|(_, row)| row).collect();
    let cells = part.cells.iter().zip(rows.chunks(seeds));
    Ok(cells
        .map(|(cell, rows)| measured(part, cell, rows))
        .collect())
}

fn measured(part: &Part, cell: &Cell, rows: &[Row]) -> Measured {
    let column = |pair: Pair| rows.iter().map(|row| row[pair as usize]).collect();
    let measured = Measured {
        cell: cell.clone(),
        seconds: part.seconds,
        mbit_per_second: PAIRS.map(column),
    };
    eprintln!("{}", table::row(&measured));
    measured
}
