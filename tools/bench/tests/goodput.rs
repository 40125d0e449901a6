//! `cargo xtask bench goodput` on one small cell. Needs root.

use std::io::Write as _;
use std::process::Command;

#[test]
fn every_pair_carries_bytes_over_a_good_wire() {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "ignored: goodput: namespaces take root");
        return;
    }
    let json = std::env::temp_dir().join(format!("mst-{}-goodput.json", std::process::id()));
    let path = json.display().to_string();
    let line = "goodput --loss 0 --delay 1ms --reorder 0 --seeds 1 --seconds 1 --jobs 1";
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(line.split(' '))
        .args(["--json", &path])
        .output()
        .expect("bench starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = std::fs::read_to_string(&json).expect("the result");
    let _ = std::fs::remove_file(&json);
    let found: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for (index, rates) in found["cells"][0]["mbit_per_second"]
        .as_array()
        .expect("three pairs")
        .iter()
        .enumerate()
    {
        let rate = rates[0].as_f64().expect("a rate");
        assert!((1.0..=100.0).contains(&rate), "pair {index}: {rate} Mbit/s");
    }
}
