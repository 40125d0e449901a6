//! The peers' part: peers that keep the rules, and peers that do not.

use wire::tcp::{Flags, Options, Timestamp};
use wire::{icmpv4, icmpv6, protocol};

use super::{Offset, Play, SegmentPick, Step, bytes_at, pair};
use crate::common::{PEER_V4, PEER_V6, STACK_MAC, STACK_V4, STACK_V6, Tcp, frames};

impl Play {
    pub(super) fn wire(&mut self, step: &Step) {
        match step {
            Step::Handshake { client, options } => self.handshake(*client, *options),
            Step::Send { client, len } => {
                let end = self.end(*client);
                let payload = bytes_at(end.client.nxt, *len % 1_440);
                let mut segment = end.client.data(&payload);
                end.stamp_on(&mut segment);
                self.send(&segment);
            }
            Step::Acknowledge { client, window } => {
                let end = self.end(*client);
                end.client.window = *window;
                let mut segment = end.client.ack();
                end.stamp_on(&mut segment);
                self.send(&segment);
            }
            Step::Finish { client } => {
                let end = self.end(*client);
                let mut segment = end.client.fin();
                end.stamp_on(&mut segment);
                self.send(&segment);
            }
            Step::Reset { client } => {
                let segment = self.end(*client).client.rst();
                self.send(&segment);
            }
            Step::Answer { client, options } => {
                let end = self.end(*client);
                let mut segment = end.client.syn_ack();
                end.offer(&mut segment, *options);
                self.send(&segment);
            }
            Step::Segment { client, segment } => self.odd_segment(*client, segment),
            Step::Ping { v6, len } => self.ping(*v6, usize::from(*len)),
            Step::Ask { v6, target } => self.ask(*v6, *target),
            Step::Upper { v6, upper, bytes } => {
                let (from, to) = pair(*v6);
                let mac = self.world.peer.mac;
                let bytes = &bytes[..bytes.len().min(1_400)];
                self.transmit(frames::ip_frame(mac, STACK_MAC, from, to, *upper, bytes));
            }
            Step::Frame { ethertype, bytes } => {
                let mac = self.world.peer.mac;
                let ethertype =
                    [0x0800, 0x86dd, 0x0806, 0x8100, 0x1234][usize::from(*ethertype % 5)];
                let bytes = &bytes[..bytes.len().min(1_500)];
                self.transmit(frames::ethernet_frame(mac, STACK_MAC, ethertype, bytes));
            }
            Step::Again { at, flip } => self.again(*at, *flip),
            Step::IcmpError {
                client,
                kind,
                code,
                mtu,
                seq,
            } => {
                self.icmp_error(*client, *kind, *code, *mtu, *seq);
            }
            _ => {}
        }
    }

    fn handshake(&mut self, pick: u8, options: bool) {
        let end = self.end(pick);
        let mut syn = end.client.syn();
        end.offer(&mut syn, options);
        end.iss = None;
        self.send(&syn);
        self.rest();
        let end = self.end(pick);
        if end.iss.is_some() {
            let mut ack = end.client.ack();
            end.stamp_on(&mut ack);
            self.send(&ack);
        }
    }

    fn odd_segment(&mut self, pick: u8, odd: &SegmentPick) {
        let end = self.end(pick);
        let seq = odd.seq.from(end.client.nxt);
        let mut segment = end
            .client
            .segment(Flags(odd.flags.into()))
            .at(seq)
            .acking(odd.ack.from(end.client.rcv))
            .window(odd.window);
        segment.options.mss = odd.mss;
        segment.options.window_scale = odd.scale;
        if let Some((value, echo)) = odd.stamp {
            let value = value.from(end.value);
            segment.options.timestamp = Some(Timestamp { value, echo });
        } else {
            end.stamp_on(&mut segment);
        }
        // A SYN takes the sequence number before the segment's text.
        let text = seq.wrapping_add(u32::from(segment.flags.contains(Flags::SYN)));
        segment.payload = bytes_at(text, odd.len % 1_400);
        if odd.to_v6 && segment.dst == STACK_V4 {
            (segment.src, segment.dst) = (PEER_V6, STACK_V6);
        }
        let mut frame = self.world.peer.frame(&segment);
        if odd.corrupt
            && let Some(last) = frame.last_mut()
        {
            *last ^= 0x40;
        }
        self.transmit(frame);
    }

