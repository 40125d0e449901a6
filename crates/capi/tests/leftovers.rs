//! The library is started and ended many times, and nothing that grows remains. With and without
//! sanitizers, with both cranks.

mod common;

use std::process::Command;

use common::With;
use common::lab::printed;

fn leaves_nothing(name: &str, flags: &[&str], settings: &str) {
    let directory = common::scratch(name);
    let source = common::crate_directory().join("tests/leftovers.c");
    let program = directory.join("leftovers");
    common::compile("gcc", &[source], flags, With::Libmtcp, &program);
    let config = directory.join("mtcp.conf");
    let text = format!("io = loopback\nnum_cores = 2\nmax_concurrency = 1000\n{settings}");
    std::fs::write(&config, text).unwrap();
    let words = ["120", program.to_str().unwrap(), config.to_str().unwrap()];
    // The sanitizer keeps freed memory to detect late uses, which makes mappings grow. Other tests
    // run with its usual settings.
    let output = Command::new("timeout")
        .args(words)
        .env("ASAN_OPTIONS", "quarantine_size_mb=1")
        .output()
        .unwrap();
    printed(&words, &output);
}

#[test]
fn inline_crank_leaves_nothing() {
    leaves_nothing("leftovers-inline", &[], "");
}

#[test]
fn dedicated_crank_leaves_nothing() {
    leaves_nothing("leftovers-dedicated", &[], "crank = dedicated\n");
}

#[test]
fn sanitizers_find_no_leak() {
    leaves_nothing("leftovers-sanitized", &common::SANITIZE, "");
}
