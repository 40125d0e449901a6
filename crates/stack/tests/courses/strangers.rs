//! Strangers on the first link: hosts that flood, ping, forge and repeat, and sometimes answer.
//! They make their frames from observed ones.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use packetio::MacAddr;
use wire::ethernet::HEADER_LEN;
use wire::tcp::{Flags, Options, Timestamp};
use wire::{arp, icmpv4, icmpv6, protocol};

use crate::common::frames::{self, Seen, Tcp};
use crate::draw::Random;

pub const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
/// Most frames that the strangers remember.
const SEEN_MAX: usize = 12;

#[derive(Default)]
pub struct Strangers {
    /// Observed frames, each with the stack that it went to.
    seen: VecDeque<(usize, Vec<u8>)>,
}

fn address(number: u64, is_v6: bool) -> IpAddr {
    match is_v6 {
        false => Ipv4Addr::new(10, 0, 0, number as u8).into(),
        // The last two digits equal those of the IPv4 address.
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x60 + number as u16 % 60).into(),
    }
}

/// The address of a stack on the first link.
fn of_stack(number: usize, is_v6: bool) -> IpAddr {
    match is_v6 {
        false => Ipv4Addr::new(10, 0, 0, number as u8 + 1).into(),
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number as u16 + 1).into(),
    }
}

impl Strangers {
    pub fn see(&mut self, to: usize, frame: &[u8]) {
        if self.seen.len() == SEEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back((to, frame.to_vec()));
    }

    /// Random frames to a stack.
    pub fn frames(&mut self, random: &mut Random) -> Vec<(usize, Vec<u8>)> {
        let to = random.below(2) as usize;
        match random.below(12) {
            0 | 1 => self.flood(random, to),
            2 => vec![(to, ping(random, to))],
            3 => vec![(to, other_protocol(random, to))],
            4 | 5 => self.icmp_error(random).into_iter().collect(),
            6 => vec![(to, neighbour(random, to))],
            7 => self.seen.iter().take(4).cloned().collect(),
            8..=10 => self.forged(random).into_iter().collect(),
            _ => self.spoilt(random).into_iter().collect(),
        }
    }

    /// SYNs from addresses that may or may not answer.
    fn flood(&mut self, random: &mut Random, to: usize) -> Vec<(usize, Vec<u8>)> {
        let is_v6 = random.chance(20);
        let count = random.one_of(&[1, 4, 20]);
        let syn = |random: &mut Random| {
            let options = Options {
                mss: random.one_of(&[None, Some(1_460), Some(300)]),
                sack_permitted: random.chance(50),
                window_scale: random.one_of(&[None, Some(7)]),
                timestamp: random.chance(50).then_some(Timestamp { value: 9, echo: 0 }),
                ..Options::default()
            };
            Tcp {
                src: address(60 + random.below(12), is_v6),
                dst: of_stack(to, is_v6),
                src_port: 1_024 + random.below(40_000) as u16,
                dst_port: random.one_of(&[80, 80, 81, 82, 83]),
                seq: random.word() as u32,
                ack: 0,
                flags: Flags::SYN,
                window: random.one_of(&[0, 500, 60_000]),
                options,
                payload: vec![1; random.one_of(&[0, 0, 0, 30])],
            }
        };
        let frame = |tcp: Tcp| (to, tcp.frame(MAC, crate::mac(to, 0)));
        (0..count).map(|_| frame(syn(random))).collect()
    }

