//! Frames as the peer sends and receives them: values to bytes and back. Parsing verifies every
//! checksum.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packetio::MacAddr;
use wire::ethernet::{self, EtherType};
use wire::icmpv6::Message as Icmp6;
use wire::tcp::{Flags, Options};
use wire::{Addr, SeqNumber, arp, checksum, icmpv4, icmpv6, ipv4, ipv6, protocol};

/// A TCP segment with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub src_port: u16,
    pub dst_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: Flags,
    pub window: u16,
    pub options: Options,
    pub payload: Vec<u8>,
}

impl Tcp {
    pub fn data(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    pub fn at(mut self, seq: u32) -> Self {
        self.seq = seq;
        self
    }

    pub fn acking(mut self, ack: u32) -> Self {
        self.ack = ack;
        self
    }

    pub fn with(mut self, flags: Flags) -> Self {
        self.flags = flags;
        self
    }

    pub fn window(mut self, window: u16) -> Self {
        self.window = window;
        self
    }

    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Header and payload of a segment, with a correct checksum.
    pub fn segment_bytes(&self) -> Vec<u8> {
        let header = wire::tcp::Header {
            src_port: self.src_port,
            dst_port: self.dst_port,
            seq: SeqNumber(self.seq),
            ack: SeqNumber(self.ack),
            flags: self.flags,
            window: self.window,
            checksum: 0,
            urgent: 0,
            options: self.options,
        };
        let mut bytes = vec![0; header.header_len()];
        header.emit(&mut bytes);
        bytes.extend_from_slice(&self.payload);
        let (src, dst) = (Addr::from(self.src), Addr::from(self.dst));
        let mut sum = checksum::pseudo_header(src, dst, protocol::TCP, bytes.len() as u32);
        sum.add_bytes(&bytes);
        let at = wire::tcp::CHECKSUM_OFFSET;
        bytes[at..at + 2].copy_from_slice(&sum.finish().to_be_bytes());
        bytes
    }

    pub fn frame(&self, from: MacAddr, to: MacAddr) -> Vec<u8> {
        let payload = self.segment_bytes();
        ip_frame(from, to, self.src, self.dst, protocol::TCP, &payload)
    }

    fn parse(src: IpAddr, dst: IpAddr, bytes: &[u8]) -> Self {
        let (header, at) = wire::tcp::Header::parse(bytes).expect("a whole TCP header");
        let (from, to) = (Addr::from(src), Addr::from(dst));
        let mut sum = checksum::pseudo_header(from, to, protocol::TCP, bytes.len() as u32);
        sum.add_bytes(bytes);
        assert!(sum.is_valid(), "the stack sent a wrong TCP checksum");
        Self {
            src,
            dst,
            src_port: header.src_port,
            dst_port: header.dst_port,
            seq: header.seq.0,
            ack: header.ack.0,
            flags: header.flags,
            window: header.window,
            options: header.options,
            payload: bytes[at..].to_vec(),
        }
    }
}

/// A received frame, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Tcp(Tcp),
    Arp(arp::Repr),
    /// An ICMP message of either family, from its type on.
    Icmp {
        src: IpAddr,
        dst: IpAddr,
        bytes: Vec<u8>,
    },
    /// A neighbour solicitation.
    Solicitation {
        src: Ipv6Addr,
        target: Ipv6Addr,
    },
    /// A neighbour advertisement.
    Advertisement {
        target: Ipv6Addr,
        mac: Option<MacAddr>,
    },
}

/// Parses a frame from the stack; any defect fails the test.
pub fn parse(frame: &[u8]) -> Seen {
    let (ethernet, at) = ethernet::Header::parse(frame).expect("an Ethernet header");
    let packet = &frame[at..];
    match ethernet.ethertype {
        EtherType::ARP => Seen::Arp(arp::Repr::parse(packet).expect("an ARP message")),
        EtherType::IPV4 => {
            let header = ipv4::Header::parse(packet, packet.len()).expect("an IPv4 header");
            assert_eq!(usize::from(header.total_len), packet.len());
            let body = &packet[usize::from(header.header_len)..];
            let (src, dst) = (header.src.into(), header.dst.into());
            match header.protocol {
                protocol::TCP => Seen::Tcp(Tcp::parse(src, dst, body)),
                protocol::ICMP => icmp_v4(src, dst, body),
                other => panic!("the stack sent IP protocol {other}"),
            }
        }
        EtherType::IPV6 => {
            let header = ipv6::Header::parse(packet, packet.len()).expect("an IPv6 header");
            assert_eq!(
                usize::from(header.payload_len) + ipv6::HEADER_LEN,
                packet.len()
            );
            let body = &packet[ipv6::HEADER_LEN..];
            match header.next_header {
                protocol::TCP => Seen::Tcp(Tcp::parse(header.src.into(), header.dst.into(), body)),
                protocol::ICMPV6 => {
                    assert!(header.hop_limit >= 64, "it has far to go");
                    icmp_v6(&header, body)
                }
                other => panic!("the stack sent IP protocol {other}"),
            }
        }
        other => panic!("the stack sent Ethernet type {other:#x}"),
    }
}

