//! smoltcp at both ends, as `cargo xtask bench` starts it: it answers, and says so in the form that
//! is read.

use std::process::Command;

use serde_json::Value;

/// The last line of what it prints.
fn last_line(words: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_rivals"))
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn short_connections_are_answered() {
    let seen = last_line(&["smoltcp", "--seconds", "0.2", "--warm-up", "0.1"]);
    assert!(seen["transactions"].as_u64() > Some(1_000), "{seen}");
    assert_eq!(seen["failures"], 0, "{seen}");
}

#[test]
fn one_transfer_moves_bytes() {
    let seen = last_line(&["smoltcp-bulk", "--seconds", "0.2", "--warm-up", "0.1"]);
    assert!(seen["bytes"].as_u64() > Some(1_000_000), "{seen}");
}
