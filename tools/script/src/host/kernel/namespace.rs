//! A network namespace with one TUN device, for one script. Settings go by their `sysctl` names.
//!
//! Called by [`Kernel`](super::Kernel). The namespace has no name: it lives as long as a thread
//! or a descriptor in it. The program `ip` sets up addresses, routes and queues.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::calls_unsafe;
use crate::config::Config;

/// The device's name, within the namespace.
const DEVICE: &str = "tun0";
/// The routes of the calling thread's namespace.
const ROUTES: &str = "/proc/thread-self/net/ipv6_route";
/// Longest wait for a route.
const PATIENCE: Duration = Duration::from_secs(30);

/// Moves the calling thread into a new namespace, whose only way out is the device that is
/// returned.
pub(super) fn enter(config: &Config) -> Result<OwnedFd, String> {
    calls_unsafe::leave_network_namespace()
        .map_err(|e| format!("a network namespace of its own (root is needed): {e}"))?;
    let tun = packetio::tap::open_tun(DEVICE, config.mss > 0).map_err(|e| e.to_string())?;
    if config.local.is_ipv4() {
        let _ = write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    }
    let (bits, everybody, dad) = match config.local {
        IpAddr::V4(_) => (32, "0.0.0.0/0", ""),
        IpAddr::V6(_) => (128, "::/0", " nodad"),
    };
    let (local, mtu) = (config.local, config.mtu);
    ip(&format!(
        "link set lo up\n\
         link set {DEVICE} mtu {mtu} up\n\
         addr add {local}/{bits} dev {DEVICE}{dad}\n\
         route add {everybody} dev {DEVICE}\n"
    ))?;
    if let IpAddr::V6(local) = local {
        await_local(local)?;
    }
    Ok(tun)
}

/// Waits until the kernel takes packets for an address of IPv6: work that `addr add` leaves behind
/// makes its route, later on a busy machine. A packet before that would be lost.
fn await_local(address: Ipv6Addr) -> Result<(), String> {
    let destination = format!("{:032x} 80 ", address.to_bits());
    let until = Instant::now() + PATIENCE;
    loop {
        let routes = fs::read_to_string(ROUTES).map_err(|error| format!("{ROUTES}: {error}"))?;
        let mut ours = routes.lines().filter(|line| line.starts_with(&destination));
        if ours.any(is_local) {
            return Ok(());
        }
        if Instant::now() > until {
            return Err(format!("{address}: the kernel has no local route"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// True for a line of [`ROUTES`] whose flags, the last field but one, have `RTF_LOCAL`.
fn is_local(route: &str) -> bool {
    let flags = route.split_whitespace().nth_back(1);
    flags.is_some_and(|flags| u32::from_str_radix(flags, 16).is_ok_and(|flags| flags >> 31 == 1))
}

/// Runs `commands` as a batch of `ip`.
fn ip(commands: &str) -> Result<(), String> {
    let run = || -> std::io::Result<std::process::Output> {
        let mut child = Command::new("ip")
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(stdin) = &mut child.stdin {
            stdin.write_all(commands.as_bytes())?;
        }
        child.wait_with_output()
    };
    match run() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "ip: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("ip: {error}")),
    }
}

/// Forgets what connections in the namespace taught about their peers. False: `ip` failed.
pub(super) fn forget_peers() -> bool {
    ip("tcp_metrics flush all\n").is_ok()
}

/// Puts a queue of no packets before the device, or removes it. False: this kernel has no such
/// queue.
pub(super) fn congest(is_congested: bool) -> bool {
    let words: &[&str] = match is_congested {
        true => &[
            "qdisc", "replace", "dev", DEVICE, "root", "pfifo", "limit", "0",
        ],
        false => &["qdisc", "del", "dev", DEVICE, "root"],
    };
    let done = Command::new("tc")
        .args(words)
        .stderr(Stdio::null())
        .status();
    done.is_ok_and(|status| status.success())
}

/// Changed settings. Those of modules apply to the whole machine; dropping this value restores
/// them.
#[derive(Default)]
pub(super) struct Parameters {
    before: BTreeMap<String, String>,
}

impl Parameters {
    /// Makes a setting: `net.ipv4.tcp_ecn`, or `tcp_cubic.hystart` for a module's.
    pub(super) fn set(&mut self, name: &str, value: &str) -> std::io::Result<()> {
        if name.starts_with("net.") {
            return write(&format!("/proc/sys/{}", name.replace('.', "/")), value);
        }
        let name = name.strip_prefix("module.").unwrap_or(name);
        let (module, parameter) = name
            .split_once('.')
            .ok_or_else(|| std::io::Error::other("no such setting"))?;
        let path = format!("/sys/module/{module}/parameters/{parameter}");
        let is = fs::read_to_string(&path)?;
        if is.trim() == value.trim() {
            return Ok(());
        }
        write(&path, value)?;
        self.before.entry(path).or_insert(is);
        Ok(())
    }
}

impl Drop for Parameters {
    fn drop(&mut self) {
        for (path, value) in &self.before {
            let _ = write(path, value);
        }
    }
}

/// Writes to an existing file only: a setting that the kernel lacks must not become a file.
fn write(path: &str, value: &str) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    file.write_all(value.as_bytes())
}
