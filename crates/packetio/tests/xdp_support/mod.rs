//! Two network namespaces joined by a veth pair, and frames to send through it, for the AF_XDP
//! tests. Needs root.
//!
//! `near` has the interface [`NEAR`], which the tests drive with AF_XDP; `far` has [`FAR`]. The
//! namespaces have unique names and are removed with the [`Lab`], even by a panic.

#![allow(dead_code)] // each test file uses its part

#[allow(unsafe_code)]
pub mod denied_unsafe;

use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use packetio::packet::{Packet, PacketOptions};
use packetio::xdp::{XdpInterface, XdpMode, XdpOptions};
use packetio::{MacAddr, Port, PortCounters, wait};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Name of the interface that is driven with AF_XDP.
pub const NEAR: &str = "mx0";
/// Name of the interface at the other end.
pub const FAR: &str = "mx1";
/// Our address.
pub const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Address of the far kernel, in tests that give it one.
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// Address of the near kernel, in tests that give it one.
pub const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
/// Timeout that suffices on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Time to wait for frames that must not arrive.
pub const SILENCE: Duration = Duration::from_millis(100);

/// Both namespaces. The thread that made them stays in `near` while they exist.
pub struct Lab {
    near: String,
    far: String,
    home: OwnedFd,
}

impl Lab {
    /// Makes both namespaces, with the pair up and silent. `None` after printing the reason, if
    /// that is impossible.
    pub fn new(label: &str, queues: usize) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            let _ = writeln!(std::io::stderr(), "ignored: needs root");
            return None;
        }
        let name = |end: &str| format!("mst-{}-xdp-{label}-{end}", std::process::id());
        let lab = Self {
            near: name("near"),
            far: name("far"),
            home: namespace("/proc/thread-self/ns/net"),
        };
        if !run("ip", &["netns", "add", &lab.near]) || !run("ip", &["netns", "add", &lab.far]) {
            let _ = writeln!(std::io::stderr(), "ignored: cannot add network namespaces");
            return None;
        }
        let n = queues.to_string();
        let queues = ["numrxqueues", &n, "numtxqueues", &n];
        let head = ["-n", &lab.near, "link", "add", "name", NEAR];
        let peer = ["type", "veth", "peer", "name", FAR];
        let tail = ["netns", &lab.far];
        let all = [&head[..], &queues, &peer, &queues, &tail].concat();
        assert!(run("ip", &all), "ip {all:?}");
        for (namespace, interface) in [(&lab.near, NEAR), (&lab.far, FAR)] {
            // Without IPv6 there are no router solicitations or listener reports among the counted
            // frames.
            let quiet = format!("echo 1 > /proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
            assert!(run("ip", &["netns", "exec", namespace, "sh", "-c", &quiet]));
            assert!(run(
                "ip",
                &["-n", namespace, "link", "set", interface, "up"]
            ));
        }
        lab.enter_near();
        Some(lab)
    }

    /// Moves the calling thread to `near`.
    pub fn enter_near(&self) {
        move_to(&named(&self.near));
    }

    /// Moves the calling thread to `far`.
    pub fn enter_far(&self) {
        move_to(&named(&self.far));
    }

    /// The namespace `far`, for another thread to enter.
    pub fn far_namespace(&self) -> OwnedFd {
        named(&self.far)
    }

    /// Runs `ip` on `near`.
    pub fn ip_near(&self, arguments: &[&str]) {
        let all = [&["-n", self.near.as_str()], arguments].concat();
        assert!(run("ip", &all), "ip {all:?}");
    }

    /// Runs `ip` on `far`.
    pub fn ip_far(&self, arguments: &[&str]) {
        let all = [&["-n", self.far.as_str()], arguments].concat();
        assert!(run("ip", &all), "ip {all:?}");
    }

    /// Runs a command in `far`; true if it succeeded.
    pub fn exec_far(&self, arguments: &[&str]) -> bool {
        run("ip", &[&["netns", "exec", &self.far], arguments].concat())
    }

    /// A command that will run in `near`; `ip` starts it and is replaced by it.
    pub fn command_near(&self) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.near]);
        command
    }

    /// True if `ip link` shows an XDP program on the near interface.
    pub fn shows_program(&self) -> bool {
        let shown = Command::new("ip")
            .args(["-n", &self.near, "link", "show", "dev", NEAR])
            .output()
            .unwrap();
        String::from_utf8_lossy(&shown.stdout).contains("prog/xdp")
    }

    /// A raw socket on the far interface.
    pub fn far_packet(&self) -> Packet {
        self.enter_far();
        let port = packet(FAR);
        self.enter_near();
        port
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        move_to(&self.home);
        run("ip", &["netns", "del", &self.near]);
        run("ip", &["netns", "del", &self.far]);
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program).args(arguments).status();
    status.is_ok_and(|status| status.success())
}

