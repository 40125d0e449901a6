//! AF_XDP with a kernel peer over veth: a small responder answers ARP, ND and pings. The kernel's
//! own addresses work beside ours, and a kernel's TCP sends partial checksums and super-frames.

mod xdp_support;

use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use packetio::xdp::{XdpInterface, XdpMode, XdpOptions, XdpPort};
use packetio::{MacAddr, Port as _, wait};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket};
use wire::ethernet::EtherType;
use wire::{arp, ethernet, icmpv4, icmpv6, ipv4, ipv6, tcp};
use xdp_support::{FAR, KERNEL, Lab, NEAR, OURS, PATIENCE, PEER, assert_nothing_lost, move_to};

const OURS_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
const PEER_V6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
const PORT: u16 = 9;

/// A minimal host behind an AF_XDP port: it answers ARP, ND, pings and SYNs, and records received
/// TCP data.
struct Responder {
    port: XdpPort,
    /// Length and checksum of each TCP segment with data.
    segments: Vec<(usize, Checksum)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksum {
    Whole,
    /// The field holds only the pseudo-header's sum.
    Partial,
    Wrong,
}

impl Responder {
    fn new(mode: XdpMode) -> Self {
        let options = XdpOptions {
            interface: NEAR.to_owned(),
            mode,
            addresses: vec![OURS_V6.into()],
            ..XdpOptions::default()
        };
        let interface = XdpInterface::open(&options, &[OURS.into()]).unwrap();
        Self {
            port: interface.port(0).unwrap(),
            segments: Vec::new(),
        }
    }

    /// Answers frames until `done` is true.
    fn serve(&mut self, mut done: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(Instant::now() < deadline, "still not done");
            let mut batch = Vec::new();
            for frame in self.port.receive().unwrap() {
                let mut bytes = vec![0; frame.len()];
                frame.copy_to(0, &mut bytes);
                batch.push(bytes);
            }
            for frame in &batch {
                if let Some(answer) = self.answer(frame) {
                    let slot = &self.port.reserve(1)[0];
                    assert_eq!(slot.write(0, &answer), answer.len());
                    slot.set_len(answer.len());
                    self.port.send(1).unwrap();
                }
            }
            if batch.is_empty() {
                wait(&mut [&mut self.port], &[], false, Some(1_000_000)).unwrap();
            }
        }
    }

    fn answer(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let (header, at) = ethernet::Header::parse(frame).unwrap();
        let packet = &frame[at..];
        let mut out = vec![0u8; 2048];
        let reply = ethernet::Header {
            dst: header.src,
            src: self.port.capabilities().mac,
            ..header
        };
        let at = reply.emit(&mut out);
        let len = match header.ethertype {
            EtherType::ARP => answer_arp(packet, reply.src, &mut out[at..]),
            EtherType::IPV4 => self.answer_v4(packet, &mut out[at..]),
            EtherType::IPV6 => answer_v6(packet, reply.src, &mut out[at..]),
            other => panic!("frame of type {other:#x} is not ours"),
        }?;
        out.truncate(at + len);
        Some(out)
    }

    fn answer_v4(&mut self, packet: &[u8], out: &mut [u8]) -> Option<usize> {
        let ip = ipv4::Header::parse(packet, packet.len()).unwrap();
        assert_eq!(ip.dst, OURS);
        let body = &packet[usize::from(ip.header_len)..usize::from(ip.total_len)];
        let len = match ip.protocol {
            1 => match icmpv4::Message::parse(body).unwrap() {
                icmpv4::Message::EchoRequest { ident, seq, data } => {
                    icmpv4::Message::EchoReply { ident, seq, data }.emit(&mut out[20..])
                }
                _ => return None,
            },
            6 => self.answer_tcp(&ip, body, &mut out[20..])?,
            _ => return None,
        };
        let reply = ipv4::Header {
            total_len: (20 + len) as u16,
            protocol: ip.protocol,
            src: ip.dst,
            dst: ip.src,
            ..ipv4::Header::default()
        };
        Some(reply.emit(out) + len)
    }

    /// Answers a SYN by a SYN-ACK and data by an ACK; records data.
    fn answer_tcp(&mut self, ip: &ipv4::Header, segment: &[u8], out: &mut [u8]) -> Option<usize> {
        let (header, offset) = tcp::Header::parse(segment).unwrap();
        let pseudo = wire::checksum::pseudo_header_v4(ip.src, ip.dst, 6, segment.len() as u32);
        let mut sum = pseudo;
        sum.add_bytes(segment);
        let checksum = match (sum.is_valid(), header.checksum == pseudo.fold()) {
            (true, _) => Checksum::Whole,
            (false, true) => Checksum::Partial,
            (false, false) => Checksum::Wrong,
        };
        let data = segment.len() - offset;
        if data > 0 {
            self.segments.push((data, checksum));
        }
        let syn = header.flags.contains(tcp::Flags::SYN);
        if !syn && data == 0 {
            return None;
        }
        let mut reply = tcp::Header {
            src_port: header.dst_port,
            dst_port: header.src_port,
            seq: if syn {
                wire::SeqNumber(1000)
            } else {
                header.ack
            },
            ack: header.seq + data as u32 + u32::from(syn),
            flags: tcp::Flags::ACK,
            window: 65_535,
            ..tcp::Header::default()
        };
        if syn {
            reply.flags |= tcp::Flags::SYN;
            reply.options.mss = Some(1460);
        }
        let len = reply.emit(out);
        let mut sum = wire::checksum::pseudo_header_v4(ip.dst, ip.src, 6, len as u32);
        sum.add_bytes(&out[..len]);
        reply.checksum = sum.finish();
        Some(reply.emit(out))
    }
}

