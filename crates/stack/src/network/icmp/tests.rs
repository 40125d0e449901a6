//! Tests of ICMP. We are 10.0.0.1 and 2001:db8::1.

use super::*;
use crate::network::addresses::IpCidr;
use core::net::{IpAddr, Ipv6Addr};
use wire::Addr;

const SECOND: u64 = 1_000_000_000;

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

struct World {
    addresses: LocalAddresses,
    limiter: IcmpLimiter,
    echo: bool,
    now_ns: u64,
    out: [u8; 2048],
}

impl World {
    fn new() -> World {
        let mut addresses = LocalAddresses::new();
        for cidr in ["10.0.0.1/24", "2001:db8::1/64"] {
            addresses.add(cidr.parse::<IpCidr>().unwrap(), 0).unwrap();
        }
        World {
            addresses,
            limiter: IcmpLimiter::new(1),
            echo: true,
            now_ns: SECOND,
            out: [0; 2048],
        }
    }

    fn split(&mut self) -> (Icmp<'_>, &mut [u8]) {
        let icmp = Icmp {
            addresses: &self.addresses,
            limiter: &mut self.limiter,
            echo: self.echo,
            now_ns: self.now_ns,
        };
        (icmp, &mut self.out)
    }

    fn take<'p>(&mut self, packet: &'p [u8]) -> Incoming<'p> {
        let (mut icmp, out) = self.split();
        if packet[0] >> 4 == 4 {
            icmp.on_v4(packet, out)
        } else {
            icmp.on_v6(packet, out)
        }
    }

    fn refuse(&mut self, packet: &[u8], refusal: Refusal) -> Option<usize> {
        let (mut icmp, out) = self.split();
        icmp.refuse(packet, refusal, out)
    }
}

fn packet_v4(message: &icmpv4::Message<'_>, from: &str, to: &str) -> Vec<u8> {
    let mut out = vec![0; 2048];
    let len = write_v4(message, v4(from), v4(to), &mut out).unwrap();
    out.truncate(len);
    out
}

fn packet_v6(message: &icmpv6::Message<'_>, from: &str, to: &str, hop_limit: u8) -> Vec<u8> {
    let mut out = vec![0; 2048];
    let len = write_v6(message, v6(from), v6(to), &mut out).unwrap();
    out.truncate(len);
    out[7] = hop_limit;
    out
}

/// A router's quote of our TCP segment from port 80 to port 4000, sequence number 77, in a packet
/// of `total_len` bytes.
fn quote_v4(from: &str, total_len: u16) -> Vec<u8> {
    let header = ipv4::Header {
        total_len,
        protocol: protocol::TCP,
        src: v4(from),
        dst: v4("192.0.2.9"),
        ..ipv4::Header::default()
    };
    let mut out = vec![0; 28];
    header.emit(&mut out);
    out[20..].copy_from_slice(&[0, 80, 0x0f, 0xa0, 0, 0, 0, 77]);
    out
}

fn quote_v6(from: &str) -> Vec<u8> {
    let header = ipv6::Header {
        payload_len: 1440,
        next_header: protocol::TCP,
        src: v6(from),
        dst: v6("2001:db8:9::9"),
        ..ipv6::Header::default()
    };
    let mut out = vec![0; 48];
    header.emit(&mut out);
    out[40..].copy_from_slice(&[0, 80, 0x0f, 0xa0, 0, 0, 0, 77]);
    out
}

fn report(kind: ErrorKind, local: IpAddr, remote: IpAddr) -> Incoming<'static> {
    let flow = FlowKey {
        local: Addr::from(local),
        remote: Addr::from(remote),
        local_port: 80,
        remote_port: 4000,
    };
    Incoming::Error(ErrorReport {
        flow,
        seq: SeqNumber(77),
        kind,
    })
}

fn report_v4(kind: ErrorKind) -> Incoming<'static> {
    report(kind, v4("10.0.0.1").into(), v4("192.0.2.9").into())
}

fn report_v6(kind: ErrorKind) -> Incoming<'static> {
    report(kind, v6("2001:db8::1").into(), v6("2001:db8:9::9").into())
}

