//! Two namespaces joined by a veth pair, a directory, and programs in them; all removed on drop,
//! even after a panic.

#![allow(dead_code)] // each test file uses its part

pub mod download;

use std::fs;
use std::io::Write as _;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Our addresses: `.1`/`::1` on the kernel's side, `.2`/`::2` on Millstream's.
pub const OURS: [&str; 4] = ["--addr", "10.78.0.2/24", "--addr", "fd78::2/64"];
/// A long time limit, since the machine may be busy.
pub const CURL: [&str; 4] = ["curl", "-sS", "--max-time", "60"];
const MILL: &str = env!("CARGO_BIN_EXE_mill");

/// Bytes with a long period.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// The environment of one test.
pub struct World {
    prefix: String,
    pub directory: PathBuf,
}

impl World {
    /// `None`, with the reason printed, if it cannot be made.
    pub fn new(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            let _ = writeln!(
                std::io::stderr(),
                "ignored: {name}: namespaces and AF_XDP take root"
            );
            return None;
        }
        let prefix = format!("mst-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(&prefix);
        fs::create_dir_all(&directory).unwrap();
        let world = Self { prefix, directory };
        for side in ["kernel", "ours"] {
            ok(&["ip", "netns", "add", &world.namespace(side)]);
        }
        let (kernel, ours) = (world.namespace("kernel"), world.namespace("ours"));
        let pair = "link add left type veth peer name right netns";
        world.run_ip("kernel", &format!("{pair} {ours}"));
        world.run_ip("kernel", "addr add 10.78.0.1/24 dev left");
        world.run_ip("kernel", "addr add fd78::1/64 dev left nodad");
        world.run_ip("kernel", "link set left up");
        world.run_ip("kernel", "link set lo up");
        world.run_ip("ours", "link set right up");
        assert!(!kernel.is_empty());
        Some(world)
    }

    pub fn namespace(&self, side: &str) -> String {
        format!("{}-{side}", self.prefix)
    }

    /// Writes a file below the directory.
    pub fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Runs a program in the kernel's namespace.
    pub fn kernel(&self, words: &[&str]) -> Output {
        self.command("kernel", words).output().unwrap()
    }

    /// Runs `mill` in Millstream's namespace.
    pub fn ours(&self, words: &[&str]) -> Output {
        self.command("ours", &[&[MILL], words].concat())
            .output()
            .unwrap()
    }

    /// Starts `mill serve` for a directory, and waits until it is ready.
    pub fn serve(&self, side: &str, directory: &Path, words: &[&str]) -> Server {
        let directory = directory.to_str().unwrap();
        let words = [&[MILL, "serve", directory, "--json"], words].concat();
        let mut command = self.command(side, &words);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.contains("\"ready\""), "{line}");
        Server(child)
    }

    /// Runs `ip` in one of the namespaces.
    pub fn run_ip(&self, side: &str, words: &str) {
        let namespace = self.namespace(side);
        let words: Vec<&str> = ["ip", "-n", &namespace]
            .into_iter()
            .chain(words.split(' '))
            .collect();
        ok(&words);
    }

    pub fn command(&self, side: &str, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace(side)])
            .args(words)
            .stdin(Stdio::null());
        command
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for side in ["kernel", "ours"] {
            let _ = Command::new("ip")
                .args(["netns", "delete", &self.namespace(side)])
                .output();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A server, killed on drop.
pub struct Server(Child);

impl Server {
    /// The process id. `ip netns exec` execs the program, so the id is the program's.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends the server and returns its last output.
    pub fn stop(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let mut said = String::new();
        let out = self.0.stdout.as_mut().unwrap();
        out.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ok(words: &[&str]) {
    let output = Command::new(words[0]).args(&words[1..]).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {complaint}");
}
