//! Values as OpenMetrics, by `prometheus-client`. Labels name process, context and port. Drops have
//! a reason label, retransmissions a cause label. There are no labels for connections.

use std::collections::BTreeMap;
use std::fmt::Error;

use observe::layout::Kind;
use observe::reader::{ContextValues, Name, Value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::processes::{Snapshot, is_drop};

/// The media type of the page.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The label of a histogram's last bucket, as `prometheus-client` expects it.
const INFINITE: f64 = f64::INFINITY;
const NS: f64 = 1e9;

/// The page of these processes.
pub fn open_metrics(snapshots: Vec<Snapshot>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(All(snapshots)));
    let mut page = String::new();
    // Writing to memory does not fail.
    let _ = text::encode(&mut page, &registry);
    page
}

/// The page in the older text format. There a counter's or an info's type has the name of its
/// samples, and an info is a gauge.
pub fn for_text_file(page: &str) -> String {
    let suffixes: BTreeMap<&str, &str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .filter_map(|(name, kind)| match kind {
            "counter" => Some((name, "_total")),
            "info" => Some((name, "_info")),
            _ => None,
        })
        .collect();
    let mut text = String::new();
    for line in page.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => continue,
            (Some("#"), Some(what), Some(name), Some(rest)) => {
                let suffix = suffixes.get(name).copied().unwrap_or_default();
                let rest = match (what, rest) {
                    ("TYPE", "info") => "gauge",
                    _ => rest,
                };
                text += &format!("# {what} {name}{suffix} {rest}");
            }
            _ => text += line,
        }
        text.push('\n');
    }
    text
}

#[derive(Debug)]
struct All(Vec<Snapshot>);

/// A metric with its samples.
struct Family<'a> {
    help: String,
    unit: &'a str,
    kind: Kind,
    samples: Vec<(Labels, &'a Value)>,
}

type Labels = Vec<(&'static str, String)>;

impl Collector for All {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for (name, family) in self.families() {
            family.encode(&name, &mut encoder)?;
        }
        let help = "A process that uses Millstream.";
        let mut info =
            encoder.encode_descriptor("millstream_process", help, None, MetricType::Info)?;
        for snapshot in &self.0 {
            let labels = [
                ("process", snapshot.pid.to_string()),
                ("command", snapshot.command.clone()),
            ];
            info.encode_info(&labels.to_vec())?;
        }
        let help = "When a process began to publish, since 1970.";
        let unit = Some(&Unit::Seconds);
        let name = "millstream_process_start_time";
        let mut start = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for snapshot in &self.0 {
            let labels = vec![("process", snapshot.pid.to_string())];
            let seconds = snapshot.start_ns as f64 / NS;
            start.encode_family(&labels)?.encode_gauge(&seconds)?;
        }
        Ok(())
    }
}

impl All {
    fn families(&self) -> BTreeMap<String, Family<'_>> {
        let mut families: BTreeMap<String, Family<'_>> = BTreeMap::new();
        for snapshot in &self.0 {
            for (at, context) in snapshot.contexts.iter().enumerate() {
                let labels = labels(snapshot, at, context);
                for (name, value) in snapshot.names.iter().zip(&context.values) {
                    let Some(value) = value else { continue };
                    let mut labels = labels.clone();
                    let (family, help) = metric_of(name, &mut labels);
                    let family = families.entry(family).or_insert_with(|| Family {
                        help,
                        unit: &name.unit,
                        kind: name.kind,
                        samples: Vec::new(),
                    });
                    // In processes of other versions a name may have another meaning.
                    if family.kind == name.kind && family.unit == name.unit {
                        family.samples.push((labels, value));
                    }
                }
            }
        }
        families
    }
}

/// Labels of a context. Contexts with the same number on one wire are distinguished by their slots.
fn labels(snapshot: &Snapshot, at: usize, context: &ContextValues) -> Labels {
    let is_same = |one: &ContextValues| one.context == context.context && one.port == context.port;
    let number = match snapshot.contexts[..at].iter().any(is_same) {
        true => format!("{}.{}", context.context, context.slot),
        false => context.context.to_string(),
    };
    vec![
        ("process", snapshot.pid.to_string()),
        ("context", number),
        ("port", context.port.clone()),
    ]
}