#[test]
fn echo_request_is_returned() {
    let mut world = World::new();
    let asked = icmpv4::Message::EchoRequest {
        ident: 7,
        seq: 8,
        data: b"abcdefg",
    };
    let Incoming::EchoReply { len } = world.take(&packet_v4(&asked, "10.0.0.2", "10.0.0.1")) else {
        panic!()
    };
    let reply = &world.out[..len];
    let header = ipv4::Header::parse(reply, len).unwrap();
    assert_eq!((header.src, header.dst), (v4("10.0.0.1"), v4("10.0.0.2")));
    let expected = icmpv4::Message::EchoReply {
        ident: 7,
        seq: 8,
        data: b"abcdefg",
    };
    assert_eq!(icmpv4::Message::parse(&reply[20..]).unwrap(), expected);

    let asked = icmpv6::Message::EchoRequest {
        ident: 7,
        seq: 8,
        data: b"abcdefg",
    };
    let packet = packet_v6(&asked, "2001:db8::2", "2001:db8::1", 64);
    let Incoming::EchoReply { len } = world.take(&packet) else {
        panic!()
    };
    let reply = &world.out[..len];
    let header = ipv6::Header::parse(reply, len).unwrap();
    let expected = icmpv6::Message::EchoReply {
        ident: 7,
        seq: 8,
        data: b"abcdefg",
    };
    let message = icmpv6::Message::parse(&reply[40..], header.src, header.dst, header.hop_limit);
    assert_eq!(message.unwrap(), expected);
}

#[test]
fn echo_request_behind_padding_is_returned_without_it() {
    let mut world = World::new();
    let asked = icmpv4::Message::EchoRequest {
        ident: 7,
        seq: 8,
        data: b"",
    };
    let mut packet = packet_v4(&asked, "10.0.0.2", "10.0.0.1");
    packet.resize(46, 0xaa);
    assert_eq!(world.take(&packet), Incoming::EchoReply { len: 28 });
}

