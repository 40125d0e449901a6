//! A server and a client of one C program over an in-process Ethernet, with both cranks and with
//! sanitizers.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{SANITIZE, With, compile, crate_directory, scratch};

fn runs(name: &str, flags: &[&str], settings: &str) {
    let directory = scratch(name);
    let program = directory.join("smoke");
    let source: PathBuf = crate_directory().join("tests/smoke.c");
    compile("gcc", &[source], flags, With::Libmtcp, &program);
    let config = directory.join("smoke.conf");
    std::fs::write(&config, settings).unwrap();
    let output = Command::new("timeout")
        .arg("120")
        .arg(&program)
        .arg(&config)
        .arg("10.9.0.1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
}

const LOOPBACK: &str =
    "io = loopback\nip_addr = 10.9.0.1/24\nnum_cores = 2\nmax_concurrency = 1000\n";

#[test]
fn two_contexts_of_one_process_talk() {
    runs("smoke-inline", &[], LOOPBACK);
}

#[test]
fn dedicated_crank_serves_as_well() {
    runs(
        "smoke-dedicated",
        &[],
        &format!("{LOOPBACK}crank = dedicated\n"),
    );
}

#[test]
fn sanitizers_find_nothing() {
    runs("smoke-sanitized", &SANITIZE, LOOPBACK);
}