/// Destination and source MAC address of a frame.
pub fn link_of(frame: &[u8]) -> Option<(MacAddr, MacAddr)> {
    let (ethernet, _) = ethernet::Header::parse(frame).ok()?;
    Some((MacAddr(ethernet.dst.0), MacAddr(ethernet.src.0)))
}

/// Traffic class and hop limit of an IP packet.
pub fn class_and_hops(frame: &[u8]) -> Option<(u8, u8)> {
    let (ethernet, at) = ethernet::Header::parse(frame).ok()?;
    let packet = &frame[at..];
    match ethernet.ethertype {
        EtherType::IPV4 => {
            let header = ipv4::Header::parse(packet, packet.len()).ok()?;
            Some((header.dscp_ecn, header.ttl))
        }
        EtherType::IPV6 => {
            let header = ipv6::Header::parse(packet, packet.len()).ok()?;
            Some((header.traffic_class, header.hop_limit))
        }
        _ => None,
    }
}

/// IP identification of a TCP packet over IPv4 without DF.
pub fn fragmentable_ident(frame: &[u8]) -> Option<u16> {
    let (ethernet, at) = ethernet::Header::parse(frame).ok()?;
    let header = ipv4::Header::parse(&frame[at..], frame.len() - at).ok()?;
    let is_fragmentable = ethernet.ethertype == EtherType::IPV4
        && header.protocol == protocol::TCP
        && !header.dont_fragment;
    is_fragmentable.then_some(header.ident)
}

fn icmp_v4(src: IpAddr, dst: IpAddr, body: &[u8]) -> Seen {
    icmpv4::Message::parse(body).expect("an ICMP message");
    let bytes = body.to_vec();
    Seen::Icmp { src, dst, bytes }
}

fn icmp_v6(header: &ipv6::Header, body: &[u8]) -> Seen {
    let message = Icmp6::parse(body, header.src, header.dst, header.hop_limit);
    match message.expect("an ICMPv6 message") {
        Icmp6::NeighborSolicitation { target, .. } => Seen::Solicitation {
            src: header.src,
            target,
        },
        Icmp6::NeighborAdvertisement {
            target,
            target_lladdr: mac,
            ..
        } => Seen::Advertisement { target, mac },
        _ => Seen::Icmp {
            src: header.src.into(),
            dst: header.dst.into(),
            bytes: body.to_vec(),
        },
    }
}

/// A frame with an IP packet of either family.
pub fn ip_frame(
    from: MacAddr,
    to: MacAddr,
    src: IpAddr,
    dst: IpAddr,
    upper: u8,
    payload: &[u8],
) -> Vec<u8> {
    let (ethertype, packet) = match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            (EtherType::IPV4, ipv4_packet(src, dst, upper, payload))
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            (EtherType::IPV6, ipv6_packet(src, dst, upper, 64, payload))
        }
        _ => panic!("two families"),
    };
    ethernet_frame(from, to, ethertype, &packet)
}

pub fn ethernet_frame(from: MacAddr, to: MacAddr, ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let header = ethernet::Header {
        dst: to,
        src: from,
        vlan: None,
        ethertype,
    };
    let mut frame = vec![0; ethernet::HEADER_LEN];
    header.emit(&mut frame);
    frame.extend_from_slice(packet);
    frame
}

pub fn ipv4_packet(src: Ipv4Addr, dst: Ipv4Addr, upper: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv4::Header {
        total_len: (ipv4::HEADER_LEN + payload.len()) as u16,
        ttl: 64,
        protocol: upper,
        src,
        dst,
        ..ipv4::Header::default()
    };
    let mut packet = vec![0; ipv4::HEADER_LEN];
    header.emit(&mut packet);
    packet.extend_from_slice(payload);
    packet
}