    /// An ICMP error that quotes an observed packet, to its sender.
    fn icmp_error(&mut self, random: &mut Random) -> Option<(usize, Vec<u8>)> {
        let (receiver, frame) = self.any(random)?;
        let to = 1 - receiver;
        let packet = &frame[HEADER_LEN..];
        let quote = &packet[..packet.len().min(random.one_of(&[28, 48, 120]))];
        let mac = crate::mac(to, 0);
        let code = random.one_of(&[0, 1, 2, 3, 4, 13]);
        let mtu = random.one_of(&[0, 500, 600, 1_200, 1_400, 9_000]);
        let frame = match packet.first()? >> 4 {
            4 => {
                let message = match random.below(6) {
                    0..4 => icmpv4::Message::DestinationUnreachable {
                        code,
                        next_hop_mtu: mtu,
                        quote,
                    },
                    4 => icmpv4::Message::TimeExceeded { code: 0, quote },
                    _ => icmpv4::Message::ParameterProblem {
                        code: 0,
                        pointer: 4,
                        quote,
                    },
                };
                let dst = Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(12..16)?).ok()?);
                frames::icmp4_frame(MAC, mac, address(60, false), dst.into(), &message)
            }
            6 => {
                let message = match random.below(5) {
                    0 | 1 => icmpv6::Message::PacketTooBig {
                        mtu: u32::from(mtu) + 700,
                        quote,
                    },
                    2 => icmpv6::Message::DestinationUnreachable { code, quote },
                    3 => icmpv6::Message::TimeExceeded { code: 0, quote },
                    _ => icmpv6::Message::ParameterProblem {
                        code: 1,
                        pointer: 6,
                        quote,
                    },
                };
                let dst = Ipv6Addr::from(<[u8; 16]>::try_from(packet.get(8..24)?).ok()?);
                frames::icmp6_frame(MAC, mac, address(60, true), dst.into(), &message)
            }
            _ => return None,
        };
        Some((to, frame))
    }

    /// A segment like an observed one, with other numbers or flags.
    fn forged(&mut self, random: &mut Random) -> Option<(usize, Vec<u8>)> {
        let (to, frame) = self.any(random)?;
        let link = frames::link_of(&frame)?;
        let is_whole = frame.get(12..14)? == [8, 0] || frame.get(12..14)? == [0x86, 0xdd];
        if !is_whole {
            return None;
        }
        let Seen::Tcp(mut segment) = frames::parse(&frame) else {
            return None;
        };
        let far = random.one_of(&[0, 0, 1, 1_000, 1 << 20, 1 << 31, u32::MAX, u32::MAX - 999]);
        segment.seq = segment.seq.wrapping_add(far);
        if random.chance(30) {
            segment.ack = segment.ack.wrapping_add(far);
        }
        segment.flags = random.one_of(&[
            segment.flags,
            segment.flags,
            Flags::RST,
            Flags::RST | Flags::ACK,
            Flags::SYN,
            Flags::SYN | Flags::ACK,
            Flags::FIN | Flags::ACK,
            Flags::ACK,
            Flags::ACK | Flags::URG,
            Flags::default(),
        ]);
        segment.window = random.one_of(&[segment.window, segment.window, 0, 3]);
        if random.chance(20)
            && let Some(stamp) = &mut segment.options.timestamp
        {
            stamp.value = stamp.value.wrapping_sub(1 << 20);
        }
        let keep = random.below(1 + segment.payload.len() as u64) as usize;
        segment.payload.truncate(keep);
        Some((to, segment.frame(link.1, link.0)))
    }

    /// A frame that is short, tagged, fragmented, misdirected or has a bad header.
    fn spoilt(&mut self, random: &mut Random) -> Option<(usize, Vec<u8>)> {
        let (to, mut frame) = self.any(random)?;
        match random.below(7) {
            0 => frame.truncate(random.below(frame.len() as u64) as usize),
            1 => frame = frames::tagged(&frame, random.one_of(&[0, 5])),
            2 => {
                *frame.get_mut(HEADER_LEN + 6)? |= 0x20;
                mend(&mut frame);
            }
            3 => frame[5] ^= 0x40,
            4 => *frame.get_mut(HEADER_LEN)? ^= 0x10,
            5 => {
                *frame.get_mut(HEADER_LEN + 19)? ^= 0x80;
                mend(&mut frame);
            }
            _ => {
                let at = random.below(frame.len() as u64) as usize;
                frame[at] ^= 1 << random.below(8);
            }
        }
        Some((to, frame))
    }

    fn any(&self, random: &mut Random) -> Option<(usize, Vec<u8>)> {
        let at = random.below(self.seen.len() as u64) as usize;
        self.seen.get(at).cloned()
    }

    /// The answer to a frame that a stack sent to the strangers.
    pub fn answer(&mut self, random: &mut Random, from: usize, frame: &[u8]) -> Option<Vec<u8>> {
        let mac = crate::mac(from, 0);
        match frames::parse(frame) {
            Seen::Arp(asked) if asked.op == arp::Operation::Request => {
                let is_ours = (60..66).contains(&asked.tpa.octets()[3]);
                is_ours.then(|| frames::arp_reply(MAC, &asked))
            }
            Seen::Solicitation { src, target } => {
                let is_ours = (0x60..0x66).contains(&target.segments()[7]);
                is_ours.then(|| frames::advertisement(MAC, mac, target, src))
            }
            Seen::Tcp(segment) => {
                let answer = answer_of(random, &segment)?;
                Some(answer.frame(MAC, mac))
            }
            _ => None,
        }
    }
}

