//! Reads the facts: files of `/proc` and `/sys`, and what `ip`, `ethtool` and `nft` print.
//!
//! A file that cannot be read gives an empty text. A program that is not installed, or that this
//! user may not ask, leaves its checks without an answer, and they say so.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use packetio::mux::SOCKET_PATH_DEFAULT;
use packetio::xdp::{Bulk, XdpMode, try_bulk_lane};
use packetio::{Backend, WireSpec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};

use super::facts::{Facts, WireFacts};
use crate::net::options::Cidr;

/// Reads all facts about the host and the wire.
pub fn facts(wire: Option<&WireSpec>, addresses: &[Cidr], contexts: u16) -> Facts {
    let clock = "/sys/devices/system/clocksource/clocksource0";
    let program = std::env::current_exe().unwrap_or_else(|_| "mill".into());
    Facts {
        kernel: read("/proc/sys/kernel/osrelease"),
        status: read("/proc/self/status"),
        limits: read("/proc/self/limits"),
        meminfo: read("/proc/meminfo"),
        huge_shmem: read("/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
        huge_own: read("/sys/kernel/mm/transparent_hugepage/enabled"),
        nodes: read("/sys/devices/system/node/online"),
        governors: governors(),
        clock: read(&format!("{clock}/current_clocksource")),
        clocks: read(&format!("{clock}/available_clocksource")),
        program: program.display().to_string(),
        wire: wire.map(|spec| wire_facts(spec, addresses, contexts)),
    }
}

fn wire_facts(spec: &WireSpec, addresses: &[Cidr], contexts: u16) -> WireFacts {
    let mut facts = WireFacts {
        kind: spec.kind(),
        interface: spec.interface().map(str::to_owned),
        native_only: matches!(&spec.backend, Backend::Xdp(xdp) if xdp.mode == XdpMode::Native),
        wants_bulk: matches!(&spec.backend, Backend::Xdp(xdp) if xdp.bulk == Bulk::Auto),
        contexts,
        addresses: addresses.to_vec(),
        kernel_addresses: run(&["ip", "-j", "addr", "show"]),
        firewall: run(&["nft", "list", "ruleset"]).or_else(|| run(&["iptables-save"])),
        has_ethtool: run(&["ethtool", "--version"]).is_some(),
        service: service(spec),
        has_tun: Path::new("/dev/net/tun").exists(),
        ..WireFacts::default()
    };
    if let Some(name) = &facts.interface {
        if facts.wants_bulk {
            let refusal = try_bulk_lane(name).err();
            facts.bulk_refusal = refusal.map_or_else(String::new, |error| error.to_string());
        }
        // A driver without a setting makes ethtool end badly.
        let said = |words: &[&str]| run(words).unwrap_or_default();
        facts.link = said(&["ip", "-d", "-j", "link", "show", "dev", name]);
        facts.driver = said(&["ethtool", "-i", name]);
        facts.features = said(&["ethtool", "-k", name]);
        facts.rings = said(&["ethtool", "-g", name]);
        facts.channels = said(&["ethtool", "-l", name]);
        facts.spread = said(&["ethtool", "-x", name]);
    }
    facts
}

/// The socket of the service behind a `mux` wire, and the error of a connection to it.
fn service(spec: &WireSpec) -> Option<(String, Option<Errno>)> {
    let Backend::Mux(options) = &spec.backend else {
        return None;
    };
    let path = match options.path.is_empty() {
        true => SOCKET_PATH_DEFAULT.to_owned(),
        false => options.path.clone(),
    };
    let connected = || {
        let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
        connect(&socket, &SocketAddrUnix::new(&*path)?)
    };
    let error = connected().err();
    Some((path, error))
}

fn governors() -> Vec<String> {
    let Ok(cpus) = fs::read_dir("/sys/devices/system/cpu") else {
        return Vec::new();
    };
    let governor = |path: &Path| fs::read_to_string(path.join("cpufreq/scaling_governor")).ok();
    cpus.flatten()
        .filter_map(|cpu| governor(&cpu.path()))
        .map(|name| name.trim().to_owned())
        .collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// A program's output; `None` if it is not installed or ends badly.
fn run(words: &[&str]) -> Option<String> {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    let output = command.output().ok()?;
    let text = || String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(text)
}
