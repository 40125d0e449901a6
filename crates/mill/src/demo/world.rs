//! The demo's environment: two namespaces joined by a veth pair, a directory of documents, and the
//! server.
//!
//! Owns all of these and removes them on drop. SIGINT, SIGTERM and SIGHUP remove them, too, and end
//! the demo with status 128 + signal. A killed demo leaves things named `mst-<pid>-…`, which `cargo
//! xtask clean` removes.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The server's address.
pub const SERVER: &str = "10.77.0.2";
const SERVER_CIDR: &str = "10.77.0.2/24";
const CLIENT_CIDR: &str = "10.77.0.1/24";
/// The page and the large file.
pub const PAGE: &str = "<!doctype html><title>Millstream</title><h1>Served from user space</h1>\n";
pub const LARGE_BYTES: usize = 100_000_000;
const READY_TIMEOUT: Duration = Duration::from_secs(20);
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The undoing of one step: a command to run, or a directory to remove.
enum Undo {
    Run(Vec<String>),
    RemoveDirectory(PathBuf),
}

static UNDO: Mutex<Vec<Undo>> = Mutex::new(Vec::new());

pub struct World {
    /// Prefix of all names.
    prefix: String,
    directory: PathBuf,
    server: Mutex<Option<Child>>,
}

impl World {
    /// Makes the environment. After a failure, removes the parts made so far.
    pub fn new() -> Result<Self, String> {
        undo_on_signals()?;
        let prefix = format!("mst-{}", std::process::id());
        let directory = std::env::temp_dir().join(format!("{prefix}-demo"));
        let world = Self {
            prefix,
            directory,
            server: Mutex::new(None),
        };
        world.make_documents()?;
        world.make_namespaces()?;
        world.start_server()?;
        Ok(world)
    }

    /// The directory that is served.
    pub fn documents(&self) -> PathBuf {
        self.directory.join("www")
    }

    /// A file for a client's download.
    pub fn download(&self) -> PathBuf {
        self.directory.join("download")
    }

    /// The file of the client's namespace, for setns.
    pub fn client_namespace(&self) -> PathBuf {
        Path::new("/run/netns").join(self.namespace("client"))
    }

    /// Runs a program in the client's namespace. Returns its output if its status is 0.
    pub fn client(&self, words: &[&str]) -> Result<String, String> {
        let namespace = self.namespace("client");
        let line: Vec<&str> = ["ip", "netns", "exec", &namespace]
            .into_iter()
            .chain(words.iter().copied())
            .collect();
        run(&line)
    }