    /// Repeats a frame that was on the wire before, perhaps with a byte changed.
    fn again(&mut self, at: u8, flip: Option<(u16, u8)>) {
        if self.sent.is_empty() {
            return;
        }
        let mut frame = self.sent[usize::from(at) % self.sent.len()].clone();
        if let Some((place, bits)) = flip {
            let place = usize::from(place) % frame.len();
            // A checksum detects every change of a single byte that it covers.
            frame[place] ^= bits;
        }
        self.transmit(frame);
    }

    fn ping(&mut self, v6: bool, len: usize) {
        let mac = self.world.peer.mac;
        let (from, to) = pair(v6);
        let data = vec![1; len];
        let frame = if v6 {
            let message = icmpv6::Message::EchoRequest {
                ident: 1,
                seq: 1,
                data: &data,
            };
            frames::icmp6_frame(mac, STACK_MAC, from, to, &message)
        } else {
            let message = icmpv4::Message::EchoRequest {
                ident: 1,
                seq: 1,
                data: &data,
            };
            frames::icmp4_frame(mac, STACK_MAC, from, to, &message)
        };
        self.transmit(frame);
    }

    fn ask(&mut self, v6: bool, target: u8) {
        let mac = self.world.peer.mac;
        let frame = if v6 {
            frames::solicitation(mac, PEER_V6, format!("fd00::{target:x}").parse().unwrap())
        } else {
            frames::arp_request(mac, PEER_V4, format!("10.0.0.{target}").parse().unwrap())
        };
        self.transmit(frame);
    }

    /// Sends an ICMP error about a segment whose sequence number is near those that the stack sent.
    fn icmp_error(&mut self, pick: u8, kind: u8, code: u8, mtu: u16, seq: Offset) {
        let mac = self.world.peer.mac;
        let client = &self.end(pick).client;
        let quoted = Tcp {
            src: client.stack.ip(),
            dst: client.peer.ip(),
            src_port: client.stack.port(),
            dst_port: client.peer.port(),
            seq: seq.from(client.rcv),
            ack: client.nxt,
            flags: Flags::ACK,
            window: 100,
            options: Options::default(),
            payload: Vec::new(),
        };
        let segment = quoted.segment_bytes();
        let (src, dst) = (quoted.src, quoted.dst);
        let body = match (src, dst) {
            (std::net::IpAddr::V4(src), std::net::IpAddr::V4(dst)) => {
                frames::ipv4_packet(src, dst, protocol::TCP, &segment)
            }
            (std::net::IpAddr::V6(src), std::net::IpAddr::V6(dst)) => {
                frames::ipv6_packet(src, dst, protocol::TCP, 64, &segment)
            }
            _ => return,
        };
        let quote = &body[..];
        let frame = if src.is_ipv4() {
            let message = match kind % 3 {
                0 => icmpv4::Message::DestinationUnreachable {
                    code: code % 17,
                    next_hop_mtu: mtu,
                    quote,
                },
                1 => icmpv4::Message::TimeExceeded { code, quote },
                _ => icmpv4::Message::ParameterProblem {
                    code,
                    pointer: 1,
                    quote,
                },
            };
            frames::icmp4_frame(mac, STACK_MAC, dst, src, &message)
        } else {
            let message = match kind % 3 {
                0 => icmpv6::Message::DestinationUnreachable {
                    code: code % 9,
                    quote,
                },
                1 => icmpv6::Message::PacketTooBig {
                    mtu: u32::from(mtu) << (code % 17),
                    quote,
                },
                _ => icmpv6::Message::TimeExceeded { code, quote },
            };
            frames::icmp6_frame(mac, STACK_MAC, dst, src, &message)
        };
        self.transmit(frame);
    }
}
