//! The other end of the wire: it sends given frames, keeps what it receives, and answers ARP and
//! neighbour discovery for its own addresses.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use packetio::loopback::Loopback;
use packetio::{MacAddr, Port};
use wire::arp::Operation;
use wire::tcp::{Flags, Options};

use super::frames::{self, Seen, Tcp};
use super::{PEER_V4, PEER_V6, STACK_MAC};

pub const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// See the module's documentation.
pub struct Peer {
    port: Loopback,
    pub mac: MacAddr,
    /// The MAC address that the peer believes to be the stack's.
    pub stack_mac: MacAddr,
    /// Destination and source MAC address of the last frame received.
    pub last_link: Option<(MacAddr, MacAddr)>,
    /// Traffic class and hop limit of the last frame received.
    pub last_class_and_hops: Option<(u8, u8)>,
    /// Addresses for which the peer answers ARP and solicitations; requests for others are kept
    /// like any frame.
    pub answers_for: Vec<IpAddr>,
    /// True to leave all frames on the wire.
    pub deaf: bool,
    /// IP identifications of received TCP packets without DF.
    pub fragmentable: Vec<u16>,
    got: VecDeque<Seen>,
    answers: bool,
}

impl Peer {
    pub fn new(port: Loopback) -> Self {
        Self {
            port,
            mac: PEER_MAC,
            stack_mac: STACK_MAC,
            last_link: None,
            last_class_and_hops: None,
            answers_for: vec![PEER_V4, PEER_V6],
            deaf: false,
            fragmentable: Vec::new(),
            got: VecDeque::new(),
            answers: false,
        }
    }

    /// The frame that carries a segment to the stack.
    pub fn frame(&self, segment: &Tcp) -> Vec<u8> {
        segment.frame(self.mac, self.stack_mac)
    }

    /// True if the wire has room for a frame.
    pub fn has_room(&mut self) -> bool {
        !self.port.reserve(1).is_empty()
    }

    /// Puts a frame on the wire.
    pub fn transmit(&mut self, frame: &[u8]) {
        let slots = self.port.reserve(1);
        assert!(!slots.is_empty(), "no room on the wire");
        assert_eq!(
            slots[0].write(0, frame),
            frame.len(),
            "too long for the wire"
        );
        slots[0].set_len(frame.len());
        self.port.send(1).unwrap();
    }

    /// Receives the frames that the stack sent.
    pub fn collect(&mut self) {
        self.answers = false;
        while !self.deaf {
            let batch: Vec<Vec<u8>> = match self.port.receive() {
                Ok(frames) => frames.iter().map(bytes_of).collect(),
                Err(_) => return,
            };
            if batch.is_empty() {
                return;
            }
            for frame in batch {
                let seen = frames::parse(&frame);
                self.last_link = frames::link_of(&frame);
                self.last_class_and_hops = frames::class_and_hops(&frame);
                self.fragmentable.extend(frames::fragmentable_ident(&frame));
                if !self.answer(&seen) {
                    self.got.push_back(seen);
                }
            }
        }
    }

    /// True if the last `collect` sent an answer.
    pub fn has_answers(&self) -> bool {
        self.answers
    }

    fn answer(&mut self, seen: &Seen) -> bool {
        let reply = match seen {
            Seen::Arp(asked)
                if asked.op == Operation::Request && self.is_mine(asked.tpa.into()) =>
            {
                frames::arp_reply(self.mac, asked)
            }
            Seen::Solicitation { src, target } if self.is_mine((*target).into()) => {
                frames::advertisement(self.mac, self.stack_mac, *target, *src)
            }
            _ => return false,
        };
        // A full wire loses the answer; the stack asks again.
        if self.has_room() {
            self.transmit(&reply);
            self.answers = true;
        }
        true
    }

    fn is_mine(&self, address: IpAddr) -> bool {
        self.answers_for.contains(&address)
    }

    /// Takes the oldest thing received.
    pub fn next(&mut self) -> Option<Seen> {
        self.got.pop_front()
    }