    /// Ends the server as a user would; returns its last output.
    pub fn stop_server(&self) -> Result<String, String> {
        let mut server = self
            .server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
            .ok_or("it is not running")?;
        let pid = Pid::from_child(&server);
        kill_process(pid, Signal::INT).map_err(|errno| errno.to_string())?;
        let mut last = String::new();
        if let Some(stdout) = server.stdout.take() {
            last = BufReader::new(stdout)
                .lines()
                .map_while(Result::ok)
                .last()
                .unwrap_or_default();
        }
        let until = Instant::now() + LEAVE_TIMEOUT;
        loop {
            match server.try_wait().map_err(|error| error.to_string())? {
                Some(status) if status.success() => return Ok(last),
                Some(status) => return Err(format!("it left with {status}")),
                None if Instant::now() > until => {
                    let _ = server.kill();
                    return Err("it did not leave on SIGINT".to_owned());
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn namespace(&self, side: &str) -> String {
        format!("{}-{side}", self.prefix)
    }

    fn make_documents(&self) -> Result<(), String> {
        let www = self.documents();
        fs::create_dir_all(&www).map_err(|error| format!("{}: {error}", www.display()))?;
        remember(Undo::RemoveDirectory(self.directory.clone()));
        let page = www.join("index.html");
        fs::write(&page, PAGE).map_err(|error| format!("{}: {error}", page.display()))?;
        let large = www.join("large.bin");
        write_noise(&large).map_err(|error| format!("{}: {error}", large.display()))
    }

    fn make_namespaces(&self) -> Result<(), String> {
        let (server, client) = (self.namespace("server"), self.namespace("client"));
        for namespace in [&server, &client] {
            run(&["ip", "netns", "add", namespace])?;
            let words = ["ip", "netns", "delete", namespace];
            remember(Undo::Run(words.map(str::to_owned).to_vec()));
        }
        let veth = [
            "type",
            "veth",
            "peer",
            "name",
            "mill-client",
            "netns",
            &client,
        ];
        let line: Vec<&str> = ["ip", "link", "add", "mill-server", "netns", &server]
            .into_iter()
            .chain(veth)
            .collect();
        run(&line)?;
        run(&["ip", "-n", &server, "link", "set", "mill-server", "up"])?;
        run(&[
            "ip",
            "-n",
            &client,
            "address",
            "add",
            CLIENT_CIDR,
            "dev",
            "mill-client",
        ])?;
        run(&["ip", "-n", &client, "link", "set", "mill-client", "up"])?;
        run(&["ip", "-n", &client, "link", "set", "lo", "up"]).map(|_| ())
    }

    fn start_server(&self) -> Result<(), String> {
        let program =
            std::env::current_exe().map_err(|error| format!("our own program: {error}"))?;
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &self.namespace("server")])
            .arg(program)
            .arg("serve")
            .arg(self.documents());
        command.args(["--wire", "xdp:mill-server", "--addr", SERVER_CIDR, "--json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut server = command.spawn().map_err(|error| format!("ip: {error}"))?;
        kill_on_exit(&server);
        let ready = wait_for_ready(&mut server);
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
        ready
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut server) = self
            .server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            let _ = server.kill();
            let _ = server.wait();
        }
        undo_all();
    }
}

/// Waits for the server's first line, which says that it listens. A thread reads it, so that a
/// silent server does not block the demo.
fn wait_for_ready(server: &mut Child) -> Result<(), String> {
    let stdout = server.stdout.take().ok_or("the server has no stdout")?;
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut line = String::new();
        let read = reader.read_line(&mut line);
        // After a timeout there is no receiver.
        let _ = tell.send(read.map(|_| (line, reader.into_inner())));
    });
    match told.recv_timeout(READY_TIMEOUT) {
        Ok(Ok((line, stdout))) if line.contains("\"ready\"") => {
            server.stdout = Some(stdout);
            Ok(())
        }
        Ok(Ok((line, _))) => Err(format!("the server did not get ready: {}", line.trim())),
        Ok(Err(error)) => Err(format!("the server's stdout: {error}")),
        Err(_) => Err(format!(
            "the server did not get ready within {} s",
            READY_TIMEOUT.as_secs()
        )),
    }
}

/// Writes incompressible bytes, the same in every run.
fn write_noise(path: &Path) -> std::io::Result<()> {
    let mut file = std::io::BufWriter::with_capacity(1 << 20, fs::File::create(path)?);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..LARGE_BYTES / 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        file.write_all(&state.to_le_bytes())?;
    }
    file.flush()
}

/// Runs a program to its end. Returns its output if its status is 0, otherwise its errors.
pub fn run(words: &[&str]) -> Result<String, String> {
    let (program, arguments) = words.split_first().ok_or("no program")?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = complaint.lines().next().unwrap_or_default();
    Err(format!(
        "`{}`: {}: {complaint}",
        words.join(" "),
        output.status
    ))
}

/// Kills the child if a signal ends the demo.
pub fn kill_on_exit(child: &Child) {
    let pid = Pid::from_child(child).as_raw_nonzero().to_string();
    remember(Undo::Run(
        ["kill", "-KILL", &pid].map(str::to_owned).to_vec(),
    ));
}

fn remember(undo: Undo) {
    UNDO.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(undo);
}

fn undo_all() {
    let mut list = UNDO.lock().unwrap_or_else(PoisonError::into_inner);
    while let Some(undo) = list.pop() {
        // An error means that the namespace or file is gone already. The remaining steps run
        // nevertheless.
        match undo {
            Undo::Run(words) => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let _ = run(&words);
            }
            Undo::RemoveDirectory(path) => {
                let _ = fs::remove_dir_all(path);
            }
        }
    }
}

fn undo_on_signals() -> Result<(), String> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|error| format!("signals: {error}"))?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            eprintln!("\nmill: stopping: removing namespaces and files");
            undo_all();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}
