//! Shims for commands by which a script changes the host or asks for its TCP counters. While the
//! script runs they come first on `PATH`.
//!
//! packetdrill runs a script's shell lines in its own environment. With a plug-in as the network
//! there is no `tun0`, so `tc`, `ip` and `ethtool` on it would fail and end the script. `sysctl`
//! may be forbidden, and `nstat` would show the kernel's counters. Each shim therefore notes its
//! arguments for the stack, and lets the host's command of the same name do what it can. It fails
//! only where the script tests for that failure.
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

/// See the module's documentation. Dropping this removes the directory.
#[derive(Debug)]
pub struct Shims {
    directory: PathBuf,
    published: BTreeMap<&'static str, u64>,
}

impl Shims {
    /// Writes the commands to a new directory that only this user can write to.
    ///
    /// # Errors
    /// An error of the file system.
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

    /// The directory that goes first on `PATH`.
    pub fn bin(&self) -> PathBuf {
        self.directory.join("bin")
    }

    /// The directory that holds everything.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory of settings, one file for each.
    pub fn notes(&self) -> PathBuf {
        self.directory.join("settings")
    }

    /// The directory with the kernel's values right after each setting was noted.
    pub fn seen(&self) -> PathBuf {
        self.directory.join("seen")
    }

    /// The MTU in bytes that `ip link` gave the device or `ip route` the route, whichever is less.
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

    /// Number of times that `ip tcp_metrics` was flushed.
    pub fn flushes(&self) -> u64 {
        fs::metadata(self.directory.join("flushed")).map_or(0, |data| data.len())
    }

    /// Whether `tc` has put a queue without room before the wire, which drops everything that
    /// leaves.
    pub fn is_blackhole(&self) -> bool {
        self.directory.join("blackhole").exists()
    }

    /// Writes the counters to the file that the shim of `nstat` reads.
    pub fn publish(&mut self, counters: &BTreeMap<&'static str, u64>) {
        if *counters == self.published {
            return;
        }
        let lines: String = counters
            .iter()
            .map(|(name, count)| format!("{name} {count}\n"))
            .collect();
        // `nstat` itself reports a missing file.
        let _ = fs::write(self.directory.join("counters"), lines);
        self.published.clone_from(counters);
    }
}

impl Drop for Shims {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The beginning of all shims. It takes them off `PATH` for the host's commands, and defines
/// `note`.
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
