//! More connections than a listener's queue holds, and floods of SYNs: real clients are served
//! nevertheless.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use millstream::{Context, Crank, TcpListener};
use packetio::packet::{Packet, PacketOptions};
use packetio::{MacAddr, Port};
use wire::checksum::pseudo_header_v4;
use wire::ethernet::{self, EtherType};
use wire::{SeqNumber, ipv4, protocol, tcp};

use crate::common::bytes::{expect_end, receive, send};
use crate::common::lab::{FAR, Lab, Link, NEAR, turn_as_root};
use crate::common::meet::{Family, counter, places, plain, with_ours};
use crate::common::net::Gate;

/// Number of real clients of a flooded server, and of clients of a server that is slow to accept.
const REAL: usize = 20;
const CROWD: usize = 8;

fn client(to: SocketAddr, at: usize) {
    let mut stream = std::net::TcpStream::connect(to).expect("connect");
    stream
        .set_read_timeout(Some(Duration::from_secs(25)))
        .expect("timeout");
    send(&mut stream, 100, at as u64);
    receive(&mut stream, 100, at as u64);
    expect_end(&mut stream);
}

/// Serves one client, which identifies itself by its first bytes.
fn serve_one(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().expect("accept");
    let mut bytes = [0; 100];
    std::io::Read::read_exact(&mut stream, &mut bytes).expect("read");
    std::io::Write::write_all(&mut stream, &bytes).expect("write");
}

/// All connect at once to a listener with a queue of four that does not accept for a while.
#[test]
fn backlog_overflow_serves_all_in_the_end() {
    let Some(_turn) = turn_as_root("backlog_overflow_serves_all_in_the_end") else {
        return;
    };
    let lab = Lab::new(Link::Native);
    let (ours, kernels) = places(Family::V4);
    let gate = Gate::default();
    thread::scope(|scope| {
        for at in 0..CROWD {
            let (lab, gate, to) = (&lab, &gate, kernels.peer());
            scope.spawn(move || {
                lab.far().enter();
                gate.wait(1);
                client(to, at);
            });
        }
        with_ours(&lab, plain(&lab.wire(""), Crank::Inline), |context| {
            let listener = TcpListener::builder(context)
                .backlog(4)
                .bind(ours.own())
                .expect("bind");
            gate.reach(1);
            thread::sleep(Duration::from_millis(300));
            (0..CROWD).for_each(|_| serve_one(&listener));
            let report = context.report().expect("report");
            let refused = ["accept_queue_full", "syn_drop_accept_queue_full"];
            assert!(refused.iter().any(|name| counter(&report, name) > 0));
            assert_eq!(counter(&report, "accepted"), CROWD as u64);
        });
    });
}

/// SYNs with made-up sources, sent as fast as possible.
struct Flood {
    port: Packet,
    to: SocketAddr,
    mac: MacAddr,
    sent: u32,
}

impl Flood {
    /// On the far interface, in the namespace of the calling thread.
    fn new(to: SocketAddr, mac: MacAddr) -> Self {
        let options = PacketOptions {
            interface: FAR.to_owned(),
            ..PacketOptions::default()
        };
        let port = Packet::open(&options, 0).expect("packet socket");
        Self {
            port,
            to,
            mac,
            sent: 0,
        }
    }

    fn send(&mut self, count: usize, source: impl Fn(u32) -> Ipv4Addr) {
        for _ in 0..count {
            let frame = self.syn(source(self.sent));
            self.sent += 1;
            let slots = self.port.reserve(1);
            let Some(slot) = slots.first() else {
                self.port.send(0).expect("send");
                thread::yield_now();
                continue;
            };
            slot.set_len(slot.write(0, &frame));
            self.port.send(1).expect("send");
        }
    }