#[test]
fn echo_request_to_or_from_a_group_is_dropped() {
    let mut world = World::new();
    let asked = icmpv4::Message::EchoRequest {
        ident: 7,
        seq: 8,
        data: b"",
    };
    let ends = [
        ("10.0.0.2", "10.0.0.255"),
        ("10.0.0.2", "255.255.255.255"),
        ("10.0.0.2", "224.0.0.1"),
        ("10.0.0.2", "10.0.0.9"),
        ("224.0.0.1", "10.0.0.1"),
        ("10.0.0.255", "10.0.0.1"),
        ("0.0.0.0", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
    ];
    for (from, to) in ends {
        let packet = packet_v4(&asked, from, to);
        assert_eq!(
            world.take(&packet),
            Incoming::Dropped(Drop::Address),
            "{from} {to}"
        );
    }
}

#[test]
fn echo_request_stops_at_its_limits() {
    let mut world = World::new();
    let asked = icmpv4::Message::EchoRequest {
        ident: 7,
        seq: 8,
        data: b"",
    };
    let packet = packet_v4(&asked, "10.0.0.2", "10.0.0.1");
    let mut answered = 0;
    for _ in 0..5000 {
        match world.take(&packet) {
            Incoming::EchoReply { .. } => answered += 1,
            other => assert_eq!(other, Incoming::Dropped(Drop::Limit)),
        }
    }
    assert!((ECHO_REPLIES_BURST_MAX - 3..=ECHO_REPLIES_BURST_MAX).contains(&answered));
    world.echo = false;
    assert_eq!(world.take(&packet), Incoming::Dropped(Drop::EchoOff));
}

#[test]
fn malformed_packets_name_what_is_wrong() {
    let mut world = World::new();
    let asked = icmpv4::Message::EchoRequest {
        ident: 7,
        seq: 8,
        data: b"abc",
    };
    let mut packet = packet_v4(&asked, "10.0.0.2", "10.0.0.1");
    packet[24] ^= 1;
    assert_eq!(
        world.take(&packet),
        Incoming::Dropped(Drop::Wire(WireError::BadChecksum))
    );
    assert_eq!(
        world.take(&packet[..10]),
        Incoming::Dropped(Drop::Wire(WireError::Truncated))
    );
    let told = icmpv4::Message::DestinationUnreachable {
        code: 1,
        next_hop_mtu: 0,
        quote: &[0x45; 12],
    };
    let packet = packet_v4(&told, "10.0.0.254", "10.0.0.1");
    assert_eq!(
        world.take(&packet),
        Incoming::Dropped(Drop::Wire(WireError::Truncated))
    );
}

#[test]
fn unreachable_names_flow_number_and_cause() {
    use IcmpError::{
        HostUnreachable, NetUnreachable, PortUnreachable, Prohibited, ProtocolUnreachable,
    };
    let mut world = World::new();
    let quote = quote_v4("10.0.0.1", 1500);
    let codes = [
        (0, NetUnreachable),
        (1, HostUnreachable),
        (2, ProtocolUnreachable),
        (3, PortUnreachable),
        (5, IcmpError::SourceRouteFailed),
        (6, IcmpError::NetProhibited),
        (7, IcmpError::HostUnknown),
        (8, IcmpError::HostIsolated),
        (10, Prohibited),
        (11, IcmpError::NetProhibited),
        (13, Prohibited),
    ];
    for (code, error) in codes {
        let told = icmpv4::Message::DestinationUnreachable {
            code,
            next_hop_mtu: 0,
            quote: &quote,
        };
        let packet = packet_v4(&told, "192.0.2.1", "10.0.0.1");
        assert_eq!(
            world.take(&packet),
            report_v4(ErrorKind::Failed(error)),
            "{code}"
        );
    }
    let quote = quote_v6("2001:db8::1");
    for (code, error) in [
        (0, NetUnreachable),
        (1, IcmpError::AccessDenied),
        (3, HostUnreachable),
        (4, PortUnreachable),
        (7, IcmpError::ParameterProblem),
    ] {
        let told = icmpv6::Message::DestinationUnreachable {
            code,
            quote: &quote,
        };
        let packet = packet_v6(&told, "2001:db8:7::7", "2001:db8::1", 60);
        assert_eq!(
            world.take(&packet),
            report_v6(ErrorKind::Failed(error)),
            "{code}"
        );
    }
}

#[test]
fn other_errors_name_their_cause() {
    let mut world = World::new();
    let quote = quote_v4("10.0.0.1", 1500);
    let told = icmpv4::Message::TimeExceeded {
        code: 0,
        quote: &quote,
    };
    let packet = packet_v4(&told, "192.0.2.1", "10.0.0.1");
    assert_eq!(
        world.take(&packet),
        report_v4(ErrorKind::Failed(IcmpError::TimeExceeded))
    );
    let told = icmpv4::Message::TimeExceeded {
        code: 1,
        quote: &quote,
    };
    let packet = packet_v4(&told, "192.0.2.1", "10.0.0.1");
    assert_eq!(world.take(&packet), Incoming::Dropped(Drop::Kind));
    let told = icmpv4::Message::ParameterProblem {
        code: 0,
        pointer: 3,
        quote: &quote,
    };
    let packet = packet_v4(&told, "192.0.2.1", "10.0.0.1");
    assert_eq!(
        world.take(&packet),
        report_v4(ErrorKind::Failed(IcmpError::ParameterProblem))
    );
    let quote = quote_v6("2001:db8::1");
    for (code, error) in [
        (0, IcmpError::ParameterProblem),
        (1, IcmpError::ParameterProblem),
    ] {
        let told = icmpv6::Message::ParameterProblem {
            code,
            pointer: 6,
            quote: &quote,
        };
        let packet = packet_v6(&told, "2001:db8:7::7", "2001:db8::1", 60);
        assert_eq!(world.take(&packet), report_v6(ErrorKind::Failed(error)));
    }
}

#[test]
fn too_big_says_what_fits() {
    let mut world = World::new();
    let told = |mtu, quote: &[u8]| {
        packet_v4(
            &icmpv4::Message::DestinationUnreachable {
                code: 4,
                next_hop_mtu: mtu,
                quote,
            },
            "192.0.2.1",
            "10.0.0.1",
        )
    };
    // An old router reports no MTU, so the next lower plateau counts. A false report of 20 bytes is
    // raised to the minimum.
    for (mtu, sent, fits) in [
        (1400, 1500, 1400),
        (0, 1500, 1492),
        (0, 1492, 1006),
        (0, 60, 68),
        (20, 1500, 68),
    ] {
        let packet = told(mtu, &quote_v4("10.0.0.1", sent));
        let expected = report_v4(ErrorKind::PacketTooBig { mtu: fits });
        assert_eq!(world.take(&packet), expected, "{mtu} {sent}");
    }
    for (mtu, expected) in [
        (1400, report_v6(ErrorKind::PacketTooBig { mtu: 1400 })),
        (1280, report_v6(ErrorKind::PacketTooBig { mtu: 1280 })),
        // Every IPv6 link has a larger MTU, so the report is false (RFC 8201 section 4).
        (1279, Incoming::Dropped(Drop::Kind)),
    ] {
        let told = icmpv6::Message::PacketTooBig {
            mtu,
            quote: &quote_v6("2001:db8::1"),
        };
        let packet = packet_v6(&told, "2001:db8:7::7", "2001:db8::1", 60);
        assert_eq!(world.take(&packet), expected, "{mtu}");
    }
}

#[test]
fn error_about_a_packet_that_is_not_ours_is_dropped() {
    let mut world = World::new();
    let told = icmpv4::Message::DestinationUnreachable {
        code: 3,
        next_hop_mtu: 0,
        quote: &quote_v4("10.0.0.7", 100),
    };
    let packet = packet_v4(&told, "192.0.2.1", "10.0.0.1");
    assert_eq!(world.take(&packet), Incoming::Dropped(Drop::Address));
    let mut quote = quote_v4("10.0.0.1", 100);
    quote[9] = protocol::UDP;
    let told = icmpv4::Message::DestinationUnreachable {
        code: 3,
        next_hop_mtu: 0,
        quote: &quote,
    };
    let packet = packet_v4(&told, "192.0.2.1", "10.0.0.1");
    assert_eq!(
        world.take(&packet),
        Incoming::Dropped(Drop::Wire(WireError::Unsupported))
    );
}

#[test]
fn source_quench_and_redirect_are_dropped() {
    let mut world = World::new();
    for kind in [4, 5] {
        let told = icmpv4::Message::Other {
            kind,
            code: 0,
            rest_of_header: [10, 0, 0, 3],
            body: &quote_v4("10.0.0.1", 100),
        };
        let packet = packet_v4(&told, "10.0.0.254", "10.0.0.1");
        assert_eq!(world.take(&packet), Incoming::Dropped(Drop::Kind));
    }
}

#[test]
fn neighbour_discovery_is_passed_on_if_it_is_for_us() {
    let mut world = World::new();
    let asked = icmpv6::Message::NeighborSolicitation {
        target: v6("2001:db8::1"),
        source_lladdr: None,
    };
    for (to, ours) in [
        ("ff02::1:ff00:1", true),
        ("2001:db8::1", true),
        ("ff02::1:ff00:9", false),
    ] {
        let packet = packet_v6(&asked, "fe80::2", to, 255);
        let taken = world.take(&packet);
        assert_eq!(
            matches!(taken, Incoming::Neighbour { .. }),
            ours,
            "{to} {taken:?}"
        );
    }
    // A hop limit of 254 shows that the packet passed a router.
    let packet = packet_v6(&asked, "fe80::2", "2001:db8::1", 254);
    assert_eq!(
        world.take(&packet),
        Incoming::Dropped(Drop::Wire(WireError::BadHopLimit))
    );
}

/// A UDP packet to port 9 with 4 bytes of data, or a packet of another protocol.
fn packet(protocol: u8, from: IpAddr, to: IpAddr, len: usize) -> Vec<u8> {
    let mut out = vec![0x55; len];
    match (from, to) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = ipv4::Header {
                total_len: len as u16,
                protocol,
                src,
                dst,
                ..ipv4::Header::default()
            };
            header.emit(&mut out);
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let payload_len = (len - 40) as u16;
            let header = ipv6::Header {
                payload_len,
                next_header: protocol,
                src,
                dst,
                ..ipv6::Header::default()
            };
            header.emit(&mut out);
        }
        _ => unreachable!(),
    }
    out
}

