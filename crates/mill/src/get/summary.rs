//! The result of a load: rates, latencies, and failures by cause.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Largest recorded latency in ns; longer ones count as this. Three digits are recorded.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
const DIGITS: u8 = 3;

/// Counts of a running load.
pub struct Summary {
    connections: usize,
    keep_alive: bool,
    latencies_ns: Histogram<u64>,
    bytes: u64,
    failures: BTreeMap<String, u64>,
    /// The stack's counters other than zero; set at the end.
    pub stack: BTreeMap<&'static str, u64>,
}

/// The output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    connections: usize,
    keep_alive: bool,
    requests: u64,
    failed: u64,
    failures: &'a BTreeMap<String, u64>,
    seconds: f64,
    requests_per_second: f64,
    content_bytes: u64,
    latency_us: Latency,
    stack: &'a BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct Latency {
    min: f64,
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl Summary {
    pub fn new(connections: usize, keep_alive: bool) -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            connections,
            keep_alive,
            latencies_ns: Histogram::new_with_max(LATENCY_NS_MAX, DIGITS)?,
            bytes: 0,
            failures: BTreeMap::new(),
            stack: BTreeMap::new(),
        })
    }

    pub fn succeed(&mut self, latency_ns: u64, content_bytes: u64) {
        self.latencies_ns.saturating_record(latency_ns);
        self.bytes += content_bytes;
    }

    pub fn fail(&mut self, cause: &str) {
        *self.failures.entry(cause.to_owned()).or_default() += 1;
    }

    /// Number of requests that have ended, successfully or not.
    pub fn requests(&self) -> u64 {
        self.latencies_ns.len() + self.failures()
    }

    pub fn failures(&self) -> u64 {
        self.failures.values().sum()
    }

    pub fn to_json(&self, time: Duration) -> String {
        serde_json::json!(self.report(time)).to_string()
    }

    pub fn to_text(&self, time: Duration) -> String {
        let report = self.report(time);
        let mut text = String::new();
        let how = if report.keep_alive {
            "kept alive"
        } else {
            "one request each"
        };
        let connections = report.connections;
        let _ = writeln!(
            text,
            "{} requests over {connections} connections at once, {how}",
            report.requests
        );
        let _ = writeln!(
            text,
            "{:.2} s, {:.0} requests/s",
            report.seconds, report.requests_per_second
        );
        let megabytes = report.content_bytes as f64 / 1e6;
        let _ = writeln!(
            text,
            "{megabytes:.1} MB of content, {:.1} MB/s",
            megabytes / report.seconds
        );
        let Latency {
            min,
            mean,
            p50,
            p90,
            p99,
            p999,
            max,
        } = report.latency_us;
        let _ = writeln!(
            text,
            "latency in µs: min {min:.0}, mean {mean:.0}, max {max:.0}"
        );
        let _ = writeln!(
            text,
            "  50% {p50:.0}, 90% {p90:.0}, 99% {p99:.0}, 99.9% {p999:.0}"
        );
        for (cause, count) in report.failures {
            let _ = writeln!(text, "failed: {count} × {cause}");
        }
        text
    }

    fn report(&self, time: Duration) -> Report<'_> {
        let seconds = time.as_secs_f64().max(f64::MIN_POSITIVE);
        let us = |ns: u64| ns as f64 / 1e3;
        let quantile = |quantile: f64| us(self.latencies_ns.value_at_quantile(quantile));
        Report {
            connections: self.connections,
            keep_alive: self.keep_alive,
            requests: self.requests(),
            failed: self.failures(),
            failures: &self.failures,
            seconds,
            requests_per_second: self.latencies_ns.len() as f64 / seconds,
            content_bytes: self.bytes,
            latency_us: Latency {
                min: us(self.latencies_ns.min()),
                mean: self.latencies_ns.mean() / 1e3,
                p50: quantile(0.5),
                p90: quantile(0.9),
                p99: quantile(0.99),
                p999: quantile(0.999),
                max: us(self.latencies_ns.max()),
            },
            stack: &self.stack,
        }
    }
}
