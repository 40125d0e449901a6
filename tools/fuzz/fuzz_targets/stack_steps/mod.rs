//! The steps of the target `stack_input`, which the fuzzer chooses, and the world in which they
//! are played.

mod application_steps;
mod wire_steps;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use arbitrary::Arbitrary;
use ring::socket_block::SocketId;
use wire::tcp::{Flags, Timestamp};

use crate::common::{Client, PEER_V4, PEER_V6, PORT, SECOND, STACK_V4, STACK_V6, Seen, Tcp, World};

const CLIENTS: usize = 6;
const STEPS_MAX: usize = 96;
/// Frames that may lie on the wire before the stack gets a turn.
const UNDER_WAY_MAX: usize = 24;

#[derive(Arbitrary, Debug)]
pub struct Input {
    pub world: WorldPick,
    pub steps: Vec<Step>,
}

/// Choices for a world: how near its limits are, and which features it has.
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
    // Steps of a peer that keeps the rules.
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
    // Steps of a peer that breaks the rules.
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
    // Calls of the application.
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
    // Changes of the world: time, a peer that does not answer for its addresses (mute) or takes no
    // frames (deaf), and a stack that gets no turns (hold).
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

/// A peer's end of a connection, with what it has learned from the stack.
struct End {
    client: Client,
    /// The stack's initial sequence number, once seen.
    iss: Option<u32>,
    /// The last timestamp value that the stack sent; none without timestamps.
    stamp: Option<u32>,
    /// The peer's timestamp clock, which advances by one for each segment that carries it.
    value: u32,
}

/// A world, and what the checks know of it while steps are played.
pub struct Play {
    world: World,
    ends: Vec<End>,
    /// Bytes that the application wrote, by socket.
    written: BTreeMap<SocketId2, u64>,
    /// The last byte that the application read, by socket.
    last_read: BTreeMap<SocketId2, u8>,
    /// Counts of each socket's edges of readiness when events were last taken.
    edges: BTreeMap<SocketId2, (u32, u32)>,
    /// The last 32 frames that peers sent, which [`Step::Again`] repeats.
    sent: Vec<Vec<u8>>,
    /// The stack gets no turn after a step, until [`UNDER_WAY_MAX`] frames lie on the wire.
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
            let few = 1 + usize::from(pick.seed % 3);
            s.wire.slots = if pick.few_slots { few } else { 64 };
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
                let tcp = &mut s.config.tcp;
                for sizes in [&mut tcp.recv_buffer, &mut tcp.send_buffer] {
                    (sizes.bytes_default, sizes.bytes_max) = (6_000, 6_000);
                }
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

    /// Lets the stack do all its work, and the peer look at what came.
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
                // The stack connects. Its newest connection replaces the one before as the last
                // end.
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
        // A stack whose frames do not leave may take none in. Then the wire stays full and loses
        // the frame.
        if !self.world.peer.has_room() {
            return;
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
}

impl End {
    /// Sets the options of a SYN, or turns timestamps off.
    fn offer(&mut self, segment: &mut Tcp, options: bool) {
        if options {
            segment.options.window_scale = Some(3);
            self.stamp = self.stamp.or(Some(0));
            self.stamp_on(segment);
        } else {
            self.stamp = None;
        }
    }

    /// Adds a timestamp to a segment, where timestamps are in use.
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

/// The bytes that a peer sends at sequence number `seq`: the same however the stream is cut.
fn bytes_at(seq: u32, len: u16) -> Vec<u8> {
    (0..u32::from(len))
        .map(|at| seq.wrapping_add(at) as u8)
        .collect()
}