fn answer_arp(packet: &[u8], mac: MacAddr, out: &mut [u8]) -> Option<usize> {
    let request = arp::Repr::parse(packet).unwrap();
    assert_eq!(request.tpa, OURS);
    if request.op != arp::Operation::Request {
        return None;
    }
    let reply = arp::Repr {
        op: arp::Operation::Reply,
        sha: mac,
        spa: OURS,
        tha: request.sha,
        tpa: request.spa,
    };
    Some(reply.emit(out))
}

fn answer_v6(packet: &[u8], mac: MacAddr, out: &mut [u8]) -> Option<usize> {
    let ip = ipv6::Header::parse(packet, packet.len()).unwrap();
    let body = &packet[40..40 + usize::from(ip.payload_len)];
    let len = match icmpv6::Message::parse(body, ip.src, ip.dst, ip.hop_limit).unwrap() {
        icmpv6::Message::NeighborSolicitation { target, .. } => {
            assert_eq!(target, OURS_V6);
            let flags = icmpv6::NeighborFlags {
                solicited: true,
                overrides: true,
                ..Default::default()
            };
            let target_lladdr = Some(mac);
            icmpv6::Message::NeighborAdvertisement {
                flags,
                target,
                target_lladdr,
            }
            .emit(&mut out[40..], OURS_V6, ip.src)
        }
        icmpv6::Message::EchoRequest { ident, seq, data } => {
            icmpv6::Message::EchoReply { ident, seq, data }.emit(&mut out[40..], OURS_V6, ip.src)
        }
        _ => return None,
    };
    let reply = ipv6::Header {
        payload_len: len as u16,
        next_header: 58,
        hop_limit: 255,
        src: OURS_V6,
        dst: ip.src,
        ..ipv6::Header::default()
    };
    Some(reply.emit(out) + len)
}

/// Pings from the calling thread's namespace; returns how many of `count` were answered.
fn ping(to: IpAddr, count: u16) -> usize {
    let (family, protocol, request, reply, skip) = match to {
        IpAddr::V4(_) => (AddressFamily::INET, ipproto::ICMP, 8, 0, 20),
        IpAddr::V6(_) => (AddressFamily::INET6, ipproto::ICMPV6, 128, 129, 0),
    };
    let socket = socket(family, SocketType::RAW, Some(protocol)).unwrap();
    let timeout = rustix::net::sockopt::Timeout::Recv;
    rustix::net::sockopt::set_socket_timeout(&socket, timeout, Some(PATIENCE)).unwrap();
    let mut back = 0;
    for seq in 1..=count {
        let mut message = vec![request, 0, 0, 0, 0x4d, 0x58];
        message.extend(seq.to_be_bytes());
        message.extend((0..64).map(|i| i as u8));
        let sum = wire::checksum::of(&message).finish().to_be_bytes();
        message[2..4].copy_from_slice(&sum); // the kernel writes its own for ICMPv6
        sendto(
            &socket,
            &message,
            SendFlags::empty(),
            &SocketAddr::new(to, 0),
        )
        .unwrap();
        let mut answer = [0u8; 256];
        while let Ok((len, _)) = recv(&socket, &mut answer, RecvFlags::empty()) {
            let body = &answer[skip..len];
            if body[0] == reply && body[4..] == message[4..] {
                back += 1;
                break;
            }
        }
    }
    back
}

/// Gives both kernels their addresses, without ours.
fn address(lab: &Lab) {
    lab.ip_near(&["addr", "add", &format!("{KERNEL}/24"), "dev", NEAR]);
    lab.ip_far(&["addr", "add", &format!("{PEER}/24"), "dev", FAR]);
    let enable = format!("echo 0 > /proc/sys/net/ipv6/conf/{}/disable_ipv6", FAR);
    assert!(lab.exec_far(&["sh", "-c", &enable]));
    let v6 = format!("{PEER_V6}/64");
    lab.ip_far(&["addr", "add", &v6, "dev", FAR, "nodad"]);
}

