//! The DPDK plug-in for tests, compiled once per process where DPDK's headers are installed.
//! Elsewhere a test prints why it is skipped.

#![allow(dead_code, reason = "each test file uses a part")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use packetio::dpdk::DpdkOptions;
use packetio::{Backend, Port, WireSpec, wait};

/// Exit status of build.sh without DPDK.
const NO_DPDK: i32 = 3;

/// The plug-in's file; `None` after printing the reason, if DPDK is missing.
pub fn plugin() -> Option<PathBuf> {
    static PLUGIN: OnceLock<Option<PathBuf>> = OnceLock::new();
    PLUGIN.get_or_init(|| build("dpdk", "")).clone()
}

/// A plug-in whose devices behave like a card's driver, as simulated by `card.h`.
pub fn card_plugin() -> Option<PathBuf> {
    static PLUGIN: OnceLock<Option<PathBuf>> = OnceLock::new();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packetio/tests/dpdk_common/card.h");
    let include = format!(" -include {}", header.display());
    PLUGIN.get_or_init(|| build("dpdk-card", &include)).clone()
}

fn build(name: &str, options: &str) -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dpdk/build.sh");
    let output = Command::new(script)
        .arg(&directory)
        .env("CFLAGS", format!("-O2 -g -Wextra -Werror{options}"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(NO_DPDK) {
        let _ = writeln!(std::io::stderr(), "ignored: {}", said.trim());
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(directory.join("libmillstream_dpdk.so"))
}

/// Opens a queue by `packetio::open`.
pub fn open(options: &DpdkOptions, queue: usize) -> Result<Box<dyn Port + Send>, String> {
    let spec = WireSpec::from(Backend::Dpdk(options.clone()));
    packetio::open(&spec, queue).map_err(|error| error.to_string())
}

/// A named counter.
pub fn count(port: &dyn Port, name: &str) -> u64 {
    port.counters().value(name).unwrap()
}

/// Receives until there are `count` frames or the time is over. Each frame comes with its segment
/// size or 0.
pub fn receive(port: &mut dyn Port, count: usize, time: Duration) -> Vec<(Vec<u8>, u16)> {
    let deadline = Instant::now() + time;
    let mut got = Vec::new();
    while got.len() < count && Instant::now() < deadline {
        let batch = port.receive().unwrap();
        for frame in batch {
            let mut bytes = vec![0; frame.len()];
            assert_eq!(frame.copy_to(0, &mut bytes), bytes.len());
            got.push((bytes, frame.segment_bytes()));
        }
        if batch.is_empty() {
            wait(&mut [&mut *port], &[], false, Some(5_000_000)).unwrap();
        }
    }
    port.release();
    got
}

/// Sends frames unchanged; waits while the port pushes back.
pub fn send_all(port: &mut dyn Port, frames: &[Vec<u8>]) {
    let mut at = 0;
    while at < frames.len() {
        let slots = port.reserve(frames.len() - at);
        let n = slots.len();
        for (slot, frame) in slots.iter().zip(&frames[at..]) {
            assert_eq!(slot.write(0, frame), frame.len());
            slot.set_len(frame.len());
        }
        port.send(n).unwrap();
        at += n;
        if n == 0 {
            wait(&mut [&mut *port], &[], true, Some(1_000_000)).unwrap();
        }
    }
}
