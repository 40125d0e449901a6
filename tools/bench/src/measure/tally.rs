//! Counting transactions: first a warm-up that is not counted, then the time that is. CPU time is
//! that of the same time.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::measure::{Parts, Plan, Times, cpu};

/// A client's results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Transactions of the time that counts.
    pub transactions: u64,
    /// Transactions that failed, at any time.
    pub failures: u64,
    /// Transactions that hang: they were under way when all was over, and had been for all of the
    /// time that counts. So fewer transactions were at once than the plan says.
    #[serde(default)]
    pub stalled: u64,
    /// Transactions that waited longer than [`UNANSWERED_NS`]: those that ended later than that in
    /// the time that counts, and those that had waited as long when all was over.
    #[serde(default)]
    pub unanswered: u64,
    /// Seconds that count.
    pub seconds: f64,
    /// Transactions in a second of the time that counts.
    pub per_second: f64,
    /// Median latency, from the start of a transaction to its end.
    pub latency_us_p50: f64,
    /// 99th percentile of the latency.
    pub latency_us_p99: f64,
    /// 99.9th percentile of the latency.
    pub latency_us_p999: f64,
    /// Mean latency.
    pub latency_us_mean: f64,
    /// Shortest latency.
    #[serde(default)]
    pub latency_us_min: f64,
    /// Longest latency.
    pub latency_us_max: f64,
    /// Standard deviation of the latency.
    #[serde(default)]
    pub latency_us_deviation: f64,
    /// CPU time of the client's process per transaction, of the time that counts.
    pub client_cpu_us: f64,
    /// CPU time of the server's process per transaction, of the time that counts.
    #[serde(default)]
    pub server_cpu_us: f64,
    /// The part of `server_cpu_us` in which the server looked for more before it slept, where it
    /// does that.
    #[serde(default)]
    pub server_looked_us: f64,
    /// Bytes that the server's process came to hold for each idle connection.
    #[serde(default)]
    pub idle_bytes: f64,
    /// Bytes that the server's process holds in all, when the idle connections stand.
    #[serde(default)]
    pub held_bytes: f64,
    /// Cycles of the server by stage, per transaction, if it was built to count them.
    #[serde(default)]
    pub stages: Vec<(String, f64)>,
    /// Frames that the devices between the two sides dropped, warm-up included, where they count.
    #[serde(default)]
    pub dropped_by_wire: u64,
    /// Frames and segments that the server's port or stack dropped, warm-up included.
    #[serde(default)]
    pub dropped_by_server: u64,
    /// Counters that tell of losses, of both sides, warm-up included.
    #[serde(default)]
    pub losses: Vec<(String, u64)>,
    /// Transactions with those of the warm-up.
    pub transactions_all: u64,
    /// Name and distribution of each part of a transaction, where the plan asks for them.
    #[serde(default)]
    pub parts: Vec<(String, Times)>,
    /// Numbers of the server's turns by the size of a batch, in powers of two, for each kind of
    /// batch, where the server counts them.
    #[serde(default)]
    pub batches: Vec<Batches>,
    /// Samples of both processes by category, where they were taken.
    #[serde(default)]
    pub samples: Vec<(String, u64)>,
}

/// The sizes of one kind of batch over the turns of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Batches {
    /// `jobs`, `events`, ...
    pub name: String,
    /// Turns with work; bucket *n* has the batches below 2^*n*, from 2^(*n*-1) on.
    pub turns: Vec<u64>,
    /// Members of all batches.
    pub sum: u64,
}

