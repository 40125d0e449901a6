//! The page of made-up processes and services.

use observe::layout::Kind;
use observe::limits::BUCKETS;
use observe::reader::{ContextValues, Value};

use super::*;
use crate::processes::Snapshot;

fn snapshot() -> Snapshot {
    let names = crate::top::tests::names(&[
        ("rx_bytes", "bytes", Kind::Counter),
        ("rx_frames", "frames", Kind::Counter),
        ("rx_drop_arp", "", Kind::Counter),
        ("retransmitted_by_timeout", "segments", Kind::Counter),
        ("retransmitted_by_loss_probe", "segments", Kind::Counter),
        ("time_busy", "nanoseconds", Kind::Counter),
        ("sockets_in_use", "", Kind::Gauge),
        ("rx_batch", "frames", Kind::Histogram),
    ]);
    let mut counts = vec![0; BUCKETS];
    (counts[1], counts[3]) = (2, 1);
    Snapshot {
        pid: 7,
        command: "a \"b\"".to_owned(),
        start_ns: 1_500_000_000,
        names,
        contexts: vec![ContextValues {
            slot: 0,
            context: 2,
            port: "tap:t0".to_owned(),
            behind_first: None,
            updated_ns: 1,
            values: vec![
                Some(Value::Number(9)),
                Some(Value::Number(8)),
                Some(Value::Number(4)),
                Some(Value::Number(5)),
                Some(Value::Number(6)),
                Some(Value::Number(2_500_000_000)),
                None,
                Some(Value::Histogram(counts, 7)),
            ],
        }],
    }
}

#[test]
fn page_has_units_labels_and_reasons() {
    let page = text::open_metrics(vec![snapshot()], Vec::new(), 0);
    let labels = r#"process="7",context="2",port="tap:t0""#;
    for line in [
        "# TYPE millstream_rx_bytes counter".to_owned(),
        "# UNIT millstream_rx_bytes bytes".to_owned(),
        "# HELP millstream_rx_bytes Help.".to_owned(),
        format!("millstream_rx_bytes_total{{{labels}}} 9"),
        format!("millstream_rx_frames_total{{{labels}}} 8"),
        "# UNIT millstream_rx_frames frames".to_owned(),
        "# UNIT millstream_retransmitted_by_cause_segments segments".to_owned(),
        "# UNIT millstream_rx_batch_frames frames".to_owned(),
        "# UNIT millstream_time_busy_seconds seconds".to_owned(),
        format!("millstream_drops_total{{{labels},reason=\"rx_drop_arp\"}} 4"),
        format!("millstream_retransmitted_by_cause_segments_total{{{labels},cause=\"timeout\"}} 5"),
        format!(
            "millstream_retransmitted_by_cause_segments_total{{{labels},cause=\"loss_probe\"}} 6"
        ),
        format!("millstream_time_busy_seconds_total{{{labels}}} 2.5"),
        format!("millstream_rx_batch_frames_bucket{{le=\"1.0\",{labels}}} 2"),
        format!("millstream_rx_batch_frames_bucket{{le=\"7.0\",{labels}}} 3"),
        format!("millstream_rx_batch_frames_bucket{{le=\"+Inf\",{labels}}} 3"),
        r#"millstream_process_info{process="7",command="a \"b\""} 1"#.to_owned(),
    ] {
        assert!(
            page.lines().any(|one| one == line),
            "{line}\nnot in\n{page}"
        );
    }
    assert!(page.ends_with("# EOF\n"));
    assert!(!page.contains("sockets_in_use{"));
}

