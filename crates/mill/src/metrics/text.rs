//! Values as OpenMetrics, by `prometheus-client`. Labels name process, context and port. Drops have
//! a reason label, retransmissions a cause label. There are no labels for connections.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Error;
use std::rc::Rc;

use observe::layout::Kind;
use observe::reader::{ContextValues, Name, Value};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::services::{Service, Services};
use crate::processes::{Snapshot, is_drop};

/// The media type of the page.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The label of a histogram's last bucket, as `prometheus-client` expects it.
const INFINITE: f64 = f64::INFINITY;
const NS: f64 = 1e9;

/// Room for the first page; later ones have as much as the one before took.
const PAGE_BYTES: usize = 64 * 1024;

/// The page of these processes and of these services of `mill mux`. `bytes`: a guess of its length.
pub fn open_metrics(snapshots: Vec<Snapshot>, services: Vec<Service>, bytes: usize) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(All(snapshots)));
    registry.register_collector(Box::new(Services(services)));
    let mut page = String::with_capacity(bytes.max(PAGE_BYTES));
    // Writing to memory does not fail.
    let _ = text::encode(&mut page, &registry);
    page
}

/// The page in the older text format. There a counter's or an info's type has the name of its
/// samples, and an info is a gauge.
pub fn for_text_file(page: &str) -> String {
    let suffixes: HashMap<&str, &str> = comments(page)
        .filter(|comment| comment.what == "TYPE")
        .filter_map(|comment| match comment.rest {
            "counter" => Some((comment.name, "_total")),
            "info" => Some((comment.name, "_info")),
            _ => None,
        })
        .collect();
    let mut text = String::with_capacity(page.len());
    for line in page.lines() {
        let Some(comment) = Comment::of(line) else {
            text.extend([line, "\n"]);
            continue;
        };
        if matches!(comment.what, "EOF" | "UNIT") {
            continue;
        }
        let suffix = suffixes.get(comment.name).copied().unwrap_or_default();
        let rest = match (comment.what, comment.rest) {
            ("TYPE", "info") => "gauge",
            (_, rest) => rest,
        };
        let words = [
            "# ",
            comment.what,
            " ",
            comment.name,
            suffix,
            " ",
            rest,
            "\n",
        ];
        text.extend(words);
    }
    text
}

/// A line about a metric: `# TYPE name counter`.
struct Comment<'a> {
    what: &'a str,
    name: &'a str,
    rest: &'a str,
}

impl<'a> Comment<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let words = line.strip_prefix("# ")?;
        let (what, words) = words.split_once(' ').unwrap_or((words, ""));
        let (name, rest) = words.split_once(' ').unwrap_or((words, ""));
        Some(Self { what, name, rest })
    }
}

fn comments(page: &str) -> impl Iterator<Item = Comment<'_>> {
    page.lines().filter_map(Comment::of)
}

#[derive(Debug)]
struct All(Vec<Snapshot>);

/// A metric with its samples.
struct Family<'a> {
    help: &'a str,
    unit: &'a str,
    kind: Kind,
    samples: Vec<Sample<'a>>,
}

/// The labels of a context, and one that its metric adds.
type Labels<'a> = (&'a [(&'static str, String)], &'a [(&'static str, &'a str)]);

/// A value with what its labels are made of.
struct Sample<'a> {
    context: Rc<[(&'static str, String)]>,
    further: Option<(&'static str, &'a str)>,
    value: &'a Value,
}

impl Sample<'_> {
    fn labels(&self) -> Labels<'_> {
        (&self.context, self.further.as_slice())
    }
}

impl Collector for All {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        for ((name, _), family) in self.families() {
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
    /// The metrics by name and unit: frames and bytes have the same name before their unit.
    fn families(&self) -> BTreeMap<(String, &str), Family<'_>> {
        let mut families: BTreeMap<_, Family<'_>> = BTreeMap::new();
        for snapshot in &self.0 {
            let contexts = snapshot.contexts.iter().enumerate();
            let labels: Vec<Rc<[_]>> = contexts
                .map(|(at, context)| labels(snapshot, at, context).into())
                .collect();
            for (at, name) in snapshot.names.iter().enumerate() {
                let values = snapshot.contexts.iter().zip(&labels);
                let values = values.filter_map(|(context, labels)| {
                    let value = context.values.get(at)?.as_ref()?;
                    Some((labels, value))
                });
                let mut values = values.peekable();
                if values.peek().is_none() {
                    continue;
                }
                let metric = metric_of(name);
                let family = families.entry((metric.name, metric.unit));
                let family = family.or_insert_with(|| Family {
                    help: metric.help,
                    unit: metric.unit,
                    kind: name.kind,
                    samples: Vec::new(),
                });
                // In processes of other versions a name may have another meaning.
                if family.kind == name.kind {
                    family.samples.extend(values.map(|(labels, value)| Sample {
                        context: labels.clone(),
                        further: metric.label,
                        value,
                    }));
                }
            }
        }
        families
    }
}

/// Labels of a context. Contexts with the same number on one wire are distinguished by their slots.
fn labels(snapshot: &Snapshot, at: usize, context: &ContextValues) -> [(&'static str, String); 3] {
    let is_same = |one: &ContextValues| one.context == context.context && one.port == context.port;
    let number = match snapshot.contexts[..at].iter().any(is_same) {
        true => format!("{}.{}", context.context, context.slot),
        false => context.context.to_string(),
    };
    [
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

/// The metric that a value belongs to. Its name lacks the unit.
struct Metric<'a> {
    name: String,
    help: &'a str,
    unit: &'a str,
    /// A label besides those of the context.
    label: Option<(&'static str, &'a str)>,
}

/// The metric of a value. Drops form one metric with an additional label; so do retransmissions.
fn metric_of(name: &Name) -> Metric<'_> {
    let is_counter = name.kind == Kind::Counter;
    let cause = CAUSES.iter().find(|(counter, _)| *counter == name.name);
    if let Some((_, cause)) = cause.filter(|_| is_counter) {
        return Metric {
            name: "millstream_retransmitted_by_cause".to_owned(),
            help: "Segments sent again, by cause.",
            unit: "segments",
            label: Some(("cause", cause)),
        };
    }
    if is_drop(&name.name) && is_counter {
        // Some reasons count frames, others segments, so the metric has no unit.
        return Metric {
            name: "millstream_drops".to_owned(),
            help: "Frames and segments dropped, by reason.",
            unit: "",
            label: Some(("reason", &name.name)),
        };
    }
    Metric {
        name: metric_name(&name.name, &name.unit),
        help: &name.help,
        unit: &name.unit,
        label: None,
    }
}

/// The metric's name without its unit, which `prometheus-client` appends, as OpenMetrics requires.
fn metric_name(name: &str, unit: &str) -> String {
    let words: Vec<&str> = name.split('_').filter(|word| *word != unit).collect();
    format!("millstream_{}", words.join("_"))
}

/// The unit of a metric in OpenMetrics. Times are in seconds there.
fn unit_of(unit: &str) -> Option<Unit> {
    match unit {
        "" => None,
        "nanoseconds" => Some(Unit::Seconds),
        other => Some(Unit::Other(other.to_owned())),
    }
}

impl Family<'_> {
    fn encode(&self, name: &str, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        let unit = unit_of(self.unit);
        let mut metric = encoder.encode_descriptor(name, self.help, unit.as_ref(), kind)?;
        for sample in &self.samples {
            self.sample(sample.value, metric.encode_family(&sample.labels())?)?;
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
