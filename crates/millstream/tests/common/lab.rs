//! The laboratory of tests with network namespaces. One such test runs at a time on the machine.
//! Its namespaces are removed at its end, or by the next test if it was killed.
//!
//! ```text
//!   near namespace          far namespace
//!   Millstream ── mx0 ════ mx1 ── kernel       AF_XDP on a veth pair, all offloads as the kernel has them
//!                Millstream ── mt0 ── kernel   TAP, in the far namespace
//! ```

#![allow(dead_code)] // each test file uses its part

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The interface that Millstream drives with AF_XDP, and the kernel's end of the pair.
pub const NEAR: &str = "mx0";
pub const FAR: &str = "mx1";
/// The TAP.
pub const TAP: &str = "mt0";
/// Millstream's addresses and the kernel's.
pub const OURS_V4: &str = "10.77.0.1";
pub const OURS_V6: &str = "fd77::1";
pub const KERNEL_V4: &str = "10.77.0.2";
pub const KERNEL_V6: &str = "fd77::2";

/// Time after which a test counts as hung.
const TEST_MAX: Duration = Duration::from_secs(120);
const LOCK: &str = "millstream-tests.lock";
const PREFIX: &str = "mst";

/// The right to run: no other such test runs in any process until this is dropped. Ends a test that
/// hangs.
pub struct Turn {
    _process: MutexGuard<'static, ()>,
    _machine: File,
    _over: Sender<()>,
    name: String,
    begin: Instant,
}

/// Waits for the turn of the test `name`.
pub fn turn(name: &str) -> Turn {
    static PROCESS: Mutex<()> = Mutex::new(());
    let process = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let path = std::env::temp_dir().join(LOCK);
    let machine = File::options()
        .create(true)
        .append(true)
        .open(path)
        .expect("the lock's file");
    flock(&machine, FlockOperation::LockExclusive).expect("flock");
    let (over, rest) = mpsc::channel();
    let own = name.to_owned();
    thread::spawn(move || {
        if rest.recv_timeout(TEST_MAX) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{own}: hangs for {TEST_MAX:?}; the process ends here");
            sweep(true);
            std::process::exit(101);
        }
    });
    Turn {
        _process: process,
        _machine: machine,
        _over: over,
        name: name.to_owned(),
        begin: Instant::now(),
    }
}

/// Like [`turn`], for tests that need root. Without root prints the reason and returns `None`.
pub fn turn_as_root(name: &str) -> Option<Turn> {
    let missing = if !rustix::process::geteuid().is_root() {
        Some("not root")
    } else if Command::new("ip").arg("-V").output().is_err() {
        Some("no ip command (Debian: iproute2)")
    } else if !Path::new("/dev/net/tun").exists() {
        Some("no /dev/net/tun")
    } else {
        None
    };
    if let Some(why) = missing {
        let _ = writeln!(std::io::stderr(), "ignored: {name}: {why}");
        return None;
    }
    let turn = turn(name);
    sweep(false);
    Some(turn)
}

impl Drop for Turn {
    fn drop(&mut self) {
        println!("{}: {:.2?}", self.name, self.begin.elapsed());
    }
}

/// Runs a command; panics with its output if it fails.
pub fn run(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .output()
        .unwrap_or_else(|e| panic!("{line}: {e}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}{text}");
    text
}

/// A network namespace.
pub struct Namespace {
    name: String,
}

impl Namespace {
    pub fn new(what: &str) -> Self {
        let name = format!("{}-{what}", super::unique(PREFIX));
        run(&format!("ip netns add {name}"));
        let made = Self { name };
        made.ip("link set lo up");
        made
    }

    /// The namespace's name, for commands that move an interface there.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `ip …` in the namespace.
    pub fn ip(&self, command: &str) -> String {
        run(&format!("ip -n {} {command}", self.name))
    }

    /// Any command in the namespace.
    pub fn exec(&self, command: &str) -> String {
        run(&format!("ip netns exec {} {command}", self.name))
    }

    /// Sets a key below `net` in the namespace: `ipv4/tcp_sack`.
    pub fn sysctl(&self, key: &str, value: &str) {
        self.inside(|| std::fs::write(format!("/proc/sys/net/{key}"), value).expect(key));
    }

    /// Moves the calling thread, which must be a fresh one, into the namespace.
    pub fn enter(&self) {
        let path = Path::new("/run/netns").join(&self.name);
        let fd = File::open(&path).expect("namespace");
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(fd.as_fd(), kind).expect("setns");
    }

    /// Runs `f` on a new thread in the namespace.
    pub fn inside<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let outcome = thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter();
                f()
            });
            inside.join()
        });
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "del", &self.name])
            .output();
    }
}

/// Removes namespaces of killed test runs; with `own`, also those of this process.
fn sweep(own: bool) {
    let Ok(entries) = std::fs::read_dir("/run/netns") else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut parts = name.split('-');
        let is_ours = parts.next() == Some(PREFIX);
        let pid = parts.next().unwrap_or_default();
        let is_own = pid == std::process::id().to_string();
        let is_dead = pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists();
        if is_ours && ((own && is_own) || is_dead) {
            let _ = Command::new("ip").args(["netns", "del", &name]).output();
        }
    }
}

/// The link between Millstream and the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Native,
    Generic,
    Tap,
}

/// A kernel and a home for Millstream, joined by a link.
pub struct Lab {
    link: Link,
    near: Namespace,
    far: Namespace,
}

impl Lab {
    pub fn new(link: Link) -> Self {
        let (near, far) = (Namespace::new("near"), Namespace::new("far"));
        let lab = Self { link, near, far };
        if link != Link::Tap {
            let far = &lab.far.name;
            lab.near.ip(&format!(
                "link add name {NEAR} type veth peer name {FAR} netns {far}"
            ));
            lab.near.ip(&format!("link set {NEAR} up"));
            lab.far.ip(&format!("link set {FAR} up"));
            lab.address(FAR);
        }
        lab
    }

    fn address(&self, interface: &str) {
        self.far
            .ip(&format!("addr add {KERNEL_V4}/24 dev {interface}"));
        self.far
            .ip(&format!("addr add {KERNEL_V6}/64 dev {interface} nodad"));
    }

    /// The wire's specification with further keys, such as `loss=0.01`.
    pub fn wire(&self, keys: &str) -> String {
        let wire = match self.link {
            Link::Native => format!("xdp:{NEAR},mode=native"),
            Link::Generic => format!("xdp:{NEAR},mode=generic"),
            Link::Tap => format!("tap:{TAP},up=yes"),
        };
        match keys {
            "" => wire,
            keys => format!("{wire},{keys}"),
        }
    }

    /// The namespace in which Millstream opens its wire.
    pub fn home(&self) -> &Namespace {
        match self.link {
            Link::Tap => &self.far,
            Link::Native | Link::Generic => &self.near,
        }
    }

    /// Configures the kernel's end of a TAP, which exists once the wire is open.
    pub fn opened(&self) {
        if self.link == Link::Tap {
            self.address(TAP);
        }
    }

    /// The kernel's namespace.
    pub fn far(&self) -> &Namespace {
        &self.far
    }

    /// The kernel's interface.
    pub fn far_interface(&self) -> &'static str {
        match self.link {
            Link::Tap => TAP,
            Link::Native | Link::Generic => FAR,
        }
    }
}
