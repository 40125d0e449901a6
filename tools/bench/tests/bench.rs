//! The smoke of the benchmarks: that they run, count, and write their tables, charts and page.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that is gone afterwards.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mst-{}-{name}", std::process::id()));
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bench(line: &str, directory: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.args(line.split(' ')).arg("--out").arg(directory);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}

/// The JSON that a benchmark wrote, without a note of any failure.
fn outcome(place: &Place, name: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(place.0.join(format!("{name}.json"))).unwrap();
    let outcome: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(outcome["failures"], serde_json::json!([]), "{name}");
    outcome
}

/// The medians of a series by its system, each of which is more than nothing.
fn medians(outcome: &serde_json::Value, figure: &str, system: &str) -> Vec<f64> {
    let named = |list: &serde_json::Value, key: &str, name: &str| {
        let list = list.as_array().unwrap();
        let found = list.iter().find(|one| one[key] == name);
        found
            .unwrap_or_else(|| panic!("no {name}: {list:?}"))
            .clone()
    };
    let figure = named(&outcome["figures"], "id", figure);
    let points = named(&figure["series"], "system", system)["points"].clone();
    let points = points.as_array().unwrap();
    let median = |point: &serde_json::Value| point["y"]["median"].as_f64().unwrap();
    let medians: Vec<f64> = points.iter().map(median).collect();
    assert!(medians.iter().all(|median| *median > 0.0), "{figure}");
    medians
}

#[test]
fn message_quick_writes_table_chart_and_page() {
    let place = Place::new("message");
    bench(
        "message --quick --figure 7a,8,latency --system kernel,inline,dedicated",
        &place.0,
    );
    bench("report", &place.0);
    let page = std::fs::read_to_string(place.0.join("report.md")).unwrap();
    for wanted in ["Millstream, memif, inline", "commit"] {
        assert!(page.contains(wanted), "{wanted} is not in:\n{page}");
    }
    let chart = std::fs::read_to_string(place.0.join("message-7a.svg")).unwrap();
    assert!(chart.contains("<svg"));
    let message = outcome(&place, "message");
    for figure in ["7a", "7a-server", "8", "8-server"] {
        for system in ["kernel, loopback", "Millstream, memif, inline"] {
            assert_eq!(medians(&message, figure, system).len(), 1, "{figure}");
        }
    }
    assert_eq!(
        medians(&message, "7a", "Millstream, memif, dedicated").len(),
        1
    );
}

#[test]
fn crowd_quick_writes_its_figures_for_both_servers() {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "ignored: crowd: namespaces take root");
        return;
    }
    let place = Place::new("crowd");
    bench("message --quick --figure crowd", &place.0);
    let crowd = outcome(&place, "message");
    for study in ["stay", "short", "stay-size", "short-size"] {
        for what in ["", "-p50", "-p99", "-p999"] {
            let figure = format!("crowd-{study}{what}");
            for system in [
                "nginx on the kernel, veth",
                "mill serve on AF_XDP, veth",
                "mill serve on AF_XDP without bulk lane, veth",
            ] {
                assert_eq!(medians(&crowd, &figure, system).len(), 1, "{figure}");
            }
        }
        for what in ["unanswered", "wire-drops", "server-drops"] {
            let name = format!("message-crowd-{study}-{what}.svg");
            let chart = std::fs::read_to_string(place.0.join(&name)).unwrap();
            assert!(chart.contains("<svg"), "{name}");
        }
    }
}

/// Downloads and uploads of every system that is compared, with a verdict on each of ours.
#[test]
fn offload_quick_moves_documents_both_ways() {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "ignored: offload: namespaces take root");
        return;
    }
    let place = Place::new("offload");
    bench("bulk --quick --figure offload", &place.0);
    let bulk = outcome(&place, "bulk");
    for (way, systems) in [
        (
            "download",
            [
                "nginx on the kernel, veth",
                "mill serve on AF_XDP, veth",
                "mill serve on a packet socket, veth",
            ],
        ),
        (
            "upload",
            [
                "kernel, veth",
                "Millstream on AF_XDP, veth",
                "Millstream on a packet socket, veth",
            ],
        ),
    ] {
        for what in ["", "-sender", "-both"] {
            let figure = format!("offload-{way}{what}");
            for system in systems {
                assert_eq!(medians(&bulk, &figure, system).len(), 1, "{figure}");
            }
        }
        let of_way = |claim: &&serde_json::Value| {
            let measure = claim["measure"].as_str().unwrap();
            measure.starts_with(&format!("offload-{way}"))
        };
        let claims = bulk["claims"].as_array().unwrap();
        assert_eq!(claims.iter().filter(of_way).count(), 4, "{way}");
    }
}

#[test]
fn bulk_and_scale_quick_write_their_figures() {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "ignored: bulk: namespaces take root");
        return;
    }
    let place = Place::new("scale");
    bench("bulk --quick", &place.0);
    bench("scale --quick", &place.0);
    let (bulk, scale) = (outcome(&place, "bulk"), outcome(&place, "scale"));
    for (figure, system) in [
        ("1500", "Millstream, memif, MTU 1500"),
        ("1500", "kernel, veth without TSO and GRO, MTU 1500"),
        ("large", "Millstream, memif, MTU 65000"),
        ("saturated-receiver", "ACKs expanded from a template"),
    ] {
        assert_eq!(medians(&bulk, figure, system).len(), 1, "{figure}");
    }
    for (figure, points) in [
        ("idle-server-all", 1),
        ("idle-held", 1),
        ("contexts-cpu", 2),
    ] {
        let found = medians(&scale, figure, "Millstream, memif, inline");
        assert_eq!(found.len(), points, "{figure}");
    }
    for name in ["bulk-1500.svg", "scale-contexts-cpu.svg"] {
        let chart = std::fs::read_to_string(place.0.join(name)).unwrap();
        assert!(chart.contains("<svg"), "{name}");
    }
}

#[test]
fn two_stacks_in_one_thread_on_a_virtual_clock_do_the_same_every_time() {
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
        command.args(["one-thread", "--virtual-clock", "--transactions"]);
        let output = command.arg("500").output().unwrap();
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (said["transactions_all"].clone(), said["segments"].clone())
    };
    let first = run();
    assert!(first.0.as_u64().unwrap() >= 500);
    assert_eq!(first, run());
}

/// Frames pass in both directions through one virtual port and through several, and servers answer
/// over one.
#[test]
fn mux_quick_moves_frames_and_serves() {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "ignored: mux: namespaces take root");
        return;
    }
    let place = Place::new("mux");
    bench("mux --quick --figure ports,connections", &place.0);
    let mux = outcome(&place, "mux");
    for figure in ["receive", "send"] {
        for way in ["AF_XDP on the NIC", "1 virtual port", "16 virtual ports"] {
            assert_eq!(medians(&mux, figure, way).len(), 2, "{figure}");
        }
    }
    let system = "kernel client, Millstream on a virtual port, veth";
    for figure in ["connections", "echo"] {
        assert_eq!(medians(&mux, figure, system).len(), 1, "{figure}");
    }
}
