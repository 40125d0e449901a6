//! The settings of the moment: what a script has set by `sysctl`, or by writing under `/proc/sys`
//! and `/sys/module`.
//!
//! Scripts set them by shell lines, for the kernel. A stack that stands beside the kernel mirrors
//! them, by the kernel's names (`net.ipv4.tcp_rmem`; a module's parameters as
//! `module.tcp_cubic.beta`). Where a setting comes from, the first that has it:
//!
//! 1. a note: a file of that name in the directory of the [shims](crate::shims), which note what
//!    they are told to set, or in the directory that `MILLSTREAM_SETTINGS` or the flag `settings=`
//!    names, where shims of others may write it. A note is void when the kernel's value has changed
//!    since;
//! 2. the kernel, if its value has changed since the script began, or if we may write it, so that
//!    the script's line had its effect there. The congestion control is taken only if it has
//!    changed: what a machine prefers says nothing about a script;
//! 3. nobody: then the stack has what the suites' `defaults.sh` sets.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::shims::Shims;

/// See the module's documentation.
#[derive(Debug)]
pub struct Mirror {
    /// The kernel's values when the script began.
    at_first: BTreeMap<String, String>,
    /// We may write them.
    is_writable: bool,
    /// Another's notes.
    notes: Option<PathBuf>,
}

impl Mirror {
    /// The settings as they are before the script sets any.
    pub fn new(notes: Option<PathBuf>) -> Self {
        Self {
            at_first: kernel_values(),
            is_writable: access(Path::new(PROC).join("tcp_rmem"), Access::WRITE_OK).is_ok()
                && !is_read_only(PROC),
            notes,
        }
    }

    /// The settings as they are now. Those of which nothing is known are missing.
    pub fn read(&self, shims: Option<&Shims>) -> BTreeMap<String, String> {
        let kernel = kernel_values();
        let mut settings: BTreeMap<String, String> = kernel
            .iter()
            .filter(|(name, value)| {
                let has_changed = self.at_first.get(*name) != Some(*value);
                has_changed || self.is_writable && name.as_str() != CONGESTION_CONTROL
            })
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if let Some(directory) = &self.notes {
            settings.extend(notes(directory));
        }
        if let Some(shims) = shims {
            let seen: BTreeMap<String, String> = notes(&shims.seen()).collect();
            settings.extend(notes(&shims.notes()).filter(|(name, _)| {
                let then = seen.get(name).map(String::as_str).unwrap_or_default();
                let now = kernel.get(name).map(String::as_str).unwrap_or_default();
                then == now || then.is_empty()
            }));
        }
        settings
    }
}

/// A directory of files called after settings.
fn notes(directory: &Path) -> impl Iterator<Item = (String, String)> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some((name, value_in(&entry.path())?))
    })
}

fn kernel_values() -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for (directory, prefix) in [(PROC, "net.ipv4."), (CUBIC, "module.tcp_cubic.")] {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if directory == PROC && !is_mirrored(name) {
                continue;
            }
            if let Some(value) = value_in(&entry.path()) {
                values.insert(format!("{prefix}{name}"), value);
            }
        }
    }
    values
}

/// Of `/proc/sys/net/ipv4`, what concerns TCP and is its own in each network namespace.
fn is_mirrored(name: &str) -> bool {
    let is_list = name.ends_with("_congestion_control") && name != "tcp_congestion_control";
    name.starts_with("tcp_") && !is_list && name != "tcp_mem"
}

/// A file's content as one line, its words separated by single spaces.
fn value_in(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn is_read_only(directory: &str) -> bool {
    let flags = rustix::fs::statvfs(directory).map(|stat| stat.f_flag);
    flags.is_ok_and(|flags| flags.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

const PROC: &str = "/proc/sys/net/ipv4";
const CUBIC: &str = "/sys/module/tcp_cubic/parameters";
const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anothers_notes_go_before_the_kernel() {
        let directory = std::env::temp_dir().join(format!("settings-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("net.ipv4.tcp_rmem"), "1\t2 \t3\n").unwrap();
        let settings = Mirror::new(Some(directory.clone())).read(None);
        fs::remove_dir_all(directory).unwrap();
        assert_eq!(settings["net.ipv4.tcp_rmem"], "1 2 3");
    }
}
