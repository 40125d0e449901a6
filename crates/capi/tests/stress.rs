//! Eight threads, each with its context and its connections, against eight others over memif. Their
//! clients end in order, close with bytes under way, reset, or vanish. No byte may be lost and no
//! connection may stall. At the end nothing may be left: the server has no connections, the full
//! number can be opened once more, all pools are full, and the sanitizers report nothing.
//!
//! CI runs a short form. `cargo xtask stress` runs the long one: it sets the two variables that
//! [`setting`] reads.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use common::With;
use common::lab::{Running, printed};
use rustix::process::Signal;

const THREADS: u32 = 8;
/// Time in which all vanished connections must be detected.
fn patience() -> Duration {
    Duration::from_secs(120) * common::slowness()
}

/// Time without progress after which a connection is given up. In a large crowd each has to wait
/// for the others: two CPUs serve some thousand per second.
fn timeout_s(connections: u64) -> u64 {
    (6 + connections / 400) * u64::from(common::slowness())
}

/// A number from the environment, or that of the short form.
fn setting(name: &str, short: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(short, |value| value.parse().expect(name))
}

fn configuration(directory: &Path, role: &str, address: u32, connections: u64) {
    // The connections of a vanished crowd still exist when the next crowd comes; a listener and an
    // epoll need descriptors, too.
    let places = connections * 2 + 100;
    let timeout_s = timeout_s(connections);
    let text = format!(
        "io = memif\nport = wire.sock,role={role},queues={THREADS}\nip_addr = 10.79.0.{address}/24\nnum_cores = {THREADS}\nmax_concurrency = {places}\ntcp_timeout = {timeout_s}\ntcp_timewait = 1\n"
    );
    fs::write(directory.join(format!("{role}.conf")), text).unwrap();
}

/// The lines of a program's standard output as they come; also prints them.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    let output = BufReader::new(child.stdout.take().unwrap());
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            println!("server: {line}");
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

struct Crowd<'a> {
    directory: &'a Path,
    program: &'a Path,
    connections: u64,
}

impl Crowd<'_> {
    fn come(&self, seconds: u64) -> Running {
        let mut command = Command::new(self.program);
        command
            .args(["load", "-f", "client.conf", "-t", &THREADS.to_string()])
            .args(["-c", &self.connections.to_string()])
            .args(["-s", &seconds.to_string(), "10.79.0.1"])
            .current_dir(self.directory)
            .stdout(Stdio::piped());
        Running::start(&mut command)
    }
}

/// Waits until the server reports no open connections.
fn until_nothing_is_open(lines: &Receiver<String>) {
    // Drop earlier lines.
    while lines.try_recv().is_ok() {}
    let began = Instant::now();
    loop {
        let left = patience().saturating_sub(began.elapsed());
        let line = lines.recv_timeout(left).expect("connections stay open");
        if line.contains(" open 0 ") {
            return;
        }
    }
}

#[test]
fn crowds_come_and_go_and_nothing_is_left() {
    let seconds = setting("CAPI_STRESS_SECONDS", 12);
    let connections = setting("CAPI_STRESS_CONNECTIONS", 50);
    let directory = common::scratch("stress");
    let sources = common::files(&common::crate_directory().join("tests/stress"), "c");
    let program = directory.join("stress");
    let slowness = format!("-DSLOWNESS={}", common::slowness());
    let flags = [&common::SANITIZE[..], &[&slowness]].concat();
    common::compile("gcc", &sources, &flags, With::Libmtcp, &program);
    configuration(&directory, "server", 1, connections);
    configuration(&directory, "client", 2, connections);

    let mut command = Command::new(&program);
    command
        .args(["serve", "-f", "server.conf", "-t", &THREADS.to_string()])
        .current_dir(&directory)
        .stdout(Stdio::piped());
    let mut server = Running::start(&mut command);
    let lines = lines_of(server.child());
    lines.recv_timeout(patience()).expect("the server starts");

    let crowd = Crowd {
        directory: &directory,
        program: &program,
        connections,
    };
    // Vanish silently, in the middle of the work.
    let vanishing = crowd.come(seconds);
    thread::sleep(Duration::from_secs(seconds / 3));
    vanishing.signal(Signal::KILL);
    vanishing.wait();
    // The second crowd comes from the same address while the server still has the first one's
    // connections.
    let said = printed(&["load"], &crowd.come(seconds).wait());
    println!("{said}");
    assert!(said.contains("done: "), "{said}");

    until_nothing_is_open(&lines);
    let output = server.end();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{complaint}", output.status);
}
