//! Counting transactions: first a warm-up that is not counted, then the time that is.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Plan, cpu};

/// What a client saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Transactions of the time that counts.
    pub transactions: u64,
    /// Transactions that failed, at any time.
    pub failures: u64,
    /// The time that counts.
    pub seconds: f64,
    /// Transactions of it in a second.
    pub per_second: f64,
    /// From the start of a transaction to its end: the median.
    pub latency_us_p50: f64,
    /// Its 99th percentile.
    pub latency_us_p99: f64,
    /// Its 99.9th percentile.
    pub latency_us_p999: f64,
    /// Its mean.
    pub latency_us_mean: f64,
    /// The longest.
    pub latency_us_max: f64,
    /// CPU time of the client's process per transaction.
    pub client_cpu_us: f64,
    /// CPU time of the server's process per transaction.
    #[serde(default)]
    pub server_cpu_us: f64,
    /// The part of it in which the server looked for more before it slept, where it does that.
    #[serde(default)]
    pub server_looked_us: f64,
    /// Bytes that the server's process came to hold for each idle connection.
    #[serde(default)]
    pub idle_bytes: f64,
    /// Bytes that the server's process held then in all.
    #[serde(default)]
    pub held_bytes: f64,
    /// Where the server's cycles went, per transaction, if it was built to know.
    #[serde(default)]
    pub stages: Vec<(String, f64)>,
    /// Transactions with those of the warm-up.
    pub transactions_all: u64,
}

/// Failures beyond this end the run: something is broken, and a rate would mean nothing.
const FAILURES_MAX: u64 = 10_000;
/// Latencies are kept in steps of this.
const STEP_NS: u64 = 250;
/// Latencies from here on count as this.
const STEPS: usize = 8_000_000;

/// The count of one client.
#[derive(Clone, Debug)]
pub struct Tally {
    start: Instant,
    /// As of the last look at the clock: one look per batch of events.
    now_ns: u64,
    counted_from_ns: u64,
    end_ns: u64,
    transactions: u64,
    transactions_all: u64,
    cpu_from_ns: u64,
    /// How many took so many steps.
    latencies: Vec<u32>,
    latency_ns_sum: u64,
    /// The end by number rather than by time.
    transactions_end: u64,
    latency_ns_max: u64,
    failures: u64,
}

impl Tally {
    /// The time begins now.
    pub fn new(plan: &Plan) -> Self {
        let ns = |seconds: f64| Duration::from_secs_f64(seconds).as_nanos() as u64;
        let by_number = plan.transactions > 0;
        Self {
            start: Instant::now(),
            now_ns: 0,
            counted_from_ns: if by_number { 0 } else { ns(plan.warm_up) },
            end_ns: if by_number {
                u64::MAX
            } else {
                ns(plan.warm_up) + ns(plan.seconds)
            },
            transactions: 0,
            transactions_all: 0,
            cpu_from_ns: cpu::own_time_ns(),
            latencies: vec![0; STEPS],
            latency_ns_sum: 0,
            transactions_end: match plan.transactions {
                0 => u64::MAX,
                count => count,
            },
            latency_ns_max: 0,
            failures: 0,
        }
    }

    /// Looks at the clock. False when the time is over.
    pub fn goes_on(&mut self) -> bool {
        // Where instructions are counted, nothing may depend on how long they took: all times stay 0.
        if self.transactions_end == u64::MAX {
            self.now_ns = self.start.elapsed().as_nanos() as u64;
        }
        self.now_ns < self.end_ns
            && self.transactions_all < self.transactions_end
            && self.failures <= FAILURES_MAX
    }

    /// As of the last look at the clock, from the start.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// A transaction that began at `started_ns` is over.
    pub fn succeed(&mut self, started_ns: u64) {
        self.transactions_all += 1;
        if self.now_ns < self.counted_from_ns {
            return;
        }
        self.transactions += 1;
        let latency_ns = self.now_ns - started_ns;
        self.latency_ns_max = self.latency_ns_max.max(latency_ns);
        self.latency_ns_sum += latency_ns;
        let step = (latency_ns / STEP_NS) as usize;
        self.latencies[step.min(STEPS - 1)] += 1;
    }

    /// Adds what another thread counted over the same time.
    pub fn merge(&mut self, other: &Self) {
        self.now_ns = self.now_ns.max(other.now_ns);
        self.transactions += other.transactions;
        self.transactions_all += other.transactions_all;
        self.latency_ns_sum += other.latency_ns_sum;
        self.latency_ns_max = self.latency_ns_max.max(other.latency_ns_max);
        self.failures += other.failures;
        for (own, other) in self.latencies.iter_mut().zip(&other.latencies) {
            *own += other;
        }
    }

    /// The first one is said in words.
    pub fn fail(&mut self, cause: &dyn std::fmt::Display) {
        if self.failures == 0 {
            eprintln!("first failed transaction: {cause}");
        }
        self.failures += 1;
    }

    /// What was seen, at the end.
    pub fn seen(&self) -> Seen {
        let seconds = self.now_ns.saturating_sub(self.counted_from_ns) as f64 / 1e9;
        let cpu_ns = cpu::own_time_ns() - self.cpu_from_ns;
        Seen {
            client_cpu_us: cpu_ns as f64 / 1e3 / self.transactions_all.max(1) as f64,
            server_cpu_us: 0.0,
            server_looked_us: 0.0,
            idle_bytes: 0.0,
            held_bytes: 0.0,
            stages: Vec::new(),
            transactions_all: self.transactions_all,
            transactions: self.transactions,
            failures: self.failures,
            seconds,
            per_second: if seconds > 0.0 {
                self.transactions as f64 / seconds
            } else {
                0.0
            },
            latency_us_p50: self.quantile_us(0.5),
            latency_us_p99: self.quantile_us(0.99),
            latency_us_p999: self.quantile_us(0.999),
            latency_us_mean: self.latency_ns_sum as f64 / 1e3 / self.transactions.max(1) as f64,
            latency_us_max: self.latency_ns_max as f64 / 1e3,
        }
    }

    fn quantile_us(&self, quantile: f64) -> f64 {
        let wanted = (self.transactions as f64 * quantile).ceil() as u64;
        let mut passed = 0;
        let step = self.latencies.iter().position(|&count| {
            passed += u64::from(count);
            passed >= wanted
        });
        step.unwrap_or(0) as f64 * STEP_NS as f64 / 1e3
    }
}
