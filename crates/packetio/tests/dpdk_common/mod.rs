//! The DPDK plug-in for tests: compiled where DPDK's headers are, once in a process. Elsewhere a
//! test says why it does not run.

#![allow(dead_code, reason = "each test file uses a part")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use packetio::dpdk::DpdkOptions;
use packetio::{Backend, Port, WireSpec};

/// The exit status of build.sh without DPDK.
const NO_DPDK: i32 = 3;

/// The plug-in's file; `None`, with the reason printed, without DPDK to build against.
pub fn plugin() -> Option<PathBuf> {
    static PLUGIN: OnceLock<Option<PathBuf>> = OnceLock::new();
    PLUGIN.get_or_init(build).clone()
}

fn build() -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dpdk");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dpdk/build.sh");
    let output = Command::new(script)
        .arg(&directory)
        .env("CFLAGS", "-O2 -g -Wextra -Werror")
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

/// Opens a queue through the front door.
pub fn open(options: &DpdkOptions, queue: usize) -> Result<Box<dyn Port + Send>, String> {
    let spec = WireSpec::from(Backend::Dpdk(options.clone()));
    packetio::open(&spec, queue).map_err(|error| error.to_string())
}

/// A named counter.
pub fn count(port: &dyn Port, name: &str) -> u64 {
    port.counters().value(name).unwrap()
}