#[test]
fn refusal_quotes_as_much_as_it_may() {
    let mut world = World::new();
    let (us, them) = (v4("10.0.0.1").into(), v4("10.0.0.2").into());
    let len = world
        .refuse(&packet(protocol::UDP, them, us, 40), Refusal::Port)
        .unwrap();
    assert_eq!(len, 20 + 8 + 40);
    let header = ipv4::Header::parse(&world.out[..len], len).unwrap();
    assert_eq!((header.src, header.dst), (v4("10.0.0.1"), v4("10.0.0.2")));
    let message = icmpv4::Message::parse(&world.out[20..len]).unwrap();
    assert!(
        matches!(message, icmpv4::Message::DestinationUnreachable { code: 3, quote, .. } if quote.len() == 40)
    );
    let len = world
        .refuse(&packet(132, them, us, 1500), Refusal::Protocol)
        .unwrap();
    assert_eq!(len, 576);
    let message = icmpv4::Message::parse(&world.out[20..len]).unwrap();
    assert!(matches!(
        message,
        icmpv4::Message::DestinationUnreachable { code: 2, .. }
    ));
}

#[test]
fn refusal_of_ipv6_points_at_the_protocol() {
    let mut world = World::new();
    let (us, them) = (v6("2001:db8::1").into(), v6("2001:db8::2").into());
    let len = world
        .refuse(&packet(protocol::UDP, them, us, 60), Refusal::Port)
        .unwrap();
    let parse = |world: &World, len: usize| {
        let bytes = world.out[40..len].to_vec();
        let header = ipv6::Header::parse(&world.out, len).unwrap();
        (bytes, header)
    };
    let (bytes, header) = parse(&world, len);
    let message = icmpv6::Message::parse(&bytes, header.src, header.dst, 64).unwrap();
    assert!(matches!(
        message,
        icmpv6::Message::DestinationUnreachable { code: 4, .. }
    ));
    let len = world
        .refuse(&packet(132, them, us, 1500), Refusal::Protocol)
        .unwrap();
    assert_eq!(len, 1280);
    let (bytes, header) = parse(&world, len);
    let message = icmpv6::Message::parse(&bytes, header.src, header.dst, 64).unwrap();
    assert!(matches!(
        message,
        icmpv6::Message::ParameterProblem {
            code: 1,
            pointer: 6,
            ..
        }
    ));
    // Behind destination options the pointer is the offset of their first byte.
    let mut behind = packet(60, them, us, 60);
    behind[40..48].copy_from_slice(&[132, 0, 1, 4, 0, 0, 0, 0]);
    let len = world.refuse(&behind, Refusal::Protocol).unwrap();
    let (bytes, header) = parse(&world, len);
    let message = icmpv6::Message::parse(&bytes, header.src, header.dst, 64).unwrap();
    assert!(
        matches!(
            message,
            icmpv6::Message::ParameterProblem { pointer: 40, .. }
        ),
        "{message:?}"
    );
}

