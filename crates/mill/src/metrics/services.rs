//! Services of `mill mux` as OpenMetrics: the frames of each virtual port, and drops by reason.
//!
//! A service answers over its own socket, since it has no stack and no statistics file. Labels are
//! those of processes, and `application`, the service's number for a client: one process may be two
//! applications.

use std::fmt::Error;
use std::path::Path;
use std::time::Duration;

use packetio::mux::message::Query;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use serde_json::Value;

use crate::limits::PUBLISH_MS_MAX;
use crate::mux::fetch;

/// A service and its status; `None`: the service does not answer.
#[derive(Debug)]
pub struct Service {
    /// The path of the service's socket.
    pub path: String,
    /// The answer to [`Query::Status`].
    pub status: Option<Value>,
}

type Labels = Vec<(&'static str, String)>;

/// The counters of a virtual port: the field of the status, the metric without its unit, its unit
/// and its help.
const TRAFFIC: [[&str; 4]; 6] = [
    [
        "rx_frames",
        "mux_rx",
        "frames",
        "Frames from the NIC to a context.",
    ],
    ["rx_bytes", "mux_rx", "bytes", "Bytes of these frames."],
    [
        "tx_frames",
        "mux_tx",
        "frames",
        "Frames of a context that passed the check and left.",
    ],
    ["tx_bytes", "mux_tx", "bytes", "Bytes of these frames."],
    [
        "bulk_frames",
        "mux_bulk",
        "frames",
        "Frames among these that left by the bulk lane, before the NIC cuts them.",
    ],
    ["bulk_bytes", "mux_bulk", "bytes", "Bytes of bulk frames."],
];

impl Service {
    /// Asks the service at `path`. `None`: the path is not there, and nobody has `named` it.
    pub fn ask(path: &str, named: bool) -> Option<Self> {
        if !named && !Path::new(path).exists() {
            return None;
        }
        let patience = Duration::from_millis(PUBLISH_MS_MAX);
        Some(Self {
            path: path.to_owned(),
            status: fetch(path, Query::Status, patience).ok(),
        })
    }

    /// The label of the shared NIC; the socket's path stands in while the service is silent.
    fn port(&self) -> (&'static str, String) {
        let interface = self.status.as_ref().map(|status| &status["interface"]);
        let interface = interface.and_then(Value::as_str);
        ("port", interface.unwrap_or(&self.path).to_owned())
    }

    /// The names of all reasons in a list of the status. A service of an older version has none.
    fn reasons(&self, list: &str) -> &[Value] {
        let list = self.status.as_ref().map(|status| &status[list]);
        list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Labels and values of each context of each application.
    fn contexts(&self) -> Vec<(Labels, &Value)> {
        let status = self.status.as_ref();
        let applications = status.and_then(|status| status["applications"].as_array());
        let mut all = Vec::new();
        for one in applications.into_iter().flatten() {
            for context in one["contexts"].as_array().into_iter().flatten() {
                let labels = vec![
                    ("process", one["pid"].to_string()),
                    ("context", context["context"].to_string()),
                    self.port(),
                    ("application", one["application"].to_string()),
                ];
                all.push((labels, context));
            }
        }
        all
    }
}

/// The services of a page.
#[derive(Debug)]
pub struct Services(pub Vec<Service>);

impl Services {
    fn encode_gauges(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let (name, help) = ("millstream_mux_up", "1 if a service of `mill mux` answers.");
        let mut up = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for service in &self.0 {
            let is_up = f64::from(u8::from(service.status.is_some()));
            up.encode_family(&vec![service.port()])?
                .encode_gauge(&is_up)?;
        }
        let name = "millstream_mux_applications";
        let help = "Applications of a service, those that have died included.";
        let mut count = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for service in &self.0 {
            let status = service.status.as_ref();
            let all = status.and_then(|status| status["applications"].as_array());
            if let Some(all) = all {
                count
                    .encode_family(&vec![service.port()])?
                    .encode_gauge(&(all.len() as f64))?;
            }
        }
        Ok(())
    }
}

impl Collector for Services {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        self.encode_gauges(&mut encoder)?;
        let contexts: Vec<_> = self.0.iter().flat_map(Service::contexts).collect();
        for [field, name, unit, help] in TRAFFIC {
            let unit = Unit::Other(unit.to_owned());
            let name = format!("millstream_{name}");
            let kind = MetricType::Counter;
            let mut metric = encoder.encode_descriptor(&name, help, Some(&unit), kind)?;
            for (labels, context) in &contexts {
                let count = context[field].as_u64().unwrap_or(0);
                let mut family = metric.encode_family(labels)?;
                family.encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
            }
        }
        // A counter whose first drop is its first sample would hide that drop from a rate.
        let refused = self.0.iter().flat_map(|service| {
            let reasons = service.reasons("drop_reasons");
            let contexts = service.contexts().into_iter();
            contexts.map(move |(labels, context)| (labels, &context["drops"], reasons))
        });
        let (name, help) = (
            "millstream_mux_dropped",
            "Frames of a context that were dropped in either direction, by reason.",
        );
        encode_drops(&mut encoder, name, help, refused)?;
        let ingress = self.0.iter().filter_map(|service| {
            let drops = &service.status.as_ref()?["ingress_drops"];
            let reasons = service.reasons("ingress_drop_reasons");
            Some((vec![service.port()], drops, reasons))
        });
        let (name, help) = (
            "millstream_mux_ingress_dropped",
            "Frames from the NIC that reached no context, by reason.",
        );
        encode_drops(&mut encoder, name, help, ingress)
    }
}

/// A metric of dropped frames, by reason: the counters that a service tells, and zero for its other
/// reasons.
fn encode_drops<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    drops: impl Iterator<Item = (Labels, &'a Value, &'a [Value])>,
) -> Result<(), Error> {
    let unit = Unit::Other("frames".to_owned());
    let mut metric = encoder.encode_descriptor(name, help, Some(&unit), MetricType::Counter)?;
    for (labels, counts, reasons) in drops {
        let told = counts.as_object().into_iter().flatten();
        let told = told.map(|(reason, count)| (&**reason, count.as_u64().unwrap_or(0)));
        let silent = reasons.iter().filter_map(Value::as_str);
        let silent = silent.filter(|reason| counts.get(*reason).is_none());
        for (reason, count) in told.chain(silent.map(|reason| (reason, 0))) {
            let mut labels = labels.clone();
            labels.push(("reason", reason.to_owned()));
            let mut family = metric.encode_family(&labels)?;
            family.encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
        }
    }
    Ok(())
}
