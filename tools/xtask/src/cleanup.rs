//! Removal of a run's remains: network namespaces and temporary files.
//!
//! The project's namespaces are named `mst-<pid of the maker>-<name>`, and by tests of packetio and
//! capi `millpio-…` and `capiproof-…`. A namespace is removed with its veth pairs and TAPs if its
//! maker is gone. If the maker lives, the namespace belongs to another run on this machine and
//! stays. Temporary directories follow the same rule. [`crate::run`] calls this on a signal, and
//! the chores call it when they end.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::run;

const PREFIXES: [&str; 3] = ["mst-", "millpio-", "capiproof-"];
const NAMESPACES: &str = "/run/netns";

static TEMPORARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();

/// The run's own temporary directory: `mst-<pid>-xtask` in the system's. Children get it as TMPDIR.
pub fn temporary_directory() -> Result<PathBuf, String> {
    TEMPORARY
        .get_or_init(|| {
            let path = std::env::temp_dir().join(format!("mst-{}-xtask", std::process::id()));
            fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(path)
        })
        .clone()
}

/// `cargo xtask clean`: removes what interrupted runs left.
pub fn clean() -> Result<bool, String> {
    let removed = sweep();
    for name in &removed {
        println!("removed {name}");
    }
    println!("{} left-overs removed", removed.len());
    Ok(true)
}

/// Cleans up at the end of a run, also of a failed or interrupted one.
pub fn after_run() {
    if let Some(Ok(path)) = TEMPORARY.get() {
        let _ = fs::remove_dir_all(path);
    }
    for name in sweep() {
        eprintln!("xtask: removed {name}, which its maker left behind");
    }
}

/// Removes every namespace and temporary directory of ours whose maker no longer lives.
fn sweep() -> Vec<String> {
    let mut removed = Vec::new();
    for name in names_in(Path::new(NAMESPACES)) {
        let delete = || run::output(run::command("ip").args(["netns", "delete", &name]));
        if is_ownerless(&name) && delete().is_ok() {
            removed.push(format!("namespace {name}"));
        }
    }
    let temporary = std::env::temp_dir();
    for name in names_in(&temporary) {
        let path = temporary.join(&name);
        if is_ownerless(&name) && remove(&path).is_ok() {
            removed.push(path.display().to_string());
        }
    }
    removed
}

fn remove(path: &Path) -> std::io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

fn names_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.into_string().ok()).collect()
}

/// Whether the name has a prefix of ours and the number of a process that is gone.
fn is_ownerless(name: &str) -> bool {
    let Some(maker) = maker_of(name) else {
        return false;
    };
    !Path::new("/proc").join(maker.to_string()).exists()
}

fn maker_of(name: &str) -> Option<u32> {
    let rest = PREFIXES
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))?;
    let (pid, _) = rest.split_once('-').unwrap_or((rest, ""));
    pid.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maker_is_the_number_after_the_prefix() {
        assert_eq!(maker_of("mst-123-client"), Some(123));
        assert_eq!(maker_of("mst-123"), Some(123));
        assert_eq!(maker_of("millpio-123-2-a"), Some(123));
        assert_eq!(maker_of("mst-client"), None);
        assert_eq!(maker_of("other-123-x"), None);
    }

    #[test]
    fn only_names_of_the_dead_are_ownerless() {
        assert!(!is_ownerless(&format!("mst-{}-x", std::process::id())));
        assert!(is_ownerless("mst-4194305-x"));
        assert!(!is_ownerless("mst-client"));
    }
}
