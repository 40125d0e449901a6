//! The smoke of the benchmarks: that they run, count, and write their tables, charts and page.

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

fn mill(line: &str, directory: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mill"));
    command.args(line.split(' ')).arg("--out").arg(directory);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}

#[test]
fn message_quick_writes_table_chart_and_page() {
    let place = Place::new("message");
    mill(
        "bench message --quick --figure 7a,8,latency --system kernel,inline,dedicated",
        &place.0,
    );
    mill("bench report", &place.0);
    let page = std::fs::read_to_string(place.0.join("report.md")).unwrap();
    for wanted in ["Millstream, memif, inline", "accept and reset", "commit"] {
        assert!(page.contains(wanted), "{wanted} is not in:\n{page}");
    }
    let chart = std::fs::read_to_string(place.0.join("message-7a.svg")).unwrap();
    assert!(chart.contains("<svg"));
    let json = std::fs::read_to_string(place.0.join("message.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rate = json["figures"][0]["series"][1]["points"][0]["y"]["median"].as_f64();
    assert!(rate.unwrap() > 0.0, "{json}");
}

#[test]
fn bulk_and_scale_quick_write_their_figures() {
    if !rustix::process::geteuid().is_root() {
        println!("bulk: skipped: namespaces take root");
        return;
    }
    let place = Place::new("scale");
    mill("bench bulk --quick", &place.0);
    mill("bench scale --quick", &place.0);
    let read = |name: &str| std::fs::read_to_string(place.0.join(name)).unwrap();
    let (bulk, scale) = (read("bulk.md"), read("scale.md"));
    assert!(bulk.contains("| Millstream, memif, MTU 1500 |"), "{bulk}");
    assert!(scale.contains("contexts of each side"), "{scale}");
    for name in ["bulk-1500.svg", "scale-contexts-cpu.svg"] {
        assert!(read(name).contains("<svg"), "{name}");
    }
}

#[test]
fn two_stacks_in_one_thread_on_a_virtual_clock_do_the_same_every_time() {
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mill"));
        command.args(["bench", "one-thread", "--virtual-clock", "--transactions"]);
        let output = command.arg("500").output().unwrap();
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (said["transactions_all"].clone(), said["segments"].clone())
    };
    let first = run();
    assert!(first.0.as_u64().unwrap() >= 500);
    assert_eq!(first, run());
}