#[test]
fn refusal_is_not_given_where_it_is_forbidden() {
    let mut world = World::new();
    let (us, them): (IpAddr, IpAddr) = (v4("10.0.0.1").into(), v4("10.0.0.2").into());
    for (protocol, from, to) in [
        (protocol::ICMP, them, us),
        (protocol::UDP, them, v4("10.0.0.255").into()),
        (protocol::UDP, them, v4("224.0.0.1").into()),
        (protocol::UDP, v4("0.0.0.0").into(), us),
        (protocol::UDP, v4("10.0.0.255").into(), us),
    ] {
        assert_eq!(
            world.refuse(&packet(protocol, from, to, 40), Refusal::Port),
            None
        );
    }
    let mut fragment = ipv4::Header {
        total_len: 40,
        protocol: 17,
        fragment_offset: 1,
        ..ipv4::Header::default()
    };
    (fragment.src, fragment.dst) = (v4("10.0.0.2"), v4("10.0.0.1"));
    let mut bytes = [0; 40];
    fragment.emit(&mut bytes);
    assert_eq!(world.refuse(&bytes, Refusal::Port), None);
    assert_eq!(world.refuse(&[], Refusal::Port), None);
}

#[test]
fn refusals_stop_at_their_limit_and_come_back() {
    let mut world = World::new();
    let packet = packet(
        protocol::UDP,
        v4("10.0.0.2").into(),
        v4("10.0.0.1").into(),
        40,
    );
    let burst = |world: &mut World| {
        (0..500)
            .filter(|_| world.refuse(&packet, Refusal::Port).is_some())
            .count() as u32
    };
    let first = burst(&mut world);
    assert!(
        (ICMP_ERRORS_BURST_MAX - 3..=ICMP_ERRORS_BURST_MAX).contains(&first),
        "{first}"
    );
    assert_eq!(burst(&mut world), 0);
    // A rate of 1,000 per second is one per millisecond.
    world.now_ns += 10_000_000;
    assert_eq!(burst(&mut world), 10);
    world.now_ns += 10 * SECOND;
    assert!(burst(&mut world) >= ICMP_ERRORS_BURST_MAX - 3);
}

#[test]
fn pointer_follows_extension_headers_of_every_length() {
    let mut packet = vec![0; 100];
    // Two extension headers, of 16 and 24 bytes.
    (packet[41], packet[57]) = (1, 2);
    assert_eq!(super::next_header_at(&packet, 40), 6);
    assert_eq!(super::next_header_at(&packet, 56), 40);
    assert_eq!(super::next_header_at(&packet, 80), 56);
    // A packet that ends before its upper layer.
    assert_eq!(super::next_header_at(&packet[..57], 80), 40);
}