#[test]
fn port_behind_the_first_has_its_own_drops() {
    let mut snapshot = snapshot();
    let mut second = snapshot.contexts[0].clone();
    (second.slot, second.port) = (1, "tap:t1".to_owned());
    second.values[2] = Some(Value::Number(3));
    snapshot.contexts.push(second);
    let page = text::open_metrics(vec![snapshot], Vec::new(), 0);
    for (port, count) in [("tap:t0", 4), ("tap:t1", 3)] {
        let labels = format!(r#"process="7",context="2",port="{port}",reason="rx_drop_arp""#);
        let line = format!("millstream_drops_total{{{labels}}} {count}\n");
        assert!(page.contains(&line), "{line}not in\n{page}");
    }
}

#[test]
fn file_for_node_exporter_types_counters_by_the_name_of_their_samples() {
    let text = text::for_text_file(&text::open_metrics(vec![snapshot()], Vec::new(), 0));
    assert!(text.contains("# TYPE millstream_rx_bytes_total counter\n"));
    assert!(text.contains("# TYPE millstream_process_info gauge\n"));
    assert!(text.contains("# HELP millstream_process_info "));
    assert!(!text.contains("# EOF") && !text.contains("# UNIT"));
}

/// A service with one application, which has two contexts.
fn service() -> Service {
    let context = |context: u64, drops: serde_json::Value| {
        serde_json::json!({
            "context": context, "rx_frames": 5 + context, "rx_bytes": 60, "tx_frames": 7,
            "tx_bytes": 420, "bulk_frames": 0, "bulk_bytes": 0, "drops": drops,
        })
    };
    let contexts = [
        context(0, serde_json::json!({"foreign_port": 3})),
        context(1, serde_json::json!({})),
    ];
    Service {
        path: "/run/mux.sock".to_owned(),
        status: Some(serde_json::json!({
            "interface": "eth0",
            "applications": [{"application": 4, "pid": 7, "name": "a", "contexts": contexts}],
            "drop_reasons": ["runt", "foreign_port"],
            "ingress_drops": {"rx_fragment": 2},
            "ingress_drop_reasons": ["rx_fragment", "rx_no_port"],
        })),
    }
}

#[test]
fn service_has_frames_of_each_virtual_port_and_drops_by_reason() {
    let page = text::open_metrics(vec![snapshot()], vec![service()], 0);
    let labels =
        |context| format!(r#"process="7",context="{context}",port="eth0",application="4""#);
    for line in [
        "# TYPE millstream_mux_rx_frames counter".to_owned(),
        "# UNIT millstream_mux_rx_frames frames".to_owned(),
        "# HELP millstream_mux_rx_frames Frames from the NIC to a context.".to_owned(),
        format!("millstream_mux_rx_frames_total{{{}}} 5", labels(0)),
        format!("millstream_mux_rx_frames_total{{{}}} 6", labels(1)),
        format!("millstream_mux_tx_bytes_total{{{}}} 420", labels(1)),
        format!(
            "millstream_mux_dropped_frames_total{{{},reason=\"foreign_port\"}} 3",
            labels(0)
        ),
        r#"millstream_mux_ingress_dropped_frames_total{port="eth0",reason="rx_fragment"} 2"#
            .to_owned(),
        format!(
            "millstream_mux_dropped_frames_total{{{},reason=\"runt\"}} 0",
            labels(0)
        ),
        format!(
            "millstream_mux_dropped_frames_total{{{},reason=\"foreign_port\"}} 0",
            labels(1)
        ),
        r#"millstream_mux_ingress_dropped_frames_total{port="eth0",reason="rx_no_port"} 0"#
            .to_owned(),
        r#"millstream_mux_up{port="eth0"} 1.0"#.to_owned(),
        r#"millstream_mux_applications{port="eth0"} 1.0"#.to_owned(),
    ] {
        assert!(
            page.lines().any(|one| one == line),
            "{line}\nnot in\n{page}"
        );
    }
}

#[test]
fn services_share_each_metric_and_a_silent_one_is_down() {
    let silent = Service {
        path: "/run/silent.sock".to_owned(),
        status: None,
    };
    let page = text::open_metrics(Vec::new(), vec![service(), silent], 0);
    let types = page.lines().filter(|line| line.starts_with("# TYPE "));
    let mut types: Vec<&str> = types.collect();
    let count = types.len();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types.len(), count, "{page}");
    assert!(page.contains("millstream_mux_up{port=\"/run/silent.sock\"} 0.0\n"));
    let none = text::open_metrics(Vec::new(), Vec::new(), 0);
    assert!(!none.contains("mux"), "{none}");
}

#[test]
fn service_that_is_not_there_is_down_only_if_it_was_named() {
    let path = "/nonexistent/mux.sock";
    assert!(Service::ask(path, false).is_none());
    let named = Service::ask(path, true).expect("it was named");
    assert!(named.status.is_none());
}