    fn syn(&self, source: Ipv4Addr) -> Vec<u8> {
        let IpAddr::V4(target) = self.to.ip() else {
            panic!("an IPv4 flood")
        };
        let mut header = tcp::Header {
            src_port: 1_024 + (self.sent % 60_000) as u16,
            dst_port: self.to.port(),
            seq: SeqNumber(self.sent.wrapping_mul(2_654_435_761)),
            ack: SeqNumber(0),
            flags: tcp::Flags::SYN,
            window: 64_240,
            checksum: 0,
            urgent: 0,
            options: tcp::Options {
                mss: Some(1_460),
                ..tcp::Options::default()
            },
        };
        let mut segment = [0; 60];
        let len = header.emit(&mut segment);
        let mut sum = pseudo_header_v4(source, target, protocol::TCP, len as u32);
        sum.add_bytes(&segment[..len]);
        header.checksum = sum.finish();
        header.emit(&mut segment);

        let mut frame = vec![0; 14 + 20 + len];
        let link = ethernet::Header {
            dst: self.mac,
            src: self.port.capabilities().mac,
            vlan: None,
            ethertype: EtherType::IPV4,
        };
        let at = link.emit(&mut frame);
        let ip = ipv4::Header {
            total_len: (20 + len) as u16,
            ttl: 64,
            protocol: protocol::TCP,
            src: source,
            dst: target,
            ..ipv4::Header::default()
        };
        let at = at + ip.emit(&mut frame[at..]);
        frame[at..at + len].copy_from_slice(&segment[..len]);
        frame
    }
}

/// The address of an interface in the namespace.
fn mac_of(namespace: &crate::common::lab::Namespace, interface: &str) -> MacAddr {
    let text = namespace.exec(&format!("cat /sys/class/net/{interface}/address"));
    let mut octets = [0; 6];
    for (octet, digits) in octets.iter_mut().zip(text.trim().split(':')) {
        *octet = u8::from_str_radix(digits, 16).expect("a MAC address");
    }
    MacAddr(octets)
}

/// Sends `count` SYNs with the sources of `source`; real clients connect during the flood and after
/// it.
fn flooded(name: &str, crank: Crank, source: fn(u32) -> Ipv4Addr) {
    const BATCH: usize = 200;
    let Some(_turn) = turn_as_root(name) else {
        return;
    };
    let lab = Lab::new(Link::Native);
    let mac = mac_of(lab.home(), NEAR);
    let (ours, kernels) = places(Family::V4);
    let mut config = plain(&lab.wire(""), crank);
    config.limits.half_open_max = 256;
    config.gateways.push(kernels.own);
    let gate = Gate::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            lab.far().enter();
            gate.wait(1);
            // Real clients know the server's MAC address, as in an established network.
            client(kernels.peer(), 0);
            let mut flood = Flood::new(kernels.peer(), mac);
            let begin = Instant::now();
            for at in 1..REAL {
                flood.send(BATCH, source);
                client(kernels.peer(), at);
            }
            println!("  {} SYNs in {:.1?}", flood.sent, begin.elapsed());
        });
        with_ours(&lab, config, |context| {
            serve_through_flood(context, ours.own(), &gate);
        });
    });
}

fn serve_through_flood(context: &Context, at: SocketAddr, gate: &Gate) {
    let listener = TcpListener::bind(context, at).expect("bind");
    gate.reach(1);
    (0..REAL).for_each(|_| serve_one(&listener));
    let report = context.report().expect("report");
    let count = |name| counter(&report, name);
    assert_eq!(report.usage.half_open, 256, "the SYN queue is full");
    assert!(count("syn_cookies_sent") > 1_000, "{report:#?}");
    assert!(count("syn_cookies_accepted") > 5, "{report:#?}");
    assert_eq!(count("accepted"), REAL as u64);
}

/// The sources lie behind the router, so answers leave at once.
#[test]
fn syn_flood_from_afar() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        flooded("syn_flood_from_afar", crank, |n| {
            Ipv4Addr::new(198, 51, (n >> 8) as u8, n as u8)
        });
    }
}

/// The sources are absent neighbours, so each answer waits for a MAC address that never comes.
#[test]
fn syn_flood_from_the_link() {
    flooded("syn_flood_from_the_link", Crank::Inline, |n| {
        Ipv4Addr::new(10, 77, 0, 3 + (n % 250) as u8)
    });
}
