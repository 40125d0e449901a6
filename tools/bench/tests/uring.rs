//! The kernel through io_uring, server and client as processes of their own, as `cargo xtask bench`
//! starts them: all that was asked is answered.

use std::io::Write as _;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use serde_json::Value;

/// Transactions that a run ends after.
const TRANSACTIONS: u64 = 5_000;

struct Side {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Side {
    /// `limit` = its soft limit of descriptors.
    fn start(limit: u32, words: &[&str]) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -Sn {limit}; exec \"$@\""), "sh"])
            .arg(env!("CARGO_BIN_EXE_rivals"))
            .args(["uring", "--core", "0"])
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Its next line; none if it is gone.
    fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The client's results of `plan`; `None` if the kernel has no io_uring for us.
fn seen(limit: u32, plan: &[&str]) -> Option<Value> {
    let transactions = TRANSACTIONS.to_string();
    let plan = [plan, &["--transactions", &transactions]].concat();
    let mut server = Side::start(limit, &[&["--role", "server"], &plan[..]].concat());
    let Some(ready) = server.line() else {
        let _ = writeln!(
            std::io::stderr(),
            "ignored: io_uring: the kernel does not let us"
        );
        return None;
    };
    let address = ready["address"].as_str().unwrap();
    let words = ["--role", "client", "--server", address];
    let mut client = Side::start(limit, &[&words, &plan[..]].concat());
    let mut last = None;
    while let Some(line) = client.line() {
        last = Some(line);
    }
    last
}

#[track_caller]
fn assert_all_succeed(limit: u32, plan: &[&str]) {
    let Some(seen) = seen(limit, plan) else {
        return;
    };
    let transactions = seen["transactions_all"].as_u64().unwrap();
    assert!(transactions >= TRANSACTIONS, "{seen}");
    assert_eq!(seen["failures"], 0, "{seen}");
}

#[test]
fn short_connections_are_answered() {
    assert_all_succeed(1_024, &["--connections", "64"]);
}

#[test]
fn connections_that_stay_are_answered() {
    assert_all_succeed(1_024, &["--connections", "64", "--messages", "0"]);
}

#[test]
fn accepted_connections_are_reset() {
    assert_all_succeed(1_024, &["--connections", "64", "--exchange", "reset"]);
}

#[test]
fn more_connections_than_the_soft_limit_of_descriptors_are_answered() {
    assert_all_succeed(256, &["--connections", "1000"]);
}

#[test]
fn resets_of_nobody_are_no_success() {
    // The port belongs to a socket that does not listen. So every connect is refused, and what is
    // linked to it is cancelled. It is a TCP socket: otherwise the kernel might give the port to
    // the client, which would then be connected to itself.
    let held = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&held, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = SocketAddrV4::try_from(getsockname(&held).unwrap()).unwrap();
    let address = address.to_string();
    let plan = [
        "--exchange",
        "reset",
        "--connections",
        "1",
        "--transactions",
        "10",
    ];
    let words = ["--role", "client", "--server", &address];
    let mut client = Side::start(1_024, &[&words, &plan[..]].concat());
    let mut last = None;
    while let Some(line) = client.line() {
        last = Some(line);
    }
    let Some(seen) = last.filter(|line| line.get("failures").is_some()) else {
        let _ = writeln!(
            std::io::stderr(),
            "ignored: io_uring: the kernel does not let us"
        );
        return;
    };
    assert_eq!(seen["transactions_all"], 0, "{seen}");
    assert!(seen["failures"].as_u64() > Some(0), "{seen}");
}