/// Runs `job` on a thread in `far`; its result comes by the channel.
fn in_far<T: Send + 'static>(
    lab: &Lab,
    job: impl FnOnce() -> T + Send + 'static,
) -> mpsc::Receiver<T> {
    let (done, result) = mpsc::channel();
    let far = lab.far_namespace();
    thread::spawn(move || {
        move_to(&far);
        let _ = done.send(job());
    });
    result
}

fn kernel_pings_us_and_the_kernel(label: &str, mode: XdpMode) {
    let Some(lab) = Lab::new(label, 1) else {
        return;
    };
    address(&lab);
    let mut responder = Responder::new(mode);
    for to in [OURS.into(), IpAddr::V4(KERNEL), OURS_V6.into()] {
        let pings = in_far(&lab, move || ping(to, 20));
        let mut back = None;
        responder.serve(|_| {
            back = back.or(pings.try_recv().ok());
            back.is_some()
        });
        assert_eq!(back, Some(20), "{to}");
    }
}

#[test]
fn native_kernel_pings_us_and_the_kernel() {
    kernel_pings_us_and_the_kernel("pingN", XdpMode::Native);
}

#[test]
fn generic_kernel_pings_us_and_the_kernel() {
    kernel_pings_us_and_the_kernel("pingG", XdpMode::Generic);
}

#[test]
fn nobody_answers_for_us_once_the_port_is_gone() {
    let Some(lab) = Lab::new("silent", 1) else {
        return;
    };
    address(&lab);
    drop(Responder::new(XdpMode::Native));
    let connect = in_far(&lab, || {
        TcpStream::connect_timeout(&(OURS, PORT).into(), Duration::from_millis(300))
    });
    let result = connect.recv_timeout(PATIENCE).unwrap();
    assert!(result.is_err());
}

/// Has a kernel's TCP connect to us and write `bytes` bytes at once; the connection stays open.
fn send_from_kernel(lab: &Lab, bytes: usize) -> mpsc::Receiver<()> {
    in_far(lab, move || {
        let mut stream = TcpStream::connect((OURS, PORT)).unwrap();
        stream.write_all(&vec![b'x'; bytes]).unwrap();
        thread::sleep(PATIENCE);
    })
}

/// Serves until all data of `send_from_kernel` has arrived, and checks that nothing else did.
fn tcp_from_kernel(lab: &Lab, responder: &mut Responder, bytes: usize) {
    responder.segments.clear();
    let _open = send_from_kernel(lab, bytes);
    responder.serve(|r| r.segments.iter().map(|(len, _)| len).sum::<usize>() >= bytes);
}

#[test]
fn native_kernel_tcp_is_cut_and_its_checksums_are_partial() {
    let Some(lab) = Lab::new("tcpN", 1) else {
        return;
    };
    address(&lab);
    let mut responder = Responder::new(XdpMode::Native);
    tcp_from_kernel(&lab, &mut responder, 40_000);
    assert!(responder.segments.iter().all(|(len, _)| *len <= 1460));
    let partial = |r: &Responder| r.segments.iter().all(|(_, c)| *c == Checksum::Partial);
    assert!(partial(&responder), "{:?}", responder.segments);
    responder.port.refresh_counters();
    assert_nothing_lost(&responder.port.counters());

    assert!(lab.exec_far(&["ethtool", "-K", FAR, "tx", "off"]));
    tcp_from_kernel(&lab, &mut responder, 40_000);
    let whole = |r: &Responder| r.segments.iter().all(|(_, c)| *c == Checksum::Whole);
    assert!(whole(&responder), "{:?}", responder.segments);
}

#[test]
fn generic_kernel_tcp_is_cut_by_the_port() {
    let Some(lab) = Lab::new("tcpG", 1) else {
        return;
    };
    address(&lab);
    let mut responder = Responder::new(XdpMode::Generic);
    let count = |r: &Responder, name| r.port.counters().value(name);
    tcp_from_kernel(&lab, &mut responder, 400_000);
    let total = responder.segments.iter().map(|(len, _)| len).sum::<usize>();
    assert_eq!(total, 400_000, "nothing came twice");
    assert!(responder.segments.iter().all(|(len, _)| *len <= 1460));
    assert!(
        responder
            .segments
            .iter()
            .all(|(_, c)| *c != Checksum::Wrong)
    );
    let cut = count(&responder, "xdp_rx_cut").unwrap();
    assert!(cut > 0, "the kernel sent no frame longer than a chunk");
    responder.port.refresh_counters();
    assert_eq!(count(&responder, "xdp_rx_dropped"), Some(0));
    assert_eq!(count(&responder, "xdp_rx_too_long"), Some(0));

    let off = ["ethtool", "-K", FAR, "tso", "off", "gso", "off"];
    assert!(lab.exec_far(&off));
    tcp_from_kernel(&lab, &mut responder, 40_000);
    assert!(responder.segments.iter().all(|(len, _)| *len <= 1460));
    assert_eq!(count(&responder, "xdp_rx_cut"), Some(cut));
}
