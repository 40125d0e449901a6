//! What `stack_input` plays: the steps as the fuzzer chooses them, and the world that they are played in.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use arbitrary::Arbitrary;
use ring::socket_block::{Requests, SocketId};
use stack::context::SocketOption;
use wire::tcp::{Flags, Options, Timestamp};
use wire::{icmpv4, icmpv6, protocol};

use crate::common::{
    Client, PEER_V4, PEER_V6, PORT, SECOND, STACK_MAC, STACK_V4, STACK_V6, Seen, Tcp, World, frames,
};

const CLIENTS: usize = 6;
const STEPS_MAX: usize = 96;
/// Frames on the wire before the stack gets its turn.
const UNDER_WAY_MAX: usize = 24;

#[derive(Arbitrary, Debug)]
pub struct Input {
    pub world: WorldPick,
    pub steps: Vec<Step>,
}

/// How near the limits are.
#[derive(Arbitrary, Debug)]
pub struct WorldPick {
    few_sockets: bool,
    few_half_opens: bool,
    few_chunks: bool,
    few_slots: bool,
    small_buffers: bool,
    no_timestamps: bool,
    partial_checksums: bool,
    strangers: bool,
    seed: u8,
}

#[derive(Arbitrary, Debug)]
pub enum Step {
    // What a peer does that keeps the rules.
    Handshake {
        client: u8,
        options: bool,
    },
    Send {
        client: u8,
        len: u16,
    },
    Acknowledge {
        client: u8,
        window: u16,
    },
    Finish {
        client: u8,
    },
    Reset {
        client: u8,
    },
    Answer {
        client: u8,
        options: bool,
    },
    // What one does that does not.
    Segment {
        client: u8,
        segment: SegmentPick,
    },
    IcmpError {
        client: u8,
        kind: u8,
        code: u8,
        mtu: u16,
        seq: Offset,
    },
    Ping {
        v6: bool,
        len: u8,
    },
    Ask {
        v6: bool,
        target: u8,
    },
    Upper {
        v6: bool,
        upper: u8,
        bytes: Vec<u8>,
    },
    Frame {
        ethertype: u8,
        bytes: Vec<u8>,
    },
    Again {
        at: u8,
        flip: Option<(u16, u8)>,
    },
    // The application.
    Listen {
        port: u8,
    },
    Connect {
        v6: bool,
        host: u8,
        from: u8,
    },
    Accept {
        listener: u8,
    },
    Write {
        socket: u8,
        len: u16,
    },
    Read {
        socket: u8,
        len: u16,
    },
    Shutdown {
        socket: u8,
    },
    Close {
        socket: u8,
    },
    Abort {
        socket: u8,
    },
    Option {
        socket: u8,
        option: u8,
    },
    StaleJob {
        index: u8,
        generation: u8,
    },
    TakeEvents,
    // The world.
    Wait {
        ms: u16,
    },
    WaitLong {
        seconds: u8,
    },
    Mute {
        on: bool,
    },
    Deaf {
        on: bool,
    },
    Hold {
        on: bool,
    },
}

/// A number near the right one, or anywhere.
#[derive(Arbitrary, Debug, Clone, Copy)]
pub enum Offset {
    Right,
    Near(i8),
    Behind(u16),
    Ahead(u16),
    Anywhere(u32),
}

impl Offset {
    fn from(self, right: u32) -> u32 {
        match self {
            Self::Right => right,
            Self::Near(by) => right.wrapping_add_signed(by.into()),
            Self::Behind(by) => right.wrapping_sub(by.into()),
            Self::Ahead(by) => right.wrapping_add(by.into()),
            Self::Anywhere(number) => number,
        }
    }
}

#[derive(Arbitrary, Debug)]
pub struct SegmentPick {
    flags: u8,
    seq: Offset,
    ack: Offset,
    window: u16,
    len: u16,
    mss: Option<u16>,
    scale: Option<u8>,
    stamp: Option<(Offset, u32)>,
    to_v6: bool,
    corrupt: bool,
}

/// A peer's end of a connection, as far as it can know.
struct End {
    client: Client,
    /// The stack's initial sequence number, once seen.
    iss: Option<u32>,
    /// The last timestamp value of the stack's.
    stamp: Option<u32>,
    /// Our clock.
    value: u32,
}

