//! The program's decisions about frames (run in the kernel without an interface), and attaching by
//! netlink.
//!
//! The tests need root; without it each reports that it was skipped.

use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::*;
use crate::xdp::device_unsafe::Device;

const PASS: u32 = 2;
const DROP: u32 = 1;
const OURS_V4: Ipv4Addr = Ipv4Addr::new(10, 9, 8, 7);
const OURS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0xab, 0xcdef);

/// Loads the program; `None` after printing the reason.
fn loaded() -> Option<Loaded> {
    if !rustix::process::geteuid().is_root() {
        let _ = writeln!(std::io::stderr(), "ignored: needs root");
        return None;
    }
    match Loaded::load("xdp:test") {
        Ok(loaded) => Some(loaded),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "ignored: {error}");
            None
        }
    }
}

/// True if the program took the frame. There are no sockets, so frames that it takes go to the
/// kernel and are counted.
fn takes(loaded: &Loaded, frame: &[u8]) -> bool {
    let before = loaded.no_socket();
    let action = bpf::dry_run(loaded.program.as_fd(), frame, 0).unwrap();
    assert_eq!(action, PASS);
    loaded.no_socket() == before + 1
}

fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

fn ipv4(destination: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1];
    packet.extend(destination.octets());
    ethernet(0x0800, &packet)
}

fn arp(target: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
    packet.extend([2, 0, 0, 0, 0, 2, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    packet.extend(target.octets());
    ethernet(0x0806, &packet)
}

fn ipv6(destination: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next_header, 255];
    packet.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets());
    packet.extend(destination.octets());
    packet.extend(payload);
    ethernet(0x86dd, &packet)
}

fn solicitation(target: Ipv6Addr) -> Vec<u8> {
    let mut payload = vec![135, 0, 0, 0, 0, 0, 0, 0];
    payload.extend(target.octets());
    let o = target.octets();
    let mut group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0).octets();
    group[13..].copy_from_slice(&o[13..]);
    ipv6(Ipv6Addr::from(group), 58, &payload)
}

#[test]
fn program_takes_what_is_for_owned_addresses() {
    let Some(loaded) = loaded() else { return };
    let other_v4 = Ipv4Addr::new(10, 9, 8, 6);
    let other_v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0xac, 0xcdef); // same solicited-node group
    let ours = [
        ipv4(OURS_V4),
        arp(OURS_V4),
        ipv6(OURS_V6, 6, &[0; 20]),
        solicitation(OURS_V6),
    ];
    for frame in &ours {
        assert!(!takes(&loaded, frame), "taken before it is owned");
    }
    loaded.own(OURS_V4.into()).unwrap();
    loaded.own(OURS_V6.into()).unwrap();
    for frame in &ours {
        assert!(takes(&loaded, frame), "{frame:x?}");
    }
    let mut tagged = vec![0, 5, 8, 0];
    tagged.extend(&ipv4(OURS_V4)[14..]);
    let theirs = [
        ipv4(other_v4),
        ipv4(Ipv4Addr::BROADCAST),
        arp(other_v4),
        ipv6(other_v6, 6, &[0; 20]),
        solicitation(other_v6),
        ipv6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), 58, &[134; 24]),
        ethernet(0x8100, &tagged),
        ethernet(0x88cc, &[0; 46]),
    ];
    for frame in &theirs {
        assert!(!takes(&loaded, frame), "{frame:x?}");
    }
    loaded.disown(OURS_V4.into()).unwrap();
    loaded.disown(OURS_V4.into()).unwrap();
    assert!(!takes(&loaded, &ipv4(OURS_V4)));
    loaded.set_take(Take::All).unwrap();
    assert!(theirs.iter().all(|frame| takes(&loaded, frame)));
}

/// True if the program took the frame from a shared address. There are no sockets, so frames that
/// it takes are dropped and counted.
fn takes_tcp(loaded: &Loaded, frame: &[u8]) -> bool {
    let before = loaded.no_socket();
    let action = bpf::dry_run(loaded.program.as_fd(), frame, 0).unwrap();
    let is_taken = action == DROP;
    assert!(is_taken || action == PASS, "{action}");
    assert_eq!(loaded.no_socket() - before, u64::from(is_taken));
    is_taken
}

/// An ICMP message of type `kind` that quotes a packet of protocol `quoted`.
fn icmp(kind: u8, quoted: u8) -> Vec<u8> {
    let mut frame = ipv4(OURS_V4);
    frame[14 + 9] = 1;
    frame.extend([kind, 4, 0, 0, 0, 0, 0, 0]);
    frame.extend(&ipv4(OURS_V4)[14..]);
    frame[14 + 20 + 8 + 9] = quoted;
    frame
}