pub fn ipv6_packet(
    src: Ipv6Addr,
    dst: Ipv6Addr,
    next_header: u8,
    hop_limit: u8,
    payload: &[u8],
) -> Vec<u8> {
    let header = ipv6::Header {
        payload_len: payload.len() as u16,
        next_header,
        hop_limit,
        src,
        dst,
        ..ipv6::Header::default()
    };
    let mut packet = vec![0; ipv6::HEADER_LEN];
    header.emit(&mut packet);
    packet.extend_from_slice(payload);
    packet
}

/// Corrects the IPv4 header checksum of an untagged frame after a test has changed the header.
pub fn mend_ipv4(frame: &mut [u8]) {
    let start = ethernet::HEADER_LEN;
    let len = usize::from(frame[start] & 15) * 4;
    let header = &mut frame[start..start + len];
    header[ipv4::CHECKSUM_OFFSET..ipv4::CHECKSUM_OFFSET + 2].fill(0);
    let sum = checksum::of(header).finish();
    header[ipv4::CHECKSUM_OFFSET..ipv4::CHECKSUM_OFFSET + 2].copy_from_slice(&sum.to_be_bytes());
}

/// The frame with an 802.1Q tag added.
pub fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    let mut tagged = frame[..12].to_vec();
    tagged.extend_from_slice(&EtherType::VLAN.to_be_bytes());
    tagged.extend_from_slice(&tci.to_be_bytes());
    tagged.extend_from_slice(&frame[12..]);
    tagged
}

pub fn icmp4_frame(
    from: MacAddr,
    to: MacAddr,
    src: IpAddr,
    dst: IpAddr,
    message: &icmpv4::Message<'_>,
) -> Vec<u8> {
    let mut bytes = vec![0; message.emit_len()];
    message.emit(&mut bytes);
    ip_frame(from, to, src, dst, protocol::ICMP, &bytes)
}

pub fn icmp6_frame(
    from: MacAddr,
    to: MacAddr,
    src: IpAddr,
    dst: IpAddr,
    message: &Icmp6<'_>,
) -> Vec<u8> {
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (src, dst) else {
        panic!("IPv6 addresses");
    };
    let mut bytes = vec![0; message.emit_len()];
    message.emit(&mut bytes, src, dst);
    // Neighbour discovery requires a hop limit of 255; other messages accept it.
    let packet = ipv6_packet(src, dst, protocol::ICMPV6, 255, &bytes);
    ethernet_frame(from, to, EtherType::IPV6, &packet)
}

pub fn arp_frame(from: MacAddr, to: MacAddr, message: &arp::Repr) -> Vec<u8> {
    let mut bytes = [0; arp::PACKET_LEN];
    message.emit(&mut bytes);
    ethernet_frame(from, to, EtherType::ARP, &bytes)
}

pub fn arp_request(mac: MacAddr, own: IpAddr, wanted: IpAddr) -> Vec<u8> {
    let (IpAddr::V4(spa), IpAddr::V4(tpa)) = (own, wanted) else {
        panic!("IPv4 addresses");
    };
    let message = arp::Repr {
        op: arp::Operation::Request,
        sha: mac,
        spa,
        tha: MacAddr::UNSPECIFIED,
        tpa,
    };
    arp_frame(mac, MacAddr::BROADCAST, &message)
}

/// The reply to the stack's ARP request.
pub fn arp_reply(mac: MacAddr, asked: &arp::Repr) -> Vec<u8> {
    let message = arp::Repr {
        op: arp::Operation::Reply,
        sha: mac,
        spa: asked.tpa,
        tha: asked.sha,
        tpa: asked.spa,
    };
    arp_frame(mac, asked.sha, &message)
}

pub fn solicitation(mac: MacAddr, own: IpAddr, wanted: IpAddr) -> Vec<u8> {
    let IpAddr::V6(target) = wanted else {
        panic!("an IPv6 address");
    };
    let group = icmpv6::solicited_node(target);
    let message = Icmp6::NeighborSolicitation {
        target,
        source_lladdr: Some(mac),
    };
    icmp6_frame(
        mac,
        MacAddr::multicast_v6(group),
        own,
        group.into(),
        &message,
    )
}

/// The advertisement that answers the stack's solicitation.
pub fn advertisement(mac: MacAddr, to_mac: MacAddr, target: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
    let message = Icmp6::NeighborAdvertisement {
        flags: icmpv6::NeighborFlags {
            router: false,
            solicited: true,
            overrides: true,
        },
        target,
        target_lladdr: Some(mac),
    };
    icmp6_frame(mac, to_mac, target.into(), to.into(), &message)
}