/// See the module's documentation.
pub struct Play {
    world: World,
    ends: Vec<End>,
    /// Bytes that the application wrote and the last byte that it read, by socket.
    written: BTreeMap<SocketId2, u64>,
    last_read: BTreeMap<SocketId2, u8>,
    edges: BTreeMap<SocketId2, (u32, u32)>,
    sent: Vec<Vec<u8>>,
    held: bool,
    under_way: usize,
}

type SocketId2 = (u32, u32);

fn key(id: SocketId) -> SocketId2 {
    (id.index, id.generation)
}

impl Play {
    pub fn new(pick: &WorldPick) -> Self {
        let world = World::with(|s| {
            let limits = &mut s.config.limits;
            s.wire.slots = if pick.few_slots { 2 } else { 64 };
            if pick.few_sockets {
                (limits.sockets_max, limits.time_wait_max) = (6, 1);
            }
            if pick.few_half_opens {
                (limits.half_open_max, limits.control_queue_max) = (1, 16);
            }
            if pick.few_chunks {
                (limits.small_chunks, limits.large_chunks) = (16, 16);
            }
            if pick.small_buffers {
                (limits.recv_buffer_bytes_max, limits.send_buffer_bytes_max) = (3_000, 3_000);
            }
            s.config.tcp.timestamps = !pick.no_timestamps;
            if pick.partial_checksums {
                s.policy = packetio::ChecksumPolicy::AcceptPartial;
            }
            s.acquainted = !pick.strangers && !pick.few_slots;
            s.config.seed = Some([u64::from(pick.seed), 2, 3, 4]);
            s.config.gateways.push(PEER_V4);
        });
        let mut play = Self {
            world,
            ends: Vec::new(),
            written: BTreeMap::new(),
            last_read: BTreeMap::new(),
            edges: BTreeMap::new(),
            sent: Vec::new(),
            held: false,
            under_way: 0,
        };
        for at in 0..CLIENTS {
            let v6 = at == CLIENTS - 1;
            let (from, to) = if v6 {
                (PEER_V6, STACK_V6)
            } else {
                (PEER_V4, STACK_V4)
            };
            let mut client = play.world.client_from(from, SocketAddr::new(to, PORT));
            if at % 2 == 1 {
                // Numbers that wrap soon.
                client.nxt = u32::MAX - 500;
            }
            play.ends.push(End {
                client,
                iss: None,
                stamp: None,
                value: 1_000,
            });
        }
        play.world.listen_at(SocketAddr::new(STACK_V4, PORT), 4);
        play.world.listen_at(SocketAddr::new(STACK_V6, PORT), 2);
        play.rest();
        play
    }

    pub fn run(mut self, steps: &[Step]) {
        for step in steps.iter().take(STEPS_MAX) {
            self.step(step);
            if !self.held || self.under_way >= UNDER_WAY_MAX {
                self.rest();
            }
        }
        self.rest();
    }

    /// The stack does what there is to do, and the peer looks at what came.
    fn rest(&mut self) {
        self.world.settle();
        self.under_way = 0;
        while let Some(seen) = self.world.peer.next() {
            if let Seen::Tcp(segment) = seen {
                self.look_at(&segment);
            }
        }
    }

    fn look_at(&mut self, segment: &Tcp) {
        let known = self.ends.iter_mut().find(|end| {
            let client = &end.client;
            (client.peer.port(), client.stack.port()) == (segment.dst_port, segment.src_port)
                && client.peer.ip() == segment.dst
        });
        let end = match known {
            Some(end) => end,
            None if segment.flags == Flags::SYN => {
                // The stack connects: the newest such connection takes the last place.
                let client = Client::answering(segment);
                self.ends.truncate(CLIENTS);
                self.ends.push(End {
                    client,
                    iss: Some(segment.seq),
                    stamp: None,
                    value: 1_000,
                });
                return;
            }
            None => return,
        };
        if let Some(stamp) = segment.options.timestamp {
            end.stamp = Some(stamp.value);
        }
        if segment.flags.contains(Flags::RST) {
            return;
        }
        if segment.flags.contains(Flags::SYN) {
            end.iss = Some(segment.seq);
            end.client.rcv = segment.seq.wrapping_add(1);
            return;
        }
        if let Some(iss) = end.iss {
            for (at, byte) in (0u32..).zip(&segment.payload) {
                let position = segment
                    .seq
                    .wrapping_add(at)
                    .wrapping_sub(iss)
                    .wrapping_sub(1);
                assert_eq!(*byte, position as u8, "not what was written at {position}");
            }
        }
        let len = segment.payload.len() as u32 + u32::from(segment.flags.contains(Flags::FIN));
        if segment.seq == end.client.rcv {
            end.client.rcv = end.client.rcv.wrapping_add(len);
        }
    }