#[test]
fn kernel_keeps_all_but_tcp_of_a_shared_address() {
    let Some(loaded) = loaded() else { return };
    loaded.set_take(Take::Tcp).unwrap();
    loaded.own(OURS_V4.into()).unwrap();
    loaded.own(OURS_V6.into()).unwrap();
    let mut icmpv6 = vec![0; 8 + 40];
    icmpv6[0] = 2;
    icmpv6[8 + 6] = 6;
    let ours = [
        ipv4(OURS_V4),
        icmp(3, 6),
        icmp(11, 6),
        icmp(12, 6),
        ipv6(OURS_V6, 6, &[0; 20]),
        ipv6(OURS_V6, 44, &[0; 20]),
        ipv6(OURS_V6, 58, &icmpv6),
    ];
    for frame in &ours {
        assert!(takes_tcp(&loaded, frame), "{frame:x?}");
    }
    let mut udp = ipv4(OURS_V4);
    udp[14 + 9] = 17;
    let mut about_udp = icmpv6.clone();
    about_udp[8 + 6] = 17;
    let mut echo = icmpv6.clone();
    echo[0] = 128;
    let theirs = [
        udp,
        arp(OURS_V4),
        solicitation(OURS_V6),
        icmp(3, 17),
        icmp(8, 6),
        ipv4(Ipv4Addr::new(10, 9, 8, 6)),
        ipv6(OURS_V6, 17, &[0; 20]),
        ipv6(OURS_V6, 58, &about_udp),
        ipv6(OURS_V6, 58, &echo),
        ipv6(OURS_V6, 58, &icmpv6[..14]),
    ];
    for frame in &theirs {
        assert!(!takes_tcp(&loaded, frame), "{frame:x?}");
    }
}

#[test]
fn cut_frames_are_left_to_the_kernel() {
    let Some(loaded) = loaded() else { return };
    loaded.own(OURS_V4.into()).unwrap();
    loaded.own(OURS_V6.into()).unwrap();
    for (frame, header_bytes) in [
        (ipv4(OURS_V4), 34),
        (arp(OURS_V4), 42),
        (ipv6(OURS_V6, 6, &[0; 20]), 54),
        (solicitation(OURS_V6), 78),
    ] {
        // The kernel does not run a program on less than an Ethernet header.
        for len in 14..frame.len() {
            let taken = takes(&loaded, &frame[..len]);
            assert_eq!(taken, len >= header_bytes, "{len} of {frame:x?}");
        }
    }
}

/// A veth pair in a separate namespace, in which this thread stays until the value is dropped. It
/// is removed even if the test panics.
struct Namespace {
    name: String,
    home: OwnedFd,
}

impl Namespace {
    fn enter() -> Option<Self> {
        let name = format!("mst-{}-xdp-attach", std::process::id());
        let home = open("/proc/thread-self/ns/net");
        if !ip(&["netns", "add", &name]) {
            let _ = writeln!(std::io::stderr(), "ignored: cannot add a network namespace");
            return None;
        }
        let namespace = Self { name, home };
        let there = open(&format!("/run/netns/{}", namespace.name));
        move_to(&there);
        let veth = [
            "link", "add", "name", "near", "type", "veth", "peer", "name", "far",
        ];
        assert!(ip(&veth));
        Some(namespace)
    }

    fn shows_program(&self) -> bool {
        let shown = Command::new("ip")
            .args(["link", "show", "dev", "near"])
            .output();
        String::from_utf8_lossy(&shown.unwrap().stdout).contains("prog/xdp")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        move_to(&self.home);
        ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> bool {
    let status = Command::new("ip").args(arguments).status();
    status.is_ok_and(|status| status.success())
}

fn open(path: &str) -> OwnedFd {
    std::fs::File::open(path).unwrap().into()
}

fn move_to(namespace: &OwnedFd) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

#[test]
fn netlink_attaches_detaches_and_respects_others() {
    let Some(loaded) = loaded() else { return };
    let Some(namespace) = Namespace::enter() else {
        return;
    };
    let index = Device::find("near").unwrap().index;
    let attach = |mode, means| attach(&loaded, "xdp:test", index, mode, means);

    let (hold, mode) = attach(XdpMode::Auto, Means::NetlinkOnly).unwrap();
    assert!(matches!(hold, Hold::Netlink(_)));
    assert_eq!(mode, XdpMode::Native);
    assert!(namespace.shows_program());
    for means in [Means::Any, Means::NetlinkOnly] {
        let error = attach(XdpMode::Auto, means).unwrap_err();
        assert!(error.to_string().contains("another XDP program"), "{error}");
    }
    drop(hold);
    assert!(!namespace.shows_program());

    let (hold, _) = attach(XdpMode::Auto, Means::Any).unwrap();
    assert!(matches!(hold, Hold::Link(_)));
    assert!(namespace.shows_program());
    drop(hold);
    assert!(!namespace.shows_program());

    // The interface lo has no native XDP.
    let index = Device::find("lo").unwrap().index;
    let attach = |mode| super::attach(&loaded, "xdp:test", index, mode, Means::Any);
    let error = attach(XdpMode::Native).unwrap_err();
    assert!(error.to_string().contains("native XDP"), "{error}");
    let (_hold, mode) = attach(XdpMode::Auto).unwrap();
    assert_eq!(mode, XdpMode::Generic);
}
