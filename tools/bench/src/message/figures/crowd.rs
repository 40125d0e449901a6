//! The studies of the crowd: by connections and by the size of the document, on connections that
//! stay and with one request for each connection.

use crate::measure::{Plan, Seen};

use super::{Study, falling, rate};
use crate::message::System;

/// The name of `--figure` that selects all studies of the crowd.
pub(super) const FAMILY: &str = "crowd";

/// The document of the studies by connections: a page of 7 KB.
const DOCUMENT_BYTES: usize = 7 * 1024;
/// Connections of the studies by size.
const CONNECTIONS: usize = 2_000;

const SYSTEMS: &[System] = &[System::Nginx, System::MillServe, System::MillServeOneLane];
const CROWDS: &[f64] = &[1.0, 8.0, 64.0, 1_024.0, 2_000.0, 8_000.0, 16_384.0];
const SIZES: &[f64] = &[64.0, 1_024.0, 7_168.0, 65_536.0];

/// The figures of one study.
macro_rules! readings {
    ($id:literal, $of:literal) => {
        [
            rate($id, concat!("Crowd: requests, ", $of)),
            falling(
                concat!($id, "-p50"),
                concat!("Crowd: response time, median, ", $of),
                "ms",
                |seen, _| seen.latency_us_p50 / 1e3,
            ),
            falling(
                concat!($id, "-p99"),
                concat!("Crowd: response time, 99th percentile, ", $of),
                "ms",
                |seen, _| seen.latency_us_p99 / 1e3,
            ),
            falling(
                concat!($id, "-p999"),
                concat!("Crowd: response time, 99.9th percentile, ", $of),
                "ms",
                |seen, _| seen.latency_us_p999 / 1e3,
            ),
            falling(
                concat!($id, "-unanswered"),
                concat!("Crowd: requests without an answer in 2 s, ", $of),
                "requests",
                unanswered,
            ),
            falling(
                concat!($id, "-wire-drops"),
                concat!("Crowd: frames that the veth pair dropped, ", $of),
                "frames",
                |seen, _| seen.dropped_by_wire as f64,
            ),
            falling(
                concat!($id, "-server-drops"),
                concat!(
                    "Crowd: frames that the server's port or kernel dropped, ",
                    $of
                ),
                "frames",
                |seen, _| seen.dropped_by_server as f64,
            ),
        ]
    };
}
pub(super) const STUDIES: [Study; 4] = [
    Study {
        name: "crowd-stay",
        plan: |x, plan| by_connections(x, 0, plan),
        readings: &readings!("crowd-stay", "connections that stay, 7 KB"),
        ..BY_CONNECTIONS
    },
    Study {
        name: "crowd-short",
        plan: |x, plan| by_connections(x, 1, plan),
        readings: &readings!("crowd-short", "one request per connection, 7 KB"),
        ..BY_CONNECTIONS
    },
    Study {
        name: "crowd-stay-size",
        plan: |x, plan| by_size(x, 0, plan),
        readings: &readings!("crowd-stay-size", "2,000 connections that stay"),
        ..BY_SIZE
    },
    Study {
        name: "crowd-short-size",
        plan: |x, plan| by_size(x, 1, plan),
        readings: &readings!(
            "crowd-short-size",
            "one request per connection, 2,000 at once"
        ),
        ..BY_SIZE
    },
];

const BY_CONNECTIONS: Study = Study {
    name: "",
    x: "concurrent connections",
    systems: SYSTEMS,
    xs: CROWDS,
    quick_xs: &[64.0],
    plan: |_, plan| plan,
    readings: &[],
    spin_us: None,
};

const BY_SIZE: Study = Study {
    x: "bytes of the document",
    xs: SIZES,
    quick_xs: &[64.0],
    ..BY_CONNECTIONS
};

fn by_connections(x: f64, messages: u64, plan: Plan) -> Plan {
    Plan {
        connections: x as usize,
        response_bytes: DOCUMENT_BYTES,
        messages,
        ..plan
    }
}

fn by_size(x: f64, messages: u64, plan: Plan) -> Plan {
    Plan {
        connections: CONNECTIONS,
        response_bytes: x as usize,
        messages,
        ..plan
    }
}

/// Requests without an answer, which those that failed are too.
fn unanswered(seen: &Seen, _: f64) -> f64 {
    (seen.unanswered + seen.failures) as f64
}
