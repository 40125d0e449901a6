//! Reads the facts: files of `/proc` and `/sys`, and what `ip`, `ethtool` and `nft` print.
//!
//! A file that cannot be read gives an empty text. A program that is not installed, or that this
//! user may not ask, leaves its checks without an answer, and they say so.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use packetio::dpdk::try_plugin;
use packetio::memif::MemifRole;
use packetio::mux::SOCKET_PATH_DEFAULT;
use packetio::xdp::{Bulk, Take, XdpMode, try_bulk_lane};
use packetio::{Backend, WireSpec};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};

use super::checks::{number, value, xdp_program};
use super::facts::{Facts, MemifPlace, WireFacts};
use crate::net::options::Cidr;

/// Reads all facts about the host and the wire.
pub fn facts(wire: Option<&WireSpec>, addresses: &[Cidr], contexts: u16) -> Facts {
    let clock = "/sys/devices/system/clocksource/clocksource0";
    let program = std::env::current_exe().unwrap_or_else(|_| "mill".into());
    Facts {
        has_sys: Path::new("/sys/devices/system/cpu").exists(),
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
        needs_huge_pages: matches!(&spec.backend, Backend::Dpdk(dpdk)
            if !dpdk.eal.split_whitespace().any(|word| word == "--no-huge")),
        takes_merged: matches!(&spec.backend, Backend::Packet(packet) if packet.offload),
        contexts,
        addresses: addresses.to_vec(),
        kernel_addresses: run(&["ip", "-j", "addr", "show"]),
        firewall: run(&["nft", "list", "ruleset"]).or_else(|| run(&["iptables-save"])),
        has_ethtool: run(&["ethtool", "--version"]).is_some(),
        service: service(spec),
        has_tun: Path::new("/dev/net/tun").exists(),
        memif: memif(spec),
        plugin_refusal: plugin_refusal(spec),
        ..WireFacts::default()
    };
    if let Backend::Xdp(xdp) = &spec.backend {
        facts.native_only = xdp.mode == XdpMode::Native;
        facts.generic_only = xdp.mode == XdpMode::Generic;
        facts.wants_bulk = xdp.bulk == Bulk::Auto;
        facts.is_mirror = xdp.take == Take::Tcp;
        let count = xdp.queues.or(xdp.queue.map(|_| 1));
        facts.queues = count.map(|count| (xdp.queue.unwrap_or(0) as u64, count as u64));
    }
    if let Some(name) = &facts.interface {
        facts.has_interface = has_interface(name);
        if facts.wants_bulk {
            let refusal = try_bulk_lane(name).err();
            facts.bulk_refusal = refusal.map_or_else(String::new, |error| error.to_string());
        }
        // A driver without a setting makes ethtool end badly.
        let said = |words: &[&str]| run(words).unwrap_or_default();
        facts.link = said(&["ip", "-d", "-j", "link", "show", "dev", name]);
        facts.holder = xdp_program(&facts.link).and_then(holder);
        facts.sys_driver = sys_driver(name);
        facts.driver = said(&["ethtool", "-i", name]);
        facts.features = said(&["ethtool", "-k", name]);
        facts.rings = said(&["ethtool", "-g", name]);
        facts.channels = said(&["ethtool", "-l", name]);
        facts.spread = said(&["ethtool", "-x", name]);
    }
    facts
}

/// Whether the kernel has an interface of this name, by a socket, since `/sys` may be missing.
fn has_interface(name: &str) -> bool {
    let asker = socket(AddressFamily::INET, SocketType::DGRAM, None);
    asker.is_ok_and(|asker| rustix::net::netdevice::name_to_index(asker, name).is_ok())
}

/// The driver's name without ethtool. Virtual interfaces have none there.
fn sys_driver(name: &str) -> String {
    let link = fs::read_link(format!("/sys/class/net/{name}/device/driver"));
    let driver = link.ok().and_then(|link| {
        let name = link.file_name()?;
        Some(name.to_string_lossy().into_owned())
    });
    driver.unwrap_or_default()
}

/// The process whose BPF link holds an XDP program, of those that this user may look into.
fn holder(program: u64) -> Option<(u32, String)> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .find(|&pid| holds(pid, program))
        .map(|pid| {
            let name = read(&format!("/proc/{pid}/comm"));
            (pid, name.trim().to_owned())
        })
}

fn holds(pid: u32, program: u64) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    descriptors.flatten().any(|entry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        if !target.to_string_lossy().contains("bpf") {
            return false;
        }
        let descriptor = entry.file_name();
        let info = read(&format!(
            "/proc/{pid}/fdinfo/{}",
            descriptor.to_string_lossy()
        ));
        value(&info, "link_type") == Some("xdp") && number(&info, "prog_id") == Some(program)
    })
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

/// The path of a `memif` wire, and what is there.
fn memif(spec: &WireSpec) -> Option<(String, MemifPlace)> {
    let Backend::Memif(options) = &spec.backend else {
        return None;
    };
    let path = Path::new(&options.path);
    let may_write = |path: &Path| access(path, Access::WRITE_OK).is_ok();
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let place = match fs::metadata(path) {
        // A name of the abstract kind is no file.
        _ if options.path.starts_with('@') => MemifPlace::Socket,
        Ok(file) if !file.file_type().is_socket() => MemifPlace::OtherFile,
        Ok(_) if may_write(path) => MemifPlace::Socket,
        Ok(_) => MemifPlace::Denied,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => MemifPlace::Denied,
        Err(_) if !directory.is_dir() => MemifPlace::NoDirectory,
        Err(_) if options.role == MemifRole::Client || may_write(directory) => MemifPlace::Nothing,
        Err(_) => MemifPlace::Denied,
    };
    Some((options.path.clone(), place))
}

/// The error of loading the DPDK plug-in for a `dpdk` wire; empty: none.
fn plugin_refusal(spec: &WireSpec) -> String {
    match &spec.backend {
        Backend::Dpdk(options) => try_plugin(options).err().unwrap_or_default(),
        _ => String::new(),
    }
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