    /// Number of things received and not taken.
    pub fn len(&self) -> usize {
        self.got.len()
    }

    /// Discards everything received.
    pub fn forget(&mut self) {
        self.got.clear();
    }

    /// Takes all TCP segments received; other things stay.
    pub fn take_tcp(&mut self) -> Vec<Tcp> {
        let mut segments = Vec::new();
        self.got.retain(|seen| match seen {
            Seen::Tcp(segment) => {
                segments.push(segment.clone());
                false
            }
            _ => true,
        });
        segments
    }
}

fn bytes_of(frame: &packetio::RxFrame) -> Vec<u8> {
    let mut bytes = vec![0; frame.len()];
    frame.copy_to(0, &mut bytes);
    bytes
}

/// A peer's end of one connection, with its sequence numbers.
#[derive(Clone, Debug)]
pub struct Client {
    pub peer: SocketAddr,
    pub stack: SocketAddr,
    /// The next sequence number that the client sends.
    pub nxt: u32,
    /// The next sequence number that the client expects.
    pub rcv: u32,
    pub window: u16,
}

impl Client {
    pub fn new(peer: SocketAddr, stack: SocketAddr) -> Self {
        Self {
            peer,
            stack,
            nxt: 10_000 + u32::from(peer.port()),
            rcv: 0,
            window: 60_000,
        }
    }

    /// The client's end for a SYN of the stack.
    pub fn answering(syn: &Tcp) -> Self {
        Self {
            rcv: syn.seq.wrapping_add(1),
            ..Self::new(
                SocketAddr::new(syn.dst, syn.dst_port),
                SocketAddr::new(syn.src, syn.src_port),
            )
        }
    }

    /// An empty segment with the next sequence number.
    pub fn segment(&self, flags: Flags) -> Tcp {
        Tcp {
            src: self.peer.ip(),
            dst: self.stack.ip(),
            src_port: self.peer.port(),
            dst_port: self.stack.port(),
            seq: self.nxt,
            ack: self.rcv,
            flags,
            window: self.window,
            options: Options::default(),
            payload: Vec::new(),
        }
    }

    pub fn syn(&mut self) -> Tcp {
        let mut syn = self.segment(Flags::SYN).acking(0);
        syn.options.mss = Some(1460);
        self.nxt = self.nxt.wrapping_add(1);
        syn
    }

    pub fn syn_ack(&mut self) -> Tcp {
        let mut syn_ack = self.segment(Flags::SYN | Flags::ACK);
        syn_ack.options.mss = Some(1460);
        self.nxt = self.nxt.wrapping_add(1);
        syn_ack
    }

    pub fn on_syn_ack(&mut self, syn_ack: &Tcp) {
        assert_eq!(syn_ack.ack, self.nxt);
        self.rcv = syn_ack.seq.wrapping_add(1);
    }

    pub fn ack(&self) -> Tcp {
        self.segment(Flags::ACK)
    }

    /// The next data segment.
    pub fn data(&mut self, payload: &[u8]) -> Tcp {
        let segment = self.segment(Flags::ACK | Flags::PSH).data(payload);
        self.nxt = self.nxt.wrapping_add(payload.len() as u32);
        segment
    }

    pub fn fin(&mut self) -> Tcp {
        let segment = self.segment(Flags::FIN | Flags::ACK);
        self.nxt = self.nxt.wrapping_add(1);
        segment
    }

    pub fn rst(&self) -> Tcp {
        self.segment(Flags::RST)
    }

    /// Takes a segment of the stack, which must be the next in order.
    pub fn take(&mut self, segment: &Tcp) -> Vec<u8> {
        assert_eq!(segment.seq, self.rcv, "in order: {segment:?}");
        let fin = u32::from(segment.flags.intersects(Flags::FIN));
        let len = segment.payload.len() as u32 + fin;
        self.rcv = self.rcv.wrapping_add(len);
        segment.payload.clone()
    }
}
