//! Network namespaces for tests that need root, with unique names. They are removed when dropped,
//! even by a panic.
//!
//! `bridge_kernel.rs` and `tap_kernel.rs` use them. The next run removes the namespaces of a killed
//! run.

#![allow(dead_code)]

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const PREFIX: &str = "millpio";
static NEXT: Mutex<u32> = Mutex::new(0);

/// True if the test can run; otherwise prints why not.
pub fn can_run(test: &str) -> bool {
    let missing = if !rustix::process::geteuid().is_root() {
        Some("not root")
    } else if !Path::new("/dev/net/tun").exists() {
        Some("no /dev/net/tun")
    } else if Command::new("ip").arg("-V").output().is_err() {
        Some("no ip command")
    } else {
        None
    };
    if let Some(why) = missing {
        let _ = writeln!(std::io::stderr(), "ignored: {test}: {why}");
    }
    missing.is_none()
}

/// Runs a command; panics with its output if it fails.
pub fn run(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .output()
        .unwrap_or_else(|e| panic!("{line}: {e}"));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A network namespace.
pub struct Namespace {
    pub name: String,
}

impl Namespace {
    pub fn new(what: &str) -> Self {
        let mut next = NEXT.lock().unwrap_or_else(|e| e.into_inner());
        if *next == 0 {
            sweep();
        }
        *next += 1;
        let name = format!("{PREFIX}-{}-{}-{what}", std::process::id(), *next);
        run(&format!("ip netns add {name}"));
        let made = Self { name };
        made.ip("link set lo up");
        made
    }

    /// Runs `ip …` in the namespace.
    pub fn ip(&self, command: &str) -> String {
        run(&format!("ip -n {} {command}", self.name))
    }

    /// Runs a command in the namespace.
    pub fn exec(&self, command: &str) -> String {
        run(&format!("ip netns exec {} {command}", self.name))
    }

    /// Runs `f` on its own thread in the namespace.
    pub fn inside<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let path = Path::new("/var/run/netns").join(&self.name);
        thread::scope(|scope| {
            let run = scope.spawn(move || {
                let fd = File::open(&path).expect("namespace");
                let kind = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(fd.as_fd(), kind).expect("setns");
                f()
            });
            match run.join() {
                Ok(value) => value,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .output();
    }
}

/// Removes the namespaces of killed test runs.
fn sweep() {
    let Ok(entries) = std::fs::read_dir("/var/run/netns") else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut parts = name.split('-');
        let ours = parts.next() == Some(PREFIX);
        let pid = parts.next().unwrap_or_default();
        if ours && !Path::new("/proc").join(pid).exists() {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}
