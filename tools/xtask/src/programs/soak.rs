//! `cargo xtask stress programs`: millions of short connections through nginx with two workers over
//! `mux:`. The memory of its processes and of the service is watched meanwhile.
//!
//! Owns a service on the near side while it runs. Memory counts as flat if no process has grown by
//! more than [`GROWTH_KIB_MAX`] since the first tenth of the connections.

use std::path::Path;

use super::workers::{PORT, Service, configure, signal, workers_of};
use super::{NEAR, World, no_errors};
use crate::run;

/// Number of looks at the memory.
const LOOKS: u64 = 10;
/// Growth of a process in KiB that is no leak: the allocator's, and tables that fill.
const GROWTH_KIB_MAX: u64 = 8 << 10;

/// The chore. False: memory has grown.
pub(crate) fn soak(root: &Path, requests: u64) -> Result<bool, String> {
    run::run(run::cargo().args(["build", "--release", "-p", "preload", "-p", "mill"]))?;
    let mut world = World::new(root)?;
    world.mill = run::target(root).join("release/mill");
    let service = Service::start(&world)?;
    configure(&world)?;
    let mut server = service.nginx("workers.conf", PORT)?;
    let master = server.id().to_string();
    let mut processes = workers_of(&master)?;
    processes.extend([master.clone(), service.id().to_string()]);
    println!("| connections | KiB of the workers, the master, the service |");
    println!("|---|---|");
    let mut first = None;
    let mut last = Vec::new();
    for look in 1..=LOOKS {
        load(&world, requests / LOOKS)?;
        last = processes
            .iter()
            .map(|pid| resident_kib(pid))
            .collect::<Result<_, _>>()?;
        println!("| {} | {last:?} |", look * (requests / LOOKS));
        first.get_or_insert_with(|| last.clone());
    }
    signal("-QUIT", &master)?;
    if !server.wait()? {
        return Err("QUIT did not end nginx with status 0".to_owned());
    }
    let mut pairs = first.iter().flatten().zip(&last);
    Ok(pairs.all(|(first, last)| *last <= first + GROWTH_KIB_MAX))
}

fn load(world: &World, requests: u64) -> Result<(), String> {
    let (requests, url) = (
        format!("-n{requests}"),
        format!("http://{NEAR}:{PORT}/index.html"),
    );
    let said = run::output(&mut world.kernel(&["ab", "-q", &requests, "-c20", &url]))?;
    no_errors("ab", &said)
}

/// Resident memory of a process in KiB, shared pages included.
fn resident_kib(pid: &str) -> Result<u64, String> {
    let path = format!("/proc/{pid}/status");
    let said = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = said.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("{path} has no VmRSS"))
}
