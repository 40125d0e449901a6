//! The directories of agents' sockets, and the agents that a reader finds there.
//!
//! A socket is named for its process: `PID.sock` in `/run/millstream` for root, in `millstream`
//! below `$XDG_RUNTIME_DIR` or `/run/user/UID` for other users, and in `/run/millstream/users` for
//! users without such a directory. The name is a hint: the process at the other end of a
//! connection is the one that the kernel names, since anybody may name a socket `1.sock`.

use std::collections::HashSet;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Uid, geteuid};

use crate::client::Client;
use crate::limits::SOCKETS_MAX;

/// The directory for sockets of root's processes.
const ROOT_DIRECTORY: &str = "/run/millstream";
/// The directory for sockets of users without one of their own. Everybody may write there, and
/// remove only their own files; the package makes it.
const SHARED_DIRECTORY: &str = "/run/millstream/users";
/// The directory of the directories of users that are logged in.
const USERS: &str = "/run/user";

/// Environment variable that names another directory, or turns the agent off by `off`.
pub const VARIABLE: &str = "MILLSTREAM_OBSERVE";

/// True if the environment turns the agent off.
#[must_use]
pub fn is_off() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "off")
}

/// The directory for sockets of this user; `None`: turned off, or no directory is this user's.
#[must_use]
pub fn directory() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE) {
        Some(_) if is_off() => None,
        Some(value) if !value.is_empty() => Some(value.into()),
        _ if geteuid().is_root() => Some(ROOT_DIRECTORY.into()),
        _ => of_user(),
    }
}

fn of_user() -> Option<PathBuf> {
    let logged_in = || Path::new(USERS).join(geteuid().as_raw().to_string());
    let own = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(logged_in, PathBuf::from);
    let shared = PathBuf::from(SHARED_DIRECTORY);
    match own.is_dir() {
        true => Some(own.join("millstream")),
        false => shared.is_dir().then_some(shared),
    }
}

/// The socket of process `pid` in `directory`.
#[must_use]
pub fn socket_path(directory: &Path, pid: u32) -> PathBuf {
    directory.join(format!("{pid}.sock"))
}

/// The agents of all processes that this user may look into, by number of the process: in the
/// user's own directory, in the shared one, and for root in those of all users. Sockets at which
/// nobody listens are removed.
#[must_use]
pub fn agents() -> Found {
    agents_but(&HashSet::new())
}

/// The [agents] whose sockets are none of these files, by device and inode. A reader that
/// looks again and again does not disturb agents that it is connected to.
#[must_use]
pub fn agents_but(known: &HashSet<(u64, u64)>) -> Found {
    let mut found = Found::default();
    if let Some(directory) = directory() {
        found.add(agents_in(&directory, known));
    }
    if std::env::var_os(VARIABLE).is_none() {
        found.add(agents_in(Path::new(SHARED_DIRECTORY), known));
        if geteuid().is_root() {
            for (directory, owner) in users() {
                let opened = open(&directory, OFlags::NOFOLLOW);
                if let Some(opened) = opened.filter(|opened| is_owned_by(opened, owner)) {
                    found.add(in_opened(&opened, &directory, known));
                }
            }
        }
    }
    found.agents.sort_by_key(Client::pid);
    found.agents.dedup_by_key(|client| client.pid());
    found
}

/// The agents whose sockets lie in `directory` and are none of the `known` files, in no order.
#[must_use]
pub fn agents_in(directory: &Path, known: &HashSet<(u64, u64)>) -> Found {
    let opened = open(directory, OFlags::empty());
    opened.map_or_else(Found::default, |opened| {
        in_opened(&opened, directory, known)
    })
}

/// The outcome of a look into the directories of agents.
#[derive(Default)]
pub struct Found {
    /// The agents that it is connected to.
    pub agents: Vec<Client>,
    /// Sockets of running processes that take no connection, with the error of `connect`. Sockets
    /// of other users are not among them.
    pub unseen: Vec<(PathBuf, Errno)>,
}

impl Found {
    fn add(&mut self, mut more: Self) {
        self.agents.append(&mut more.agents);
        self.unseen.append(&mut more.unseen);
    }
}

/// Directories of users that are logged in, and the user whom each has to belong to.
fn users() -> Vec<(PathBuf, Uid)> {
    let entries = std::fs::read_dir(USERS).into_iter().flatten().flatten();
    let user = |entry: std::fs::DirEntry| {
        let uid: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((entry.path().join("millstream"), Uid::from_raw(uid)))
    };
    entries.filter_map(user).collect()
}

/// Opens a directory. Another user's is opened with `NOFOLLOW`: a symbolic link would lead root to
/// where its owner wants a file removed.
fn open(directory: &Path, links: OFlags) -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY | links;
    rustix::fs::open(directory, flags, Mode::empty()).ok()
}

fn is_owned_by(opened: &OwnedFd, owner: Uid) -> bool {
    rustix::fs::fstat(opened).is_ok_and(|stat| stat.st_uid == owner.as_raw())
}

fn in_opened(opened: &OwnedFd, directory: &Path, known: &HashSet<(u64, u64)>) -> Found {
    let entries = Dir::read_from(opened).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| {
        let name = entry.file_name().to_str().ok()?.to_owned();
        let pid: Result<u32, _> = name.strip_suffix(".sock")?.parse();
        pid.is_ok().then_some(name)
    });
    let mut found = Found::default();
    for name in names.take(SOCKETS_MAX) {
        let file = identity(opened, &name).filter(|file| !known.contains(file));
        match file.map(|file| connected(opened, directory, &name, file)) {
            Some(Ok(client)) => found.agents.push(client),
            Some(Err(Some(errno))) => found.unseen.push((directory.join(name), errno)),
            Some(Err(None)) | None => {}
        }
    }
    found
}

/// Connects to the socket `name`, which is the file `seen`. One at which nobody listens is removed:
/// an agent gives its socket this name only once it listens.
///
/// # Errors
/// The error, if there is a process at the other end that this user may look into.
fn connected(
    opened: &OwnedFd,
    directory: &Path,
    name: &str,
    seen: (u64, u64),
) -> Result<Client, Option<Errno>> {
    // The path of a socket that is connected to leads through the opened directory.
    let through = PathBuf::from(format!("/proc/self/fd/{}/{name}", opened.as_raw_fd()));
    match Client::connect_through(&through, directory.join(name)) {
        Ok(client) => Ok(client.with_file(seen)),
        Err(Errno::CONNREFUSED) if identity(opened, name) == Some(seen) => {
            // Another reader may have removed it meanwhile.
            let _ = rustix::fs::unlinkat(opened, name, AtFlags::empty());
            Err(None)
        }
        // A process of another user, or one that ends.
        Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::CONNREFUSED) => Err(None),
        Err(errno) => Err(Some(errno)),
    }
}

/// Device and inode of a file.
fn identity(opened: &OwnedFd, name: &str) -> Option<(u64, u64)> {
    let stat = rustix::fs::statat(opened, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some((stat.st_dev, stat.st_ino))
}
