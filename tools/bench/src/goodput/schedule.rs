//! The order of the transfers: the cells of one loss rate together, on as many wires at once as
//! that rate allows.

use std::sync::{Mutex, PoisonError};
use std::thread;

use super::{Cell, GoodputOptions, Measured, PAIRS, Pair, table, world};
use mill::failure::Failure;

/// The cells of one loss rate.
struct Part {
    cells: Vec<Cell>,
    seconds: f64,
    jobs: u32,
}

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

/// A value for each loss rate; a single value stands for all.
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

/// Runs every cell with every seed, and every pair. The pairs of a seed follow each other, so that
/// they meet the same machine.
fn run(options: &GoodputOptions, part: &Part) -> Result<Vec<Measured>, String> {
    let count = part.cells.len() * options.seeds as usize * PAIRS.len();
    let turns = Mutex::new(0..count);
    let next = || turns.lock().unwrap_or_else(PoisonError::into_inner).next();
    let worker = |job: u32| {
        let mut done = Vec::new();
        while let Some(turn) = next() {
            let transfer = transfer(options, part, turn, job);
            done.push((turn, world::run(options, &transfer)?));
        }
        Ok::<_, String>(done)
    };
    let mut done = thread::scope(|scope| {
        let workers: Vec<_> = (0..part.jobs)
            .map(|job| scope.spawn(move || worker(job)))
            .collect();
        let mut all = Vec::with_capacity(count);
        for worker in workers {
            let done = worker.join().map_err(|_| "a worker panicked".to_owned())?;
            all.extend(done?);
        }
        Ok::<_, String>(all)
    })?;
    done.sort_unstable_by_key(|(turn, _)| *turn);
    let rates: Vec<f64> = done.into_iter().map(|(_, rate)| rate).collect();
    let cells = part
        .cells
        .iter()
        .zip(rates.chunks(count / part.cells.len()));
    Ok(cells
        .map(|(cell, rates)| measured(part, cell, rates))
        .collect())
}

/// The transfer whose turn it is: pair by pair, seed by seed, cell by cell.
fn transfer<'a>(
    options: &GoodputOptions,
    part: &'a Part,
    turn: usize,
    job: u32,
) -> world::Transfer<'a> {
    let seeds = options.seeds as usize;
    let (row, pair) = (turn / PAIRS.len(), PAIRS[turn % PAIRS.len()]);
    world::Transfer {
        cell: &part.cells[row / seeds],
        pair,
        seconds: part.seconds,
        // The cast is safe: there are at most 1,000 seeds.
        seed: (row % seeds) as u32 + 1,
        job,
    }
}

/// Statistics of a cell's transfers.
fn measured(part: &Part, cell: &Cell, rates: &[f64]) -> Measured {
    let column = |pair: Pair| rates.iter().skip(pair as usize).step_by(PAIRS.len());
    let measured = Measured {
        cell: cell.clone(),
        seconds: part.seconds,
        mbit_per_second: PAIRS.map(|pair| column(pair).copied().collect()),
    };
    eprintln!("{}", table::row(&measured));
    measured
}
