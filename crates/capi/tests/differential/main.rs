//! Conversations of calls, each played on the kernel and on libmtcp. Every line must be equal, or
//! be listed in `differences.txt` with its reason.
//!
//! The C sources beside this file are compiled twice (`suite.h` describes cases). The peer is the
//! kernel both times: over its loopback interface, and over a TAP that libmtcp drives. A case that
//! differs is repeated with more time for effects to reach the other end, since a loaded machine is
//! not a difference.

#[path = "../common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use common::With;
use common::lab::{self, Lab};

/// Warnings about mistakes that cases make on purpose.
const ON_PURPOSE: [&str; 3] = [
    "-Wno-nonnull",
    "-Wno-stringop-overflow",
    "-Wno-stringop-overread",
];
/// Time for an effect to reach the other end, in ms: at first, and in each repetition.
const SETTLE_MS: [&str; 5] = ["2", "12", "40", "200", "1000"];

/// Settings of libmtcp on the lab's TAP.
const CONFIG: &str = "io = tap
port = right
ip_addr = 10.78.0.2/24 fd78::2/64
num_cores = 1
max_concurrency = 1000
tcp_timewait = 60
";

type Lines = BTreeMap<String, String>;

/// Linux's defaults, restored in case the machine has changed them.
const TCP_RMEM: &str = "4096 131072 6291456";

/// The addresses of both kernel ends on the loopback interface: mine, and the peer's.
const LOOPBACK: [[&str; 2]; 2] = [["10.77.0.1", "fd77::1"], ["10.77.0.2", "fd77::2"]];

struct Suite<'a> {
    lab: &'a Lab,
    program: PathBuf,
    names: Vec<String>,
    environment: Vec<(&'static str, String)>,
}

impl<'a> Suite<'a> {
    /// `ends`: my addresses, and the peer's.
    fn build(lab: &'a Lab, name: &str, flags: &[&str], with: With, ends: [[&str; 2]; 2]) -> Self {
        let own = common::crate_directory().join("tests/differential");
        let program = lab.directory.join(name);
        let flags = [&ON_PURPOSE, flags].concat();
        common::compile("gcc", &common::files(&own, "c"), &flags, with, &program);
        let list = Command::new(&program).arg("--list").output().unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        Self {
            lab,
            program,
            environment: ["MY_IP", "MY_IP6", "PEER_IP", "PEER_IP6"]
                .into_iter()
                .zip(ends.concat().into_iter().map(str::to_owned))
                .collect(),
            names: list.lines().map(str::to_owned).collect(),
        }
    }

    /// Runs all cases, or those named. A case that hangs or crashes only loses its own line.
    fn play(&self, chosen: &[String], settle_ms: &str) -> Lines {
        let mut lines = Lines::new();
        let mut rest = chosen;
        while !rest.is_empty() {
            let mut command = self.lab.command("ours", &self.program);
            command
                .env("SETTLE_MS", settle_ms)
                .envs(self.environment.iter().cloned())
                .args(rest);
            let output = command.output().unwrap();
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                if let Some((name, said)) = line.split_once(':') {
                    lines.insert(name.to_owned(), said.trim().to_owned());
                }
            }
            let played = rest.iter().take_while(|name| lines.contains_key(*name));
            let played = played.count();
            rest = &rest[played..];
            if let Some((victim, after)) = rest.split_first() {
                if output.status.code() != Some(3) {
                    let complaint = String::from_utf8_lossy(&output.stderr);
                    println!("{victim}: {}\n{complaint}", output.status);
                    lines.insert(victim.clone(), "CRASHES".to_owned());
                    rest = after;
                }
            } else if !output.status.success() {
                let complaint = String::from_utf8_lossy(&output.stderr);
                println!("at the end: {}\n{complaint}", output.status);
                lines.insert("at the end".to_owned(), "CRASHES".to_owned());
            }
        }
        lines
    }
}

/// Gives both ends kernel addresses of their own. A call to one of them comes from the other, as
/// between hosts; by default the kernel would call itself from either.
fn give_loopback(lab: &Lab) {
    for [four, six] in LOOPBACK {
        lab.ip("ours", &format!("addr add {four}/32 dev lo"));
        lab.ip("ours", &format!("addr add {six}/128 dev lo nodad"));
        lab.ip(
            "ours",
            &format!("-6 route del local {six} dev lo table local"),
        );
    }
    let [mine, peers] = LOOPBACK;
    for (to, from) in [(mine, peers), (peers, mine)] {
        for (to, from) in to.into_iter().zip(from) {
            let route = format!("route replace local {to} dev lo table local src {from}");
            lab.ip("ours", &route);
        }
    }
}

/// The listed lines `name: OUR LINE`, under reasons that begin with `#`.
fn listed() -> Lines {
    let text = include_str!("../differences.txt");
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let pairs = lines.map(|line| line.split_once(':').expect(line));
    pairs
        .map(|(name, said)| (name.to_owned(), said.trim().to_owned()))
        .collect()
}

fn is_settled(name: &str, kernel: &Lines, ours: &Lines, listed: &Lines) -> bool {
    ours.get(name) == listed.get(name).or(kernel.get(name))
}

#[test]
fn libmtcp_says_what_the_kernel_says() {
    let Some(lab) = Lab::new("differential") else {
        return;
    };
    let lab = lab.with_tap();
    give_loopback(&lab);
    lab.sysctl("ours", &format!("net.ipv4.tcp_rmem={TCP_RMEM}"));
    let ends = [lab::OURS, lab::KERNEL];
    let kernel = Suite::build(&lab, "on-kernel", &["-DON_KERNEL"], With::Libc, LOOPBACK);
    let mut ours = Suite::build(&lab, "on-libmtcp", &[], With::Libmtcp, ends);
    let config = lab.write("mtcp.conf", CONFIG.as_bytes());
    let config = config.to_str().unwrap().to_owned();
    ours.environment.push(("CONFIG", config));
    assert_eq!(kernel.names, ours.names);
    let listed = listed();

    let mut expected = kernel.play(&kernel.names, SETTLE_MS[0]);
    let mut seen = ours.play(&ours.names, SETTLE_MS[0]);
    let mut open: Vec<String> = seen.keys().chain(expected.keys()).cloned().collect();
    open.sort();
    open.dedup();
    open.retain(|name| !is_settled(name, &expected, &seen, &listed));
    for settle_ms in &SETTLE_MS[1..] {
        expected.extend(kernel.play(&open, settle_ms));
        seen.extend(ours.play(&open, settle_ms));
        open.retain(|name| !is_settled(name, &expected, &seen, &listed));
    }

    let mut complaints = Vec::new();
    for name in &open {
        let word = |lines: &Lines| lines.get(name).cloned().unwrap_or_default();
        let (want, got) = (word(&expected), word(&seen));
        complaints.push(format!("{name}: {got}\n#   kernel: {want}"));
    }
    for (name, said) in &listed {
        match expected.get(name) {
            None => complaints.push(format!("{name}: listed, but there is no such case")),
            Some(want) if want == said => {
                complaints.push(format!("{name}: listed as a difference, and is none"));
            }
            Some(_) => {}
        }
    }
    assert!(
        complaints.is_empty(),
        "{} of {} cases differ from what differences.txt says\n{}",
        complaints.len(),
        expected.len(),
        complaints.join("\n")
    );
}
