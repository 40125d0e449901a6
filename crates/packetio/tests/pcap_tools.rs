//! tcpdump and tshark read files of the capture wrapper. A missing tool is skipped with a message.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use packetio::loopback::{self, LoopbackOptions};
use packetio::pcap::Pcap;
use packetio::{Port, WireSpec, open};

/// A file with a unique name, which is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(what: &str) -> Self {
        let name = format!("millpio-{}-{what}.pcapng", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An ARP request of `len` bytes, padded.
fn arp(sender: [u8; 6], last_octet: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend(sender);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(sender);
    frame.extend([10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, last_octet]);
    frame.resize(len, 0);
    frame
}

fn send(port: &mut impl Port, frame: &[u8]) {
    let slots = port.reserve(1);
    slots[0].set_len(slots[0].write(0, frame));
    port.send(1).expect("sent");
}

/// Captures three frames of different padding: sent, received, sent.
fn capture(file: &Scratch) {
    let (a, mut b) = loopback::pair(&LoopbackOptions::default()).expect("eventfds");
    let mut a = Pcap::new(a, &file.0).expect("created");
    a.set_now_ns(1_700_000_000_123_456_789);
    send(&mut a, &arp([2, 0, 0, 0, 0, 1], 2, 42));
    send(&mut b, &arp([2, 0, 0, 0, 0, 2], 3, 60));
    a.set_now_ns(1_700_000_000_123_456_790);
    assert_eq!(a.receive().expect("received").len(), 1);
    a.release();
    send(&mut a, &arp([2, 0, 0, 0, 0, 1], 4, 61));
}

/// The tool's output; `None` if it is not installed.
fn read_with(tool: &str, file: &Scratch, before: &[&str], after: &[&str]) -> Option<String> {
    let output = Command::new(tool)
        .args(before)
        .arg(&file.0)
        .args(after)
        .output();
    let Ok(output) = output else {
        let _ = writeln!(std::io::stderr(), "ignored: no {tool}");
        return None;
    };
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool}: {error}");
    assert!(
        !error.contains("damaged") && !error.contains("corrupt"),
        "{error}"
    );
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn capture_is_read_by_tcpdump() {
    let file = Scratch::new("tcpdump");
    capture(&file);
    let before = ["-n", "-tt", "--nano", "-r"];
    let Some(text) = read_with("tcpdump", &file, &before, &[]) else {
        return;
    };
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("1700000000.123456789"), "{text}");
    assert!(lines[1].starts_with("1700000000.123456790"), "{text}");
    assert!(
        lines[2].contains("who-has 10.0.0.4 tell 10.0.0.1"),
        "{text}"
    );
}

#[test]
fn capture_is_read_by_tshark() {
    let file = Scratch::new("tshark");
    capture(&file);
    let fields = [
        "-T",
        "fields",
        "-E",
        "separator=,",
        "-e",
        "frame.time_epoch",
        "-e",
        "frame.interface_name",
        "-e",
        "frame.packet_flags_direction",
        "-e",
        "frame.len",
        "-e",
        "arp.dst.proto_ipv4",
    ];
    let Some(text) = read_with("tshark", &file, &["-n", "-r"], &fields) else {
        return;
    };
    let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert!(rows.iter().all(|row| row[1] == "loopback(a)"), "{text}");
    let column = |i: usize| rows.iter().map(|row| row[i]).collect::<Vec<_>>();
    assert!(rows[0][0].ends_with(".123456789"), "{text}");
    let outbound = |way: &str| way.trim_start_matches("0x").trim_start_matches('0') == "2";
    assert_eq!(
        column(2).into_iter().map(outbound).collect::<Vec<_>>(),
        [true, false, true]
    );
    assert_eq!(column(3), ["42", "60", "61"]);
    assert_eq!(column(4), ["10.0.0.2", "10.0.0.3", "10.0.0.4"]);
}

#[test]
fn capture_named_in_a_spec_is_behind_the_faults() {
    let file = Scratch::new("spec");
    let text = format!("loopback,tx.loss=1,pcap={}", file.0.display());
    let spec: WireSpec = text.parse().unwrap_or_else(|e| panic!("{e}"));
    let mut port = open(&spec, 0).unwrap_or_else(|e| panic!("{e}"));
    send(&mut port, &arp([2, 0, 0, 0, 0, 1], 2, 60));
    assert!(port.receive().expect("received").is_empty(), "lost");
    let counters = port.counters();
    assert_eq!(counters.value("fault_tx_lost"), Some(1));
    assert_eq!(counters.value("pcap_written"), Some(1));
    drop(port);
    if let Some(text) = read_with("tcpdump", &file, &["-n", "-r"], &[]) {
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}
