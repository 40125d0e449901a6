//! Namespaces in which our program meets the kernel, over a TAP or a veth pair; removed on drop,
//! even after a panic.

use std::io::Read;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// The kernel's addresses are `.1` and `::1`, ours `.2` and `::2`.
pub const KERNEL: [&str; 2] = ["10.78.0.1", "fd78::1"];
pub const OURS: [&str; 2] = ["10.78.0.2", "fd78::2"];
/// The interface that our program drives, in the namespace `ours`.
pub const INTERFACE: &str = "right";

/// The environment of one test.
pub struct Lab {
    prefix: String,
    pub directory: PathBuf,
}

impl Lab {
    /// Makes two namespaces. `None`, with the reason printed, if that is impossible.
    pub fn new(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            let _ = writeln!(std::io::stderr(), "ignored: {name}: namespaces take root");
            return None;
        }
        let prefix = format!("capiproof-{}-{name}", std::process::id());
        let directory = super::scratch(name);
        let lab = Self { prefix, directory };
        for side in ["kernel", "ours"] {
            ok(&["ip", "netns", "add", &lab.namespace(side)]);
            lab.ip(side, "link set lo up");
        }
        Some(lab)
    }

    /// Adds a veth pair between the namespaces; AF_XDP uses the end in `ours`.
    pub fn with_veth(self) -> Self {
        self.with_veth_of("")
    }

    /// Adds a veth pair with `queues` queues in each direction at both ends. The sender chooses the
    /// queue of a frame.
    pub fn with_veth_queues(self, queues: u32) -> Self {
        self.with_veth_of(&format!(" numtxqueues {queues} numrxqueues {queues}"))
    }

    fn with_veth_of(self, queues: &str) -> Self {
        let ours = self.namespace("ours");
        let pair =
            format!("link add left{queues} type veth peer name {INTERFACE}{queues} netns {ours}");
        self.ip("kernel", &pair);
        self.name_kernel("kernel", "left");
        self.ip("ours", &format!("link set {INTERFACE} up"));
        self
    }

    /// Adds a TAP in `ours`, whose other end is the program's.
    pub fn with_tap(self) -> Self {
        self.ip("ours", &format!("tuntap add dev {INTERFACE} mode tap"));
        self.name_kernel("ours", INTERFACE);
        self
    }

    fn name_kernel(&self, side: &str, interface: &str) {
        let [four, six] = KERNEL;
        self.ip(side, &format!("addr add {four}/24 dev {interface}"));
        self.ip(side, &format!("addr add {six}/64 dev {interface} nodad"));
        self.ip(side, &format!("link set {interface} up"));
    }

    pub fn namespace(&self, side: &str) -> String {
        format!("{}-{side}", self.prefix)
    }

    /// Runs `ip` in a namespace.
    pub fn ip(&self, side: &str, words: &str) {
        let namespace = self.namespace(side);
        let words: Vec<&str> = ["ip", "-n", &namespace]
            .into_iter()
            .chain(words.split(' '))
            .collect();
        ok(&words);
    }

    /// Makes a setting `NAME=VALUE` in a namespace.
    pub fn sysctl(&self, side: &str, setting: &str) {
        let namespace = self.namespace(side);
        ok(&["ip", "netns", "exec", &namespace, "sysctl", "-qw", setting]);
    }

    /// Writes a file in the test's directory.
    pub fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A command in a namespace, in the test's directory.
    pub fn command(&self, side: &str, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace(side)])
            .arg(program)
            .current_dir(&self.directory)
            .stdin(Stdio::null());
        command
    }

    /// Runs a kernel program; returns its output.
    pub fn run(&self, words: &[&str]) -> String {
        let mut command = self.command("kernel", Path::new(words[0]));
        printed(words, &command.args(&words[1..]).output().unwrap())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for side in ["kernel", "ours"] {
            let _ = Command::new("ip")
                .args(["netns", "delete", &self.namespace(side)])
                .output();
        }
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// A program in the background, killed when dropped.
pub struct Running(Option<Child>);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    /// The first line of its standard output, which must be piped. It shows that the program is
    /// ready.
    pub fn first_line(&mut self) -> String {
        let output = self.child().stdout.as_mut().unwrap();
        let (mut line, mut byte) = (Vec::new(), [0]);
        // Byte by byte, so that the next reader gets all bytes that follow.
        while output.read_exact(&mut byte).is_ok() && byte != *b"\n" {
            line.extend(byte);
        }
        String::from_utf8(line).unwrap()
    }

    /// The process, while it runs.
    pub fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        if let Some(child) = &self.0 {
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }

    /// Asks the program to end, and waits for it.
    pub fn end(self) -> Output {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits for the program to end by itself.
    pub fn wait(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The standard output of a successful program.
pub fn printed(words: &[&str], output: &Output) -> String {
    assert!(
        output.status.success(),
        "{words:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ok(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    printed(words, &output);
}