fn named(name: &str) -> OwnedFd {
    namespace(&format!("/run/netns/{name}"))
}

fn namespace(path: &str) -> OwnedFd {
    File::open(path).unwrap().into()
}

/// Moves the calling thread to a network namespace.
pub fn move_to(namespace: &OwnedFd) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// A raw socket on an interface of the calling thread's namespace.
pub fn packet(interface: &str) -> Packet {
    let options = PacketOptions {
        interface: interface.to_owned(),
        ..PacketOptions::default()
    };
    Packet::open(&options, 0).unwrap()
}

/// The near interface, with [`OURS`] owned.
pub fn near(mode: XdpMode) -> XdpInterface {
    let options = XdpOptions {
        interface: NEAR.to_owned(),
        mode,
        ..XdpOptions::default()
    };
    XdpInterface::open(&options, &[IpAddr::V4(OURS)]).unwrap()
}

/// An Ethernet frame of `len` bytes (at least 60) with a UDP packet for `to`, identified by `tag`.
pub fn frame(to: Ipv4Addr, tag: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0u8; len];
    let ethernet = wire::ethernet::Header {
        dst: MacAddr([0xff; 6]),
        src: MacAddr([2, 0, 0, 0, 0, 9]),
        vlan: None,
        ethertype: wire::ethernet::EtherType::IPV4,
    };
    let at = ethernet.emit(&mut frame);
    let ip = wire::ipv4::Header {
        total_len: u16::try_from(len - at).unwrap(),
        protocol: 17,
        src: PEER,
        dst: to,
        ..wire::ipv4::Header::default()
    };
    let at = at + ip.emit(&mut frame[at..]);
    frame[at..at + 2].copy_from_slice(&4000u16.to_be_bytes());
    frame[at + 2..at + 4].copy_from_slice(&4001u16.to_be_bytes());
    let udp_len = u16::try_from(len - at).unwrap();
    frame[at + 4..at + 6].copy_from_slice(&udp_len.to_be_bytes());
    frame[at + 8..at + 12].copy_from_slice(&tag.to_be_bytes());
    for (i, byte) in frame[at + 12..].iter_mut().enumerate() {
        *byte = (i as u32).wrapping_add(tag) as u8;
    }
    frame
}

/// Frames for `to` of all lengths that the link takes.
pub fn frames(to: Ipv4Addr, count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|i| frame(to, i as u32, 60 + i * 97 % (1514 - 60 + 1)))
        .collect()
}

/// Sends all frames, in as many batches as needed; waits while the port pushes back.
pub fn send_all(port: &mut dyn Port, frames: &[Vec<u8>]) {
    let deadline = Instant::now() + PATIENCE;
    let mut at = 0;
    while at < frames.len() {
        let slots = port.reserve(frames.len() - at);
        let n = slots.len();
        for (slot, frame) in slots.iter().zip(&frames[at..]) {
            assert_eq!(slot.write(0, frame), frame.len());
            slot.set_len(frame.len());
        }
        port.send(n).unwrap();
        at += n;
        if n == 0 {
            assert!(Instant::now() < deadline, "no room to send for too long");
            wait(&mut [port], &[], true, Some(1_000_000)).unwrap();
        }
    }
}

/// Receives until there are `count` frames or the time is over.
pub fn receive(port: &mut dyn Port, count: usize, time: Duration) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + time;
    let mut got = Vec::new();
    while got.len() < count && Instant::now() < deadline {
        let batch = port.receive().unwrap();
        for frame in batch {
            let mut bytes = vec![0; frame.len()];
            assert_eq!(frame.copy_to(0, &mut bytes), bytes.len());
            got.push(bytes);
        }
        if batch.is_empty() {
            wait(&mut [port], &[], false, Some(5_000_000)).unwrap();
        }
    }
    port.release();
    got
}

/// The near interface, with [`OURS`] owned and rings of `slots` slots.
pub fn near_with_ring(slots: u32) -> XdpInterface {
    let options = XdpOptions {
        interface: NEAR.to_owned(),
        ring_slots: Some(slots),
        ..XdpOptions::default()
    };
    XdpInterface::open(&options, &[IpAddr::V4(OURS)]).unwrap()
}

/// Kernel counters of frames that found no room in the rings.
pub const LOST_IN_RINGS: [&str; 3] = [
    "xdp_rx_ring_full",
    "xdp_rx_fill_ring_empty",
    "xdp_rx_dropped",
];

/// Panics if any drop was counted.
pub fn assert_nothing_lost(counters: &PortCounters) {
    for (name, value) in counters.named() {
        // The interface's counters include the kernel's frames.
        if *name == "xdp_rx_early" || name.starts_with("interface_") {
            continue;
        }
        assert_eq!(*value, 0, "{name}");
    }
}
