//! The current settings: those that a script made by `sysctl`, or by writing under `/proc/sys` and
//! `/sys/module`.
//!
//! Scripts make settings by shell lines, for the kernel. A stack beside the kernel mirrors them by
//! the kernel's names (`net.ipv4.tcp_rmem`, or `module.tcp_cubic.beta` for a module's parameter).
//! The first of these sources that has a setting counts:
//!
//! 1. a note of the [shims](crate::shims), in a file of that name. Shims note what they are told to
//!    set. Such a note is void if the kernel's value has changed since;
//! 2. a file of that name in the directory of `MILLSTREAM_SETTINGS` or of the flag `settings=`,
//!    where others may write;
//! 3. the kernel, if its value has changed since the script began. It also counts unchanged if we
//!    may write it, since the script's line had its effect there. The congestion control is taken
//!    only if changed: a machine's preference says nothing about a script;
//! 4. the defaults: the values that the suites' `defaults.sh` sets.

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
    /// Whether this process may write the kernel's settings.
    is_writable: bool,
    /// Directory with settings from outside.
    notes: Option<PathBuf>,
}

impl Mirror {
    /// A mirror that takes the kernel's present values as those before the script.
    pub fn new(notes: Option<PathBuf>) -> Self {
        Self {
            at_first: kernel_values(),
            is_writable: access(Path::new(PROC).join("tcp_rmem"), Access::WRITE_OK).is_ok()
                && !is_read_only(PROC),
            notes,
        }
    }

    /// The current settings. Those without a known value are missing.
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

/// The settings in a directory: names and contents of its files.
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

/// Whether a file of `/proc/sys/net/ipv4` is a TCP setting that each network namespace has for
/// itself.
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