impl Batches {
    /// The turns since an earlier count.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = before.turns.iter().chain(std::iter::repeat(&0));
        let turns = self.turns.iter().zip(earlier);
        Self {
            name: self.name.clone(),
            turns: turns.map(|(now, then)| now.saturating_sub(*then)).collect(),
            sum: self.sum.saturating_sub(before.sum),
        }
    }

    /// The largest size of each bucket, and the percentage of all turns whose batch is of it. Only
    /// turns with a batch that is not empty count. Buckets beyond the last one in use are left out.
    pub fn shares(&self) -> Vec<(f64, f64)> {
        let all: u64 = self.turns.iter().skip(1).sum();
        let used = self.turns.iter().rposition(|&turns| turns > 0);
        let share = |n: usize| {
            let largest = (1u64 << n) - 1;
            (largest as f64, self.turns[n] as f64 * 100.0 / all as f64)
        };
        let last = used.unwrap_or(0);
        (1..=last).map(share).collect()
    }

    /// Members of a batch that is not empty, on average.
    pub fn mean(&self) -> Option<f64> {
        let all: u64 = self.turns.iter().skip(1).sum();
        (all > 0).then(|| self.sum as f64 / all as f64)
    }
}

/// Failures beyond this end the run: something is broken, and a rate would mean nothing.
const FAILURES_MAX: u64 = 10_000;
/// A transaction that takes so many times longer than the mean, and is not over, hangs.
const STALLED_MEANS: f64 = 10.0;
/// A request that is answered later counts as unanswered: users and load generators give up.
pub const UNANSWERED_NS: u64 = 2_000_000_000;
/// Digits to which quantiles of latencies are right.
const DIGITS: u8 = 2;
/// Latencies from here on count as this in quantiles: ten minutes.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// The count of one client.
#[derive(Clone, Debug)]
pub struct Tally {
    start: Instant,
    /// Nanoseconds since `start` at the last look at the clock: one look per batch of events.
    now_ns: u64,
    warm_up_ns: u64,
    end_ns: u64,
    /// Number of transactions that ends the run; `u64::MAX` where the time does.
    transactions_end: u64,
    /// The parent is told when the warm-up is over.
    announces: bool,
    /// Time at which the warm-up was over, and CPU time used by then, in nanoseconds.
    counted_from: Option<(u64, u64)>,
    transactions: u64,
    transactions_all: u64,
    failures: u64,
    unanswered: u64,
    latencies: Histogram<u32>,
    latency_ns_sum: u64,
    latency_ns_squares: f64,
    latency_ns_min: u64,
    latency_ns_max: u64,
    /// Waiting times of the transactions that were not over at the end.
    left_ns: Vec<u64>,
    /// Distributions of the transactions' parts, where they are wanted.
    parts: Option<Box<Parts>>,
}

impl Tally {
    /// A tally whose time begins now.
    pub fn new(plan: &Plan) -> Self {
        let ns = |seconds: f64| Duration::from_secs_f64(seconds).as_nanos() as u64;
        let by_number = plan.transactions > 0;
        let latencies = Histogram::new_with_max(LATENCY_NS_MAX, DIGITS);
        Self {
            start: Instant::now(),
            now_ns: 0,
            warm_up_ns: if by_number { 0 } else { ns(plan.warm_up) },
            end_ns: if by_number {
                u64::MAX
            } else {
                ns(plan.warm_up) + ns(plan.seconds)
            },
            transactions_end: match plan.transactions {
                0 => u64::MAX,
                count => count,
            },
            announces: false,
            counted_from: None,
            transactions: 0,
            transactions_all: 0,
            failures: 0,
            unanswered: 0,
            latencies: latencies.expect("two digits and ten minutes are bounds that it takes"),
            latency_ns_sum: 0,
            latency_ns_squares: 0.0,
            latency_ns_min: u64::MAX,
            latency_ns_max: 0,
            left_ns: Vec::new(),
            parts: plan.parts.then(Box::default),
        }
    }

    /// A tally that also says on stdout when the warm-up is over: `{"begin":true}`.
    pub fn announcing(plan: &Plan) -> Self {
        Self {
            announces: true,
            ..Self::new(plan)
        }
    }

    /// Looks at the clock: once for each batch of events.
    pub fn look(&mut self) {
        // A run with an end by number is one whose instructions are counted. Nothing may depend on
        // how long they took, so all times stay 0.
        if self.transactions_end == u64::MAX {
            self.now_ns = self.start.elapsed().as_nanos() as u64;
        }
        if self.counted_from.is_none() && self.now_ns >= self.warm_up_ns {
            self.begin();
        }
    }

