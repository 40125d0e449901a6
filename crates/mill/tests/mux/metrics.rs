//! `mill metrics` shows a service: frames of its virtual ports, and what the dashboard needs.

use std::sync::PoisonError;

use super::world::{World, noise};
use super::{MILL, ONE, Service, curl, nic};

const DASHBOARD: &str = include_str!("../../../../packaging/grafana/dashboard.json");

#[test]
fn service_under_traffic_is_on_the_page_of_metrics() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(world) = World::new("mux-metrics") else {
        return;
    };
    let body = noise(100_000);
    world.write("a/file", &body);
    let service = Service::start(&world, &[]);
    let _server = service.serve(&world.directory.join("a"), &["--port", "8080"]);
    assert_eq!(curl(&world, "http://10.78.0.2:8080/file"), body);
    let words = [MILL, "metrics", "--mux", &service.socket];
    let output = service.inside(&words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let page = String::from_utf8(output.stdout).unwrap();
    let port = format!("port=\"{}\"", nic());
    let count = |metric: &str| -> Option<u64> {
        let mut lines = page.lines().filter(|line| line.contains(&port));
        let line = lines.find(|line| line.starts_with(&format!("{metric}_total{{")))?;
        line.rsplit_once(' ')?.1.parse().ok()
    };
    assert!(count("millstream_mux_rx_frames") > Some(4), "{page}");
    assert!(count("millstream_mux_tx_bytes") > Some(100_000), "{page}");
    assert!(
        page.contains(&format!("millstream_mux_up{{{port}}} 1")),
        "{page}"
    );
    assert!(page.contains("# UNIT millstream_mux_dropped_frames frames\n"));
    for reason in ["oversize", "no_nic", "rx_no_socket", "tx_other_queue"] {
        let label = format!(",reason=\"{reason}\"}} 0\n");
        assert!(page.contains(&label), "{reason} not in {page}");
    }
    assert!(page.contains(",reason=\"rx_forged\"} 0\n"), "{page}");
    let words = DASHBOARD.split(|one: char| !one.is_ascii_alphanumeric() && one != '_');
    let mut shown = words.filter(|word| word.starts_with("millstream_mux_"));
    let is_there = |name: &str| {
        let family = name.strip_suffix("_total").unwrap_or(name);
        page.contains(&format!("# TYPE {family} "))
    };
    assert!(shown.all(is_there), "{page}");
}