/// Counters of retransmitted segments, which become one metric with the cause as a label.
const CAUSES: [(&str, &str); 6] = [
    ("retransmitted_by_timeout", "timeout"),
    ("retransmitted_by_fast_recovery", "fast_recovery"),
    ("retransmitted_by_loss_probe", "loss_probe"),
    ("retransmitted_by_path", "path"),
    ("retransmitted_by_handshake", "handshake"),
    ("syn_acks_retransmitted", "syn_ack"),
];

/// The metric of a value, and its help. Drops form one metric with an additional label; so do
/// retransmissions.
fn metric_of(name: &Name, labels: &mut Labels) -> (String, String) {
    let is_counter = name.kind == Kind::Counter;
    let cause = CAUSES.iter().find(|(counter, _)| *counter == name.name);
    if let Some((_, cause)) = cause.filter(|_| is_counter) {
        labels.push(("cause", (*cause).to_owned()));
        let help = "Segments sent again, by cause.";
        return ("millstream_retransmissions".to_owned(), help.to_owned());
    }
    if is_drop(&name.name) && is_counter {
        labels.push(("reason", name.name.clone()));
        let help = "Frames and segments dropped, by reason.";
        return ("millstream_drops".to_owned(), help.to_owned());
    }
    (metric_name(&name.name, &name.unit), name.help.clone())
}

/// The metric's name with its unit at the end, as OpenMetrics requires.
fn metric_name(name: &str, unit: &str) -> String {
    let words: Vec<&str> = name.split('_').filter(|word| *word != unit).collect();
    format!("millstream_{}", words.join("_"))
}

impl Family<'_> {
    fn encode(&self, name: &str, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        let unit = match self.unit {
            "nanoseconds" => Some(Unit::Seconds),
            "bytes" => Some(Unit::Bytes),
            _ => None,
        };
        let mut metric = encoder.encode_descriptor(name, &self.help, unit.as_ref(), kind)?;
        for (labels, value) in &self.samples {
            self.sample(value, metric.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn sample(&self, value: &Value, mut metric: MetricEncoder<'_>) -> Result<(), Error> {
        let is_time = self.unit == "nanoseconds";
        match value {
            Value::Number(number) if self.kind == Kind::Gauge => {
                metric.encode_gauge(&(*number as f64))
            }
            Value::Number(number) if is_time => {
                let seconds = *number as f64 / NS;
                metric.encode_counter::<NoLabelSet, f64, f64>(&seconds, None)
            }
            Value::Number(number) => metric.encode_counter::<NoLabelSet, u64, f64>(number, None),
            Value::Histogram(counts, sum) => {
                let scale = if is_time { NS } else { 1.0 };
                let count = counts
                    .iter()
                    .fold(0, |all: u64, one| all.saturating_add(*one));
                let buckets = buckets(counts, scale);
                metric.encode_histogram::<NoLabelSet>(*sum as f64 / scale, count, &buckets, None)
            }
        }
    }
}

/// Limits and counts of the buckets that are shown: of plain numbers all up to 1024, of times every
/// other one from a microsecond to 17 seconds.
fn buckets(counts: &[u64], scale: f64) -> Vec<(f64, u64)> {
    let shown: Vec<usize> = match scale == NS {
        true => (10..=34).step_by(2).collect(),
        false => (0..=10).collect(),
    };
    let mut from = 0;
    let mut buckets = Vec::new();
    for last in shown {
        let end = (last + 1).min(counts.len());
        let sum = counts[from.min(end)..end]
            .iter()
            .fold(0, |all: u64, one| all.saturating_add(*one));
        // Bucket n counts integers below 2^n.
        buckets.push((((1u64 << last) - 1) as f64 / scale, sum));
        from = end;
    }
    let rest = counts[from..]
        .iter()
        .fold(0, |all: u64, one| all.saturating_add(*one));
    buckets.push((INFINITE, rest));
    buckets
}