    /// False when the run is over: by time as of the last look, by number, or after too many
    /// failures.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.now_ns < self.end_ns
            && self.transactions_all < self.transactions_end
            && self.failures <= FAILURES_MAX
    }

    #[cold]
    fn begin(&mut self) {
        self.counted_from = Some((self.now_ns, cpu::own_time_ns()));
        if self.announces {
            println!("{{\"begin\":true}}");
            // A parent that has gone shows when the results are printed.
            let _ = io::stdout().flush();
        }
    }

    /// Nanoseconds since the start, as of the last look at the clock.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Counts a transaction that began at `started_ns` and is over.
    pub fn succeed(&mut self, started_ns: u64) {
        self.transactions_all += 1;
        if self.counted_from.is_none() {
            return;
        }
        self.transactions += 1;
        if self.transactions_end != u64::MAX {
            return;
        }
        let latency_ns = self.now_ns - started_ns;
        self.latency_ns_min = self.latency_ns_min.min(latency_ns);
        self.latency_ns_max = self.latency_ns_max.max(latency_ns);
        self.latency_ns_sum += latency_ns;
        self.latency_ns_squares += (latency_ns as f64) * (latency_ns as f64);
        self.record(latency_ns);
    }

    /// Like [`succeed`](Self::succeed), of a transaction whose connection was open at `opened_ns`.
    pub fn succeed_in_parts(&mut self, started_ns: u64, opened_ns: u64) {
        let counts = self.counted_from.is_some();
        if let Some(parts) = self.parts.as_deref_mut().filter(|_| counts) {
            parts.record(started_ns, opened_ns, self.now_ns);
        }
        self.succeed(started_ns);
    }

    fn record(&mut self, latency_ns: u64) {
        self.unanswered += u64::from(latency_ns > UNANSWERED_NS);
        self.latencies.saturating_record(latency_ns);
    }

    /// Notes a transaction that began at `started_ns` and is not over at the end: it may be the
    /// longest. One that counts as unanswered is part of the quantiles. Otherwise a server that
    /// answers nobody would have the best of them.
    pub fn leave_open(&mut self, started_ns: u64) {
        if self.counted_from.is_some() && self.transactions_end == u64::MAX {
            let waited_ns = self.now_ns.saturating_sub(started_ns);
            self.latency_ns_max = self.latency_ns_max.max(waited_ns);
            self.left_ns.push(waited_ns);
            if waited_ns > UNANSWERED_NS {
                self.record(waited_ns);
            }
        }
    }

    /// Adds what another thread counted over the same time.
    pub fn merge(&mut self, other: &Self) {
        self.now_ns = self.now_ns.max(other.now_ns);
        self.transactions += other.transactions;
        self.transactions_all += other.transactions_all;
        self.latency_ns_sum += other.latency_ns_sum;
        self.latency_ns_squares += other.latency_ns_squares;
        self.latency_ns_min = self.latency_ns_min.min(other.latency_ns_min);
        self.latency_ns_max = self.latency_ns_max.max(other.latency_ns_max);
        self.failures += other.failures;
        self.unanswered += other.unanswered;
        self.left_ns.extend_from_slice(&other.left_ns);
        if let (Some(parts), Some(others)) = (&mut self.parts, &other.parts) {
            parts.merge(others);
        }
        self.latencies
            .add(&other.latencies)
            .expect("both have the same bounds");
    }

    /// Counts a failure. The first one is printed with its cause.
    pub fn fail(&mut self, cause: &dyn std::fmt::Display) {
        if self.failures == 0 {
            eprintln!("first failed transaction: {cause}");
        }
        self.failures += 1;
    }

    /// The results, at the end.
    pub fn seen(&self) -> Seen {
        let (from_ns, cpu_from_ns) = self
            .counted_from
            .unwrap_or_else(|| (self.now_ns, cpu::own_time_ns()));
        let seconds = self.now_ns.saturating_sub(from_ns) as f64 / 1e9;
        let cpu_ns = cpu::own_time_ns().saturating_sub(cpu_from_ns);
        let count = self.transactions.max(1) as f64;
        let mean_ns = self.latency_ns_sum as f64 / count;
        let variance = self.latency_ns_squares / count - mean_ns * mean_ns;
        let hangs_ns = (mean_ns * STALLED_MEANS).max(seconds * 1e9);
        let stalled = self.left_ns.iter().filter(|&&ns| ns as f64 >= hangs_ns);
        let us = |quantile: f64| self.latencies.value_at_quantile(quantile) as f64 / 1e3;
        Seen {
            transactions: self.transactions,
            transactions_all: self.transactions_all,
            failures: self.failures,
            unanswered: self.unanswered,
            stalled: stalled.count() as u64,
            seconds,
            per_second: if seconds > 0.0 {
                self.transactions as f64 / seconds
            } else {
                0.0
            },
            latency_us_p50: us(0.5),
            latency_us_p99: us(0.99),
            latency_us_p999: us(0.999),
            latency_us_mean: mean_ns / 1e3,
            latency_us_min: self.latency_ns_min.min(self.latency_ns_max) as f64 / 1e3,
            latency_us_max: self.latency_ns_max as f64 / 1e3,
            latency_us_deviation: variance.max(0.0).sqrt() / 1e3,
            client_cpu_us: cpu_ns as f64 / 1e3 / count,
            parts: self
                .parts
                .as_ref()
                .map_or(Vec::new(), |parts| parts.times()),
            ..Seen::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two seconds of which the first is the warm-up, moved by hand.
    fn tally() -> Tally {
        Tally::new(&Plan {
            warm_up: 1.0,
            seconds: 1.0,
            ..Plan::default()
        })
    }

    fn look_at(tally: &mut Tally, now_ns: u64) -> bool {
        tally.start = Instant::now() - Duration::from_nanos(now_ns);
        tally.look();
        tally.goes_on()
    }

    #[test]
    fn warm_up_counts_for_nothing() {
        let mut tally = tally();
        assert!(look_at(&mut tally, 500_000_000));
        tally.succeed(0);
        let until_ns = cpu::own_time_ns() + 50_000_000;
        while cpu::own_time_ns() < until_ns {}
        assert!(look_at(&mut tally, 1_500_000_000));
        tally.succeed(1_400_000_000);
        tally.succeed(1_400_000_000);
        assert!(!look_at(&mut tally, 2_000_000_000));
        let seen = tally.seen();
        assert_eq!((seen.transactions, seen.transactions_all), (2, 3));
        assert!((seen.seconds - 0.5).abs() < 0.01, "{}", seen.seconds);
        assert!((seen.per_second - 4.0).abs() < 0.1, "{}", seen.per_second);
        // The 50 ms of CPU time in the warm-up do not count.
        assert!(seen.client_cpu_us < 20_000.0, "{}", seen.client_cpu_us);
    }

    #[test]
    fn longest_may_be_one_that_never_ended() {
        let mut tally = tally();
        look_at(&mut tally, 1_200_000_000);
        tally.succeed(tally.now_ns - 1_000_000);
        look_at(&mut tally, 1_900_000_000);
        tally.leave_open(1_200_000_000);
        let seen = tally.seen();
        assert!((seen.latency_us_max - 7e5).abs() < 1e4, "{seen:?}");
        assert_eq!(seen.transactions, 1);
    }

    #[test]
    fn who_hangs_is_told_from_who_is_slow() {
        let left = |taken_ns: u64, waited_ns: u64| {
            let mut tally = tally();
            look_at(&mut tally, 1_000_000_000);
            look_at(&mut tally, 2_000_000_000);
            tally.succeed(tally.now_ns - taken_ns);
            tally.leave_open(tally.now_ns - waited_ns);
            tally.seen().stalled
        };
        assert_eq!(left(1_000_000, 1_500_000_000), 1);
        // The transaction began in the time that counts.
        assert_eq!(left(1_000_000, 500_000_000), 0);
        // All are as slow.
        assert_eq!(left(1_000_000_000, 1_500_000_000), 0);
    }

    #[test]
    fn request_without_an_answer_in_two_seconds_is_unanswered() {
        let mut tally = tally();
        look_at(&mut tally, 5_000_000_000);
        tally.succeed(tally.now_ns - 1_900_000_000);
        tally.succeed(tally.now_ns - 2_100_000_000);
        tally.leave_open(tally.now_ns - 1_900_000_000);
        tally.leave_open(tally.now_ns - 4_000_000_000);
        let seen = tally.seen();
        assert_eq!((seen.transactions, seen.unanswered), (2, 2));
        // The one without an end is part of the quantiles.
        assert!(seen.latency_us_p99 > 3.9e6, "{seen:?}");
    }

    #[test]
    fn quantiles_are_right_to_a_hundredth() {
        let mut tally = tally();
        look_at(&mut tally, 1_000_000_000);
        tally.now_ns = 1_500_000_000;
        for latency_ns in 1_000..2_000 {
            tally.succeed(tally.now_ns - latency_ns);
        }
        tally.succeed(tally.now_ns - 1_000_000_000);
        let seen = tally.seen();
        let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.01;
        assert!(near(seen.latency_us_p50, 1.5), "{seen:?}");
        assert!(near(seen.latency_us_p99, 1.99), "{seen:?}");
        assert_eq!((seen.latency_us_min, seen.latency_us_max), (1.0, 1e6));
        assert!(near(seen.latency_us_mean, 1e6 / 1001.0 + 1.5), "{seen:?}");
        assert!(
            near(seen.latency_us_deviation, 1e6 / 1001f64.sqrt()),
            "{seen:?}"
        );
    }

    #[test]
    fn parts_of_transactions_count_after_the_warm_up_only() {
        let mut tally = Tally::new(&Plan {
            warm_up: 1.0,
            seconds: 1.0,
            parts: true,
            ..Plan::default()
        });
        look_at(&mut tally, 500_000_000);
        tally.succeed_in_parts(0, 1_000);
        look_at(&mut tally, 1_000_000_000);
        tally.now_ns = 1_500_000_000;
        tally.succeed_in_parts(tally.now_ns - 50_000, tally.now_ns - 20_000);
        let seen = tally.seen();
        let means: Vec<f64> = seen.parts.iter().map(|(_, times)| times.mean_us).collect();
        assert_eq!(means, [30.0, 20.0, 50.0]);
    }

    #[test]
    fn batches_are_shares_of_the_turns_that_had_one() {
        let count = |turns: [u64; 4], sum| Batches {
            name: "events".to_owned(),
            turns: turns.to_vec(),
            sum,
        };
        // Ten turns before the mark, eight after it: four without an event.
        let batches = count([9, 4, 3, 2], 30).since(&count([5, 2, 2, 1], 16));
        assert_eq!(batches, count([4, 2, 1, 1], 14));
        assert_eq!(batches.shares(), [(1.0, 50.0), (3.0, 25.0), (7.0, 25.0)]);
        assert_eq!(batches.mean(), Some(3.5));
        assert!(count([7, 0, 0, 0], 0).shares().is_empty());
        assert_eq!(count([7, 0, 0, 0], 0).mean(), None);
    }

    #[test]
    fn two_threads_are_one_tally() {
        let (mut one, mut other) = (tally(), tally());
        for (tally, latency_ns) in [(&mut one, 2_000), (&mut other, 4_000)] {
            look_at(tally, 1_000_000_000);
            tally.now_ns = 2_000_000_000;
            tally.succeed(tally.now_ns - latency_ns);
        }
        one.merge(&other);
        let seen = one.seen();
        assert_eq!(seen.transactions, 2);
        assert_eq!(seen.latency_us_mean, 3.0);
        assert_eq!((seen.latency_us_min, seen.latency_us_max), (2.0, 4.0));
        assert!((seen.latency_us_deviation - 1.0).abs() < 1e-6);
    }
}
