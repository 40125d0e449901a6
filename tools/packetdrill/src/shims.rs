//! Commands that a script runs to change the host, or to ask what the host's TCP counted: while the
//! script runs, ones of our own stand before them on `PATH`.
//!
//! packetdrill runs a script's shell lines in its own environment. There is no `tun0` when a
//! plug-in is the network, so `tc`, `ip` and `ethtool` on it would fail and end the script.
//! `sysctl` may be forbidden. `nstat` would tell of the kernel. So each of them notes its arguments
//! for the stack, and lets the host's command of the same name do what it can. It fails only where
//! the script asks about the failure.
//!
//! ```text
//! DIRECTORY/bin/{sysctl,tc,ip,ethtool,nstat,python3}   first on PATH
//!          /settings/NAME  /seen/NAME          what was set; what the kernel's value was right after it; as route.NAME the metrics of tun0's last route
//!          /routes  /flushed                   tun0's routes, a line each; as many bytes as ip tcp_metrics was flushed
//!          /mtu  /blackhole                    ip link set dev tun0 mtu N; tc qdisc add dev tun0 root pfifo limit 0
//!          /counters  /history                 what the stack counted; what nstat has told already
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// See the module's documentation. The directory goes with it.
#[derive(Debug)]
pub struct Shims {
    directory: PathBuf,
    published: BTreeMap<&'static str, u64>,
}

impl Shims {
    /// The commands, in a new directory that no other user can write to.
    ///
    /// # Errors
    /// The file system's.
    pub fn new() -> std::io::Result<Self> {
        let mut directory = std::env::temp_dir();
        for attempt in 0.. {
            directory.push(format!(
                "millstream-packetdrill.{}.{attempt}",
                std::process::id()
            ));
            let mut builder = fs::DirBuilder::new();
            match builder.mode(0o700).create(&directory) {
                Ok(()) => break,
                Err(error)
                    if error.kind() == std::io::ErrorKind::AlreadyExists && attempt < 1_000 =>
                {
                    directory.pop();
                }
                Err(error) => return Err(error),
            }
        }
        let shims = Self {
            directory,
            published: BTreeMap::new(),
        };
        for part in ["bin", "settings", "seen"] {
            fs::create_dir(shims.directory.join(part))?;
        }
        fs::write(shims.directory.join("routes"), ROUTES)?;
        for (name, text) in COMMANDS {
            let path = shims.bin().join(name);
            let head = format!("#!/bin/sh\ndir='{}'\n{COMMON}", shims.directory.display());
            fs::write(&path, head + text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
        }
        Ok(shims)
    }

    /// The directory that goes before `PATH`.
    pub fn bin(&self) -> PathBuf {
        self.directory.join("bin")
    }

    /// All of it.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The file in which settings are noted.
    pub fn notes(&self) -> PathBuf {
        self.directory.join("settings")
    }

    /// The kernel's values right after it was.
    pub fn seen(&self) -> PathBuf {
        self.directory.join("seen")
    }

    /// The wire's MTU as `ip link` made it, or `ip route` the route's, if that is less.
    pub fn mtu(&self) -> Option<usize> {
        let read = |name: &str| {
            let text = fs::read_to_string(self.directory.join(name)).ok()?;
            let mtu = text.trim().parse().ok();
            mtu.filter(|mtu| (68..=65_535).contains(mtu))
        };
        [read("mtu"), read("settings/route.mtu")]
            .into_iter()
            .flatten()
            .min()
    }

    /// How often `ip tcp_metrics` was flushed.
    pub fn flushes(&self) -> u64 {
        fs::metadata(self.directory.join("flushed")).map_or(0, |data| data.len())
    }

    /// `tc` has the wire drop all that leaves.
    pub fn is_blackhole(&self) -> bool {
        self.directory.join("blackhole").exists()
    }

    /// Puts counters where `nstat` finds them.
    pub fn publish(&mut self, counters: &BTreeMap<&'static str, u64>) {
        if *counters == self.published {
            return;
        }
        let lines: String = counters
            .iter()
            .map(|(name, count)| format!("{name} {count}\n"))
            .collect();
        // A command that finds no counters says so itself.
        let _ = fs::write(self.directory.join("counters"), lines);
        self.published.clone_from(counters);
    }
}

impl Drop for Shims {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The beginning of all shims: the host's commands come after ours, and a setting is noted.
const COMMON: &str = include_str!("shims/common.sh");

/// The routes that packetdrill makes over its device.
const ROUTES: &str = "192.0.2.0/24 via 192.168.0.1 dev tun0\n";

const COMMANDS: [(&str, &str); 6] = [
    ("sysctl", include_str!("shims/sysctl.sh")),
    ("tc", include_str!("shims/tc.sh")),
    ("ip", include_str!("shims/ip.sh")),
    ("ethtool", include_str!("shims/ethtool.sh")),
    ("nstat", include_str!("shims/nstat.sh")),
    ("python3", include_str!("shims/python3.sh")),
];

#[cfg(test)]
mod tests;
