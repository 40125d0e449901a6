//! Where the sockets of agents lie: `/run/millstream/PID.sock` for root, the same below
//! `$XDG_RUNTIME_DIR` for other users.

use std::path::{Path, PathBuf};

use rustix::net::{SocketAddrUnix, connect};
use rustix::process::geteuid;

use crate::limits::SOCKETS_MAX;
use crate::packet;

/// Directory of the sockets of root's processes.
const ROOT_DIRECTORY: &str = "/run/millstream";

/// Environment variable that names another directory, or turns the agent off by `off`.
pub const VARIABLE: &str = "MILLSTREAM_OBSERVE";

/// The directory for sockets of this user. `None`: the agent is turned off, or the user has no
/// directory.
#[must_use]
pub fn directory() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE) {
        Some(value) if value == "off" => None,
        Some(value) if !value.is_empty() => Some(value.into()),
        _ if geteuid().is_root() => Some(ROOT_DIRECTORY.into()),
        _ => Some(PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?).join("millstream")),
    }
}

/// The directories that a reader searches: its own, and for root those of all users.
#[must_use]
pub fn directories() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = directory().into_iter().collect();
    if geteuid().is_root() && std::env::var_os(VARIABLE).is_none() {
        let users = std::fs::read_dir("/run/user")
            .into_iter()
            .flatten()
            .flatten();
        all.extend(users.map(|user| user.path().join("millstream")));
    }
    all
}

/// The socket of process `pid` in `directory`.
#[must_use]
pub fn socket_path(directory: &Path, pid: u32) -> PathBuf {
    directory.join(format!("{pid}.sock"))
}

/// The processes with a socket in `directory`, sorted by process id. Sockets without a listener are
/// removed.
#[must_use]
pub fn processes(directory: &Path) -> Vec<(u32, PathBuf)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let pid = name.to_str()?.strip_suffix(".sock")?.parse().ok()?;
            Some((pid, entry.path()))
        })
        .take(SOCKETS_MAX)
        .filter(|(_, path)| !remove_stale(path))
        .collect();
    found.sort_unstable();
    found
}

/// Removes a socket without a listener. True: it was removed.
fn remove_stale(path: &Path) -> bool {
    let refused = || -> Option<bool> {
        let address = SocketAddrUnix::new(path).ok()?;
        let socket = packet::socket().ok()?;
        Some(connect(&socket, &address) == Err(rustix::io::Errno::CONNREFUSED))
    };
    refused() == Some(true) && std::fs::remove_file(path).is_ok()
}
