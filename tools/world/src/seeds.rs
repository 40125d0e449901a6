//! Runs of many seeds on many threads, in order, until enough have failed or none is left.

use std::sync::{Mutex, PoisonError};

use super::run::{Failure, Options, Summary, check};

/// One seed in so many is run twice.
const TWICE_EVERY: u64 = 20;

/// The seeds to be run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The first seed.
    pub first: u64,
    /// Number of seeds.
    pub count: u64,
    /// Distance from one seed to the next.
    pub step: u64,
    /// Number of threads.
    pub jobs: usize,
    /// Number of failures after which no more seeds are run.
    pub failures_max: usize,
    /// Options of each run.
    pub options: Options,
}

/// The results of a campaign.
#[derive(Default)]
pub struct Report {
    /// Number of seeds that were run.
    pub seeds: u64,
    /// Sums of their figures.
    pub total: Summary,
    /// The failures, in the order of the seeds.
    pub failures: Vec<Box<Failure>>,
}

struct Progress {
    next: u64,
    report: Report,
}

/// Runs a campaign, and calls `each` with every failure as it is found.
pub fn run(campaign: &Campaign, each: impl Fn(&Failure) + Sync) -> Report {
    let progress = Mutex::new(Progress {
        next: campaign.first,
        report: Report::default(),
    });
    std::thread::scope(|scope| {
        for _ in 0..campaign.jobs.max(1) {
            scope.spawn(|| work(campaign, &progress, &each));
        }
    });
    let mut report = progress
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .report;
    report.failures.sort_by_key(|failure| failure.seed);
    report
}

fn work(campaign: &Campaign, progress: &Mutex<Progress>, each: &impl Fn(&Failure)) {
    let end = campaign
        .first
        .saturating_add(campaign.count.saturating_mul(campaign.step));
    loop {
        let seed = {
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            let enough = progress.report.failures.len() >= campaign.failures_max.max(1);
            if progress.next >= end || enough {
                return;
            }
            progress.next += campaign.step.max(1);
            progress.next - campaign.step.max(1)
        };
        let options = Options {
            twice: campaign.options.twice || seed.is_multiple_of(TWICE_EVERY),
            ..campaign.options
        };
        let outcome = check(seed, &options);
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        let report = &mut progress.report;
        report.seeds += 1;
        match outcome {
            Ok(summary) => report.total.add(&summary),
            Err(failure) => {
                each(&failure);
                report.failures.push(failure);
            }
        }
    }
}

impl Summary {
    fn add(&mut self, other: &Self) {
        self.trace ^= other.trace;
        self.events += other.events;
        self.ended_ns += other.ended_ns;
        self.ends += other.ends;
        self.done += other.done;
        self.failed += other.failed;
        self.abandoned += other.abandoned;
    }
}
