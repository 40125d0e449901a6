//! Two network namespaces joined by a veth pair, and frames to send through it. For the AF_XDP
//! tests, which need root.
//!
//! `near` has the interface [`NEAR`], which the tests drive with AF_XDP; `far` has [`FAR`]. The
//! namespaces have names of their own and go when the [`Lab`] goes, even by a panic.

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

/// The interface that is driven with AF_XDP.
pub const NEAR: &str = "mx0";
/// Its peer.
pub const FAR: &str = "mx1";
/// The address that is ours.
pub const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The far kernel's, where it has one.
pub const PEER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The near kernel's, where it has one.
pub const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
/// Long enough for a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long to listen for frames that must not come.
pub const SILENCE: Duration = Duration::from_millis(100);

/// The two namespaces; the thread that made them is in `near` until they go.
pub struct Lab {
    near: String,
    far: String,
    home: OwnedFd,
}

impl Lab {
    /// Both namespaces with the pair up and silent; `None` with the reason printed where that
    /// cannot be.
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
            // No router solicitations or listener reports among the frames that are counted.
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

    /// The calling thread is in `near`.
    pub fn enter_near(&self) {
        move_to(&named(&self.near));
    }

    /// The calling thread is in `far`.
    pub fn enter_far(&self) {
        move_to(&named(&self.far));
    }

    /// For another thread to move to.
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

    /// Runs a command in `far`; whether it succeeded.
    pub fn exec_far(&self, arguments: &[&str]) -> bool {
        run("ip", &[&["netns", "exec", &self.far], arguments].concat())
    }

    /// A command to be run in `near`; it replaces the `ip` that starts it.
    pub fn command_near(&self) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.near]);
        command
    }

    /// Whether `ip link` shows an XDP program on the near interface.
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

/// The calling thread moves to a network namespace.
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

/// The near interface, owning [`OURS`].
pub fn near(mode: XdpMode) -> XdpInterface {
    let options = XdpOptions {
        interface: NEAR.to_owned(),
        mode,
        ..XdpOptions::default()
    };
    XdpInterface::open(&options, &[IpAddr::V4(OURS)]).unwrap()
}

/// An Ethernet frame of `len` bytes (at least 60) with a UDP packet for `to`, told apart by `tag`.
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

/// Frames of all lengths that the link takes, to [`OURS`] or elsewhere.
pub fn frames(to: Ipv4Addr, count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|i| frame(to, i as u32, 60 + i * 97 % (1514 - 60 + 1)))
        .collect()
}

/// Sends all frames, in as many batches as it takes; waits where the port pushes back.
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

/// Receives frames until there are `count`, or the time is over.
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

/// The near interface, owning [`OURS`], with rings of so many slots.
pub fn near_with_ring(slots: u32) -> XdpInterface {
    let options = XdpOptions {
        interface: NEAR.to_owned(),
        ring_slots: Some(slots),
        ..XdpOptions::default()
    };
    XdpInterface::open(&options, &[IpAddr::V4(OURS)]).unwrap()
}

/// Frames that found no room in the rings, as the kernel counts them.
pub const LOST_IN_RINGS: [&str; 3] = [
    "xdp_rx_ring_full",
    "xdp_rx_fill_ring_empty",
    "xdp_rx_dropped",
];

/// Panics if any drop was counted.
pub fn assert_nothing_lost(counters: &PortCounters) {
    for (name, value) in counters.named() {
        // The interface's own counters tell of the kernel's frames, too.
        if *name == "xdp_rx_early" || name.starts_with("interface_") {
            continue;
        }
        assert_eq!(*value, 0, "{name}");
    }
}