/// The answer of a peer that keeps no state.
fn answer_of(random: &mut Random, segment: &Tcp) -> Option<Tcp> {
    let is_syn = segment.flags.intersects(Flags::SYN);
    let is_ack = segment.flags.intersects(Flags::ACK);
    let flags = match (is_syn, is_ack, random.below(10)) {
        (true, true, 0..5) => Flags::ACK,
        (true, true, 5..7) => Flags::RST,
        (true, false, 0..6) => Flags::SYN | Flags::ACK,
        (true, false, 6) => Flags::RST | Flags::ACK,
        (false, true, 0..5) => Flags::ACK,
        (false, true, 5) => Flags::FIN | Flags::ACK,
        _ => return None,
    };
    let taken = segment.payload.len() as u32
        + u32::from(is_syn)
        + u32::from(segment.flags.intersects(Flags::FIN));
    let is_first = flags == Flags::SYN | Flags::ACK;
    Some(Tcp {
        src: segment.dst,
        dst: segment.src,
        src_port: segment.dst_port,
        dst_port: segment.src_port,
        seq: if is_first { 77 } else { segment.ack },
        ack: segment.seq.wrapping_add(taken),
        flags,
        window: 20_000,
        options: Options {
            mss: is_first.then_some(1_000),
            timestamp: segment.options.timestamp.map(|stamp| Timestamp {
                value: stamp.echo.wrapping_add(1),
                echo: stamp.value,
            }),
            ..Options::default()
        },
        payload: vec![7; if flags == Flags::ACK && is_syn { 20 } else { 0 }],
    })
}

fn mend(frame: &mut [u8]) {
    if frame.len() > HEADER_LEN + 20 && frame[HEADER_LEN] == 0x45 {
        frames::mend_ipv4(frame);
    }
}

fn ping(random: &mut Random, to: usize) -> Vec<u8> {
    let data = vec![5; random.one_of(&[0, 56, 1_400])];
    let (ident, seq) = (1, 2);
    let data = data.as_slice();
    let mac = crate::mac(to, 0);
    let is_v6 = random.chance(50);
    let (src, dst) = (address(60 + random.below(8), is_v6), of_stack(to, is_v6));
    match is_v6 {
        false => {
            let message = icmpv4::Message::EchoRequest { ident, seq, data };
            frames::icmp4_frame(MAC, mac, src, dst, &message)
        }
        true => {
            let message = icmpv6::Message::EchoRequest { ident, seq, data };
            frames::icmp6_frame(MAC, mac, src, dst, &message)
        }
    }
}

fn other_protocol(random: &mut Random, to: usize) -> Vec<u8> {
    let is_v6 = random.chance(40);
    let upper = random.one_of(&[protocol::UDP, protocol::UDP, 132, 0, 44, 60]);
    let bytes = [0, 5, 0, 80, 0, 8, 0, 0];
    let (src, dst) = (address(60 + random.below(8), is_v6), of_stack(to, is_v6));
    frames::ip_frame(MAC, crate::mac(to, 0), src, dst, upper, &bytes)
}

/// Unsolicited ARP and neighbour discovery.
fn neighbour(random: &mut Random, to: usize) -> Vec<u8> {
    let mac = crate::mac(to, 0);
    let number = 60 + random.below(8);
    match random.below(6) {
        0 => frames::arp_request(MAC, address(number, false), of_stack(to, false)),
        1 => frames::solicitation(MAC, address(number, true), of_stack(to, true)),
        2 => frames::solicitation(MAC, Ipv6Addr::UNSPECIFIED.into(), of_stack(to, true)),
        3 => {
            // A stranger claims our address.
            frames::arp_request(MAC, of_stack(to, false), of_stack(to, false))
        }
        4 => {
            let target = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x60 + number as u16 % 8);
            let IpAddr::V6(own) = of_stack(to, true) else {
                return Vec::new();
            };
            frames::advertisement(MAC, mac, target, own)
        }
        _ => {
            let asked = arp::Repr {
                op: arp::Operation::Request,
                sha: mac,
                spa: Ipv4Addr::new(10, 0, 0, to as u8 + 1),
                tha: MAC,
                tpa: Ipv4Addr::new(10, 0, 0, number as u8),
            };
            frames::arp_reply(MacAddr([2, 0, 0, 0, 9, number as u8]), &asked)
        }
    }
}
