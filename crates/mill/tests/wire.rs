//! `mill wire` between two kernels, which observe its delay and loss. Needs root.

use std::io::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

const SIDES: [&str; 3] = ["left", "right", "between"];

/// Two namespaces, each with a veth pair into a third; removed on drop.
struct Kernels(String);

impl Kernels {
    fn new(name: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            let _ = writeln!(std::io::stderr(), "ignored: {name}: namespaces take root");
            return None;
        }
        let kernels = Self(format!("mst-{}-{name}", std::process::id()));
        for side in SIDES {
            run(&format!("ip netns add {}", kernels.of(side)));
        }
        let between = kernels.of("between");
        for (side, address) in [("left", "10.79.0.1/24"), ("right", "10.79.0.2/24")] {
            let own = kernels.of(side);
            run(&format!(
                "ip -n {own} link add own type veth peer name to-{side} netns {between}"
            ));
            run(&format!("ip -n {own} addr add {address} dev own"));
            run(&format!("ip -n {own} link set dev own up"));
            run(&format!("ip -n {between} link set dev to-{side} up"));
        }
        Some(kernels)
    }

    fn of(&self, side: &str) -> String {
        format!("{}-{side}", self.0)
    }

    /// Starts `mill wire` with these options, and waits until it has joined both wires.
    fn wire(&self, options: &str) -> Wire {
        let mill = env!("CARGO_BIN_EXE_mill");
        let line = format!(
            "ip netns exec {} {mill} wire packet:to-left packet:to-right {options}",
            self.of("between")
        );
        let mut command = command(&line);
        let mut child = command
            .stderr(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut said)
            .unwrap();
        assert!(said.starts_with("joined"), "{said}");
        Wire(child)
    }

    fn ping(&self, count: u32) -> String {
        let line = format!(
            "ip netns exec {} ping -n -c {count} -i 0.02 -W 1 10.79.0.2",
            self.of("left")
        );
        let Output { stdout, .. } = command(&line).output().unwrap();
        String::from_utf8_lossy(&stdout).into_owned()
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        for side in SIDES {
            let _ = command(&format!("ip netns delete {}", self.of(side))).output();
        }
    }
}

struct Wire(Child);

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdin(Stdio::null());
    command
}

fn run(line: &str) {
    let output = command(line).output().unwrap();
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn joined_kernels_see_the_delay_and_the_loss() {
    let Some(kernels) = Kernels::new("wire") else {
        return;
    };
    let wire = kernels.wire("--delay 5ms --seed 1");
    let said = kernels.ping(10);
    assert!(said.contains(" 0% packet loss"), "{said}");
    let (_, times) = said
        .split_once("rtt min/avg/max/mdev = ")
        .expect("a summary");
    let least: f64 = times.split('/').next().unwrap().parse().unwrap();
    assert!(least >= 10.0, "5 ms each way: {said}");
    drop(wire);

    let wire = kernels.wire("--loss 0.3 --seed 2");
    let said = kernels.ping(100);
    let (before, _) = said.split_once(" received").expect("a summary");
    let received: u32 = before.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(
        (20..=85).contains(&received),
        "about half come back: {said}"
    );
    drop(wire);
}