    fn transmit(&mut self, frame: Vec<u8>) {
        if self.under_way >= UNDER_WAY_MAX {
            self.rest();
        }
        if !self.world.peer.has_room() {
            self.rest();
        }
        self.world.peer.transmit(&frame);
        self.under_way += 1;
        self.sent.push(frame);
        if self.sent.len() > 32 {
            self.sent.remove(0);
        }
    }

    fn send(&mut self, segment: &Tcp) {
        let frame = self.world.peer.frame(segment);
        self.transmit(frame);
    }

    fn end(&mut self, pick: u8) -> &mut End {
        let count = self.ends.len();
        &mut self.ends[usize::from(pick) % count]
    }

    fn socket(&self, pick: u8) -> Option<SocketId> {
        let open = self.world.app.sockets_open();
        (!open.is_empty()).then(|| open[usize::from(pick) % open.len()])
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Listen { .. }
            | Step::Connect { .. }
            | Step::Accept { .. }
            | Step::Write { .. }
            | Step::Read { .. }
            | Step::Shutdown { .. }
            | Step::Close { .. }
            | Step::Abort { .. }
            | Step::Option { .. }
            | Step::StaleJob { .. }
            | Step::TakeEvents => self.application(step),
            Step::Wait { ms } => self.pass(u64::from(*ms) * 1_000_000),
            Step::WaitLong { seconds } => self.pass(u64::from(*seconds) * SECOND),
            Step::Mute { on } => {
                self.world.peer.answers_for = if *on { vec![] } else { vec![PEER_V4, PEER_V6] };
            }
            Step::Deaf { on } => self.world.peer.deaf = *on,
            Step::Hold { on } => self.held = *on,
            _ => self.wire(step),
        }
    }

    fn pass(&mut self, ns: u64) {
        self.rest();
        self.world.advance(ns);
        self.rest();
    }

    fn wire(&mut self, step: &Step) {
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
            .segment(Flags(odd.flags))
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
        // A SYN's number comes before its text.
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

    /// A frame that was on the wire before, perhaps with a byte changed.
    fn again(&mut self, at: u8, flip: Option<(u16, u8)>) {
        if self.sent.is_empty() {
            return;
        }
        let mut frame = self.sent[usize::from(at) % self.sent.len()].clone();
        if let Some((place, bits)) = flip {
            let place = usize::from(place) % frame.len();
            // One byte cannot hide behind a right checksum, unless it is not covered by one.
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

    /// An error about a segment of the stack's that is near what it sent.
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

    fn application(&mut self, step: &Step) {
        match *step {
            Step::Listen { port } => {
                if self.world.app.has_socket() {
                    let port = PORT + u16::from(port % 3);
                    self.world.app.listen(SocketAddr::new(STACK_V4, port), 2);
                }
            }
            Step::Connect { v6, host, from } => self.connect(v6, host, from),
            Step::Accept { listener } => {
                let listeners: Vec<_> = self.world.app.sockets_open();
                let listeners: Vec<_> = listeners
                    .into_iter()
                    .filter(|id| self.world.app.is_listener(*id))
                    .collect();
                if !listeners.is_empty() {
                    let listener = listeners[usize::from(listener) % listeners.len()];
                    self.world.app.accept(listener);
                }
            }
            Step::TakeEvents => self.take_events(),
            Step::StaleJob { index, generation } => {
                let id = SocketId {
                    index: u32::from(index % 70),
                    generation: u32::from(generation),
                };
                // Only ids that no open socket has: the library never makes up others.
                if !self.world.app.is_open(id) && self.world.app.is_stale(id) {
                    // A queue of honest length has no place for many of these.
                    self.rest();
                    self.world.app.push_job(id);
                    self.rest();
                }
            }
            Step::Write { socket, .. }
            | Step::Read { socket, .. }
            | Step::Shutdown { socket }
            | Step::Close { socket }
            | Step::Abort { socket }
            | Step::Option { socket, .. } => {
                if let Some(id) = self.socket(socket) {
                    self.on_socket(step, id);
                }
            }
            _ => {}
        }
    }

    /// What has changed since the last look must have been told of.
    fn take_events(&mut self) {
        let mut told = Vec::new();
        loop {
            self.rest();
            let events = self.world.app.take_events();
            if events.is_empty() {
                break;
            }
            told.extend(events);
        }
        for id in self.world.app.sockets_open() {
            let edges = self.world.app.edges(id);
            let before = self.edges.insert(key(id), edges);
            let moved = before.is_some_and(|before| before != edges);
            assert!(!moved || told.contains(&id), "{id:?} changed in secret");
        }
    }

    fn on_socket(&mut self, step: &Step, id: SocketId) {
        let app = &mut self.world.app;
        let is_listener = app.is_listener(id);
        match *step {
            Step::Write { len, .. } if !is_listener => {
                let start = *self.written.get(&key(id)).unwrap_or(&0);
                let bytes: Vec<u8> = (start..start + u64::from(len % 9_000))
                    .map(|n| n as u8)
                    .collect();
                let n = app.write_if_open(id, &bytes);
                self.written.insert(key(id), start + n as u64);
            }
            Step::Read { len, .. } if !is_listener => {
                for byte in app.read_up_to(id, usize::from(len)) {
                    if let Some(before) = self.last_read.insert(key(id), byte) {
                        assert_eq!(byte, before.wrapping_add(1), "a byte out of place");
                    }
                }
            }
            Step::Shutdown { .. } if !is_listener => app.shutdown_if_open(id),
            Step::Close { .. } => app.close(id),
            Step::Abort { .. } => app.abort(id),
            Step::Option { option, .. } => {
                let on = option & 1 == 1;
                app.option(
                    id,
                    match option >> 1 & 3 {
                        0 => SocketOption::NoDelay(on),
                        1 => SocketOption::Cork(on),
                        2 => SocketOption::KeepAlive(on.then_some(tcp::connection::Keepalive {
                            idle_ns: SECOND,
                            interval_ns: SECOND,
                            probes_max: 2,
                        })),
                        _ => SocketOption::UserTimeout(u64::from(option >> 3) * SECOND),
                    },
                );
            }
            _ => app.request(id, Requests::READ),
        }
    }

    fn connect(&mut self, v6: bool, host: u8, from: u8) {
        if !self.world.app.has_socket() {
            return;
        }
        let remote = match (host % 4, v6) {
            (0 | 1, false) => SocketAddr::new(PEER_V4, 443),
            (0 | 1, true) => SocketAddr::new(PEER_V6, 443),
            (2, _) => "10.0.0.77:80".parse().unwrap(),
            _ => SocketAddr::new("192.0.2.1".parse().unwrap(), u16::from(host)),
        };
        let local = match from % 4 {
            0 => Some(SocketAddr::new(pair(v6).1, 5_000)),
            1 => Some(SocketAddr::new(STACK_V4, 0)),
            _ => None,
        };
        self.world.app.connect_from(local, remote);
    }
}

impl End {
    /// The options of a SYN.
    fn offer(&mut self, segment: &mut Tcp, options: bool) {
        if options {
            segment.options.window_scale = Some(3);
            self.stamp = self.stamp.or(Some(0));
            self.stamp_on(segment);
        } else {
            self.stamp = None;
        }
    }

    /// A timestamp, where they are in use.
    fn stamp_on(&mut self, segment: &mut Tcp) {
        if let Some(echo) = self.stamp {
            self.value += 1;
            segment.options.timestamp = Some(Timestamp {
                value: self.value,
                echo,
            });
        }
    }
}

fn pair(v6: bool) -> (std::net::IpAddr, std::net::IpAddr) {
    if v6 {
        (PEER_V6, STACK_V6)
    } else {
        (PEER_V4, STACK_V4)
    }
}

/// What a peer sends at sequence number `seq`: the same bytes however the stream is cut.
fn bytes_at(seq: u32, len: u16) -> Vec<u8> {
    (0..u32::from(len))
        .map(|at| seq.wrapping_add(at) as u8)
        .collect()
}
