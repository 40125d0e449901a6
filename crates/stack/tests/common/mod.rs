//! A stack with all its ends under a test's control: its wire ([`Peer`]), its application ([`App`])
//! and its clock.
//!
//! ```text
//!   App ── jobs, controls, byte rings ──▶ Stack ── loopback wire ──▶ Peer
//!    ▲                                      ▲                          ▲
//!    └───────────── the test ───────────────┴───── now_ns ─────────────┘
//! ```
//!
//! When a [`World`] is dropped it closes everything, lets time pass, and fails unless all resources
//! were returned. Every test thereby looks for leaks.

// Each test binary uses only a part of this module.
#![allow(dead_code)]

pub mod app;
pub mod frames;
pub mod hosted;
pub mod peer;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use packetio::fault::{Fault, FaultOptions};
use packetio::loopback::{self, LoopbackOptions};
use packetio::{ChecksumPolicy, MacAddr, Port};
use ring::socket_block::SocketId;
use stack::{Limits, Stack, StackConfig, Usage};
use wire::tcp::Flags;

pub use app::App;
pub use frames::{Seen, Tcp};
pub use peer::{Client, Peer};

pub const MILLIS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

pub const STACK_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub const STACK_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
pub const PEER_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
pub const STACK_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
pub const PEER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));
pub const PORT: u16 = 80;

/// Turns after which a stack that is still busy will never be idle.
const TURNS_MAX: usize = 2_000;

/// The parameters of a world.
pub struct Setup {
    pub config: StackConfig,
    pub wire: LoopbackOptions,
    pub policy: ChecksumPolicy,
    /// Faults of the wire on the stack's side.
    pub faults: Option<FaultOptions>,
    /// True if peer and stack know each other's MAC addresses from the start.
    pub acquainted: bool,
    /// The host behind the stack's port.
    pub host: Option<hosted::HostEnd>,
    /// A wrapper of the stack's port.
    pub wrap: Option<Wrap>,
}

/// Puts a port of the test's own around another one.
pub type Wrap = Box<dyn FnOnce(Box<dyn Port + Send>) -> Box<dyn Port + Send>>;

impl Default for Setup {
    fn default() -> Self {
        Self {
            config: config(),
            wire: LoopbackOptions {
                mac: Some(STACK_MAC),
                ..LoopbackOptions::default()
            },
            policy: ChecksumPolicy::Verify,
            faults: None,
            acquainted: true,
            host: None,
            wrap: None,
        }
    }
}

/// A configuration with small tables, so that limits are near.
pub fn config() -> StackConfig {
    StackConfig {
        addresses: vec![
            "10.0.0.1/24".parse().unwrap(),
            "fd00::1/64".parse().unwrap(),
        ],
        limits: Limits {
            sockets_max: 64,
            half_open_max: 16,
            time_wait_max: 16,
            orphans_max: 4_096,
            listeners_max: 4,
            backlog_max: 32,
            small_chunks: 256,
            large_chunks: 256,
            control_queue_max: 64,
            segment_records: 256,
            range_blocks: 64,
            // Sockets are packed as soon as they are quiet.
            warm_sockets: 1,
            pack_after_ns: 0,
            packed_blocks: 320,
        },
        seed: Some([1, 2, 3, 4]),
        ..StackConfig::default()
    }
}

/// See the module's documentation.
pub struct World {
    pub stack: Stack,
    pub app: App,
    pub peer: Peer,
    pub now_ns: u64,
    /// True to skip the search for leaks, in tests that make their own.
    pub unchecked: bool,
    client_port: u16,
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup::default();
        change(&mut setup);
        let (near, far) = loopback::pair(&setup.wire).unwrap();
        let near = near.with_checksum_policy(setup.policy);
        let near: Box<dyn Port + Send> = match setup.faults {
            Some(faults) => Box::new(Fault::new(near, &faults)),
            None => Box::new(near),
        };
        let near = match &setup.host {
            Some(host) => host.port(near, peer::PEER_MAC),
            None => near,
        };
        let near = match setup.wrap {
            Some(wrap) => wrap(near),
            None => near,
        };
        let now_ns = 1_000 * SECOND;
        let (stack, side) = Stack::new(setup.config, near, now_ns).unwrap();
        let mut world = Self {
            stack,
            app: App::new(side),
            peer: Peer::new(far),
            now_ns,
            unchecked: false,
            client_port: 40_000,
        };
        if setup.acquainted {
            world.acquaint();
        }
        world.settle();
        world.peer.forget();
        world
    }

    /// The peer sends an ARP request and a solicitation, from which the stack learns its addresses.
    fn acquaint(&mut self) {
        let arp = frames::arp_request(self.peer.mac, PEER_V4, STACK_V4);
        self.peer.transmit(&arp);
        let solicitation = frames::solicitation(self.peer.mac, PEER_V6, STACK_V6);
        self.peer.transmit(&solicitation);
    }

    /// Runs one turn, and lets the peer receive what was sent.
    pub fn turn(&mut self) -> stack::Turned {
        let turned = self.stack.turn(self.now_ns);
        assert!(!self.stack.is_gone());
        self.peer.collect();
        turned
    }

    /// Runs turns until nothing moves.
    pub fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            let turned = self.turn();
            let due_ns = self.stack.next_timer_ns();
            let is_due = due_ns.is_some_and(|due_ns| due_ns <= self.now_ns);
            if !turned.busy && !is_due && !self.peer.has_answers() {
                return;
            }
        }
        panic!("the stack finds no rest: {:?}", self.stack.counters());
    }

    /// Lets time pass, and runs a turn for each timer on the way.
    pub fn advance(&mut self, ns: u64) {
        let end_ns = self.now_ns + ns;
        self.settle();
        let mut stuck = 0;
        while let Some(due_ns) = self
            .stack
            .next_timer_ns()
            .filter(|&due_ns| due_ns <= end_ns)
        {
            stuck = if due_ns <= self.now_ns { stuck + 1 } else { 0 };
            assert!(stuck < 100, "a timer is due for ever at {due_ns}");
            self.now_ns = due_ns.max(self.now_ns);
            self.settle();
        }
        self.now_ns = end_ns;
        self.settle();
    }

    /// Lets the peer send a segment.
    pub fn send(&mut self, segment: &Tcp) {
        let frame = self.peer.frame(segment);
        self.send_frame(&frame);
    }

    /// Lets the peer send a frame unchanged.
    pub fn send_frame(&mut self, frame: &[u8]) {
        self.peer.transmit(frame);
        self.settle();
    }

    /// Takes the next thing that the peer received, which must be a TCP segment.
    pub fn tcp(&mut self) -> Tcp {
        match self.peer.next() {
            Some(Seen::Tcp(segment)) => segment,
            other => panic!("a TCP segment was expected, not {other:?}"),
        }
    }

    /// Takes the next segment, which must have exactly these flags.
    pub fn tcp_with(&mut self, flags: Flags) -> Tcp {
        let segment = self.tcp();
        assert_eq!(segment.flags, flags, "{segment:?}");
        segment
    }

    /// The highest ACK number received, if any. Discards everything received.
    pub fn tcp_last_ack(&mut self) -> Option<u32> {
        self.peer.take_tcp().last().map(|segment| segment.ack)
    }

    /// Fails if the peer received anything.
    #[track_caller]
    pub fn silent(&mut self) {
        let seen = self.peer.next();
        assert!(seen.is_none(), "nothing was expected, not {seen:?}");
    }

    /// Makes a listener at the usual port.
    pub fn listen(&mut self) -> SocketId {
        self.listen_at(SocketAddr::new(STACK_V4, PORT), 16)
    }

    pub fn listen_at(&mut self, local: SocketAddr, backlog: usize) -> SocketId {
        let id = self.app.listen(local, backlog);
        self.settle();
        id
    }

    /// Makes a peer's end of a connection to the usual port, from a new port, without a handshake.
    pub fn client(&mut self) -> Client {
        self.client_from(PEER_V4, SocketAddr::new(STACK_V4, PORT))
    }

    pub fn client_v6(&mut self) -> Client {
        self.client_from(PEER_V6, SocketAddr::new(STACK_V6, PORT))
    }

    pub fn client_from(&mut self, from: IpAddr, to: SocketAddr) -> Client {
        self.client_port += 1;
        Client::new(SocketAddr::new(from, self.client_port), to)
    }

    /// Performs the three-way handshake that the peer begins.
    pub fn handshake(&mut self, client: &mut Client) {
        self.begin_handshake(client);
        self.send(&client.ack());
    }

    /// Performs the handshake's first two segments, SYN and SYN-ACK.
    pub fn begin_handshake(&mut self, client: &mut Client) {
        self.send(&client.syn());
        let syn_ack = self.tcp_with(Flags::SYN | Flags::ACK);
        client.on_syn_ack(&syn_ack);
    }

    /// Makes a listener, a client and their accepted connection.
    pub fn established(&mut self) -> (Client, SocketId) {
        let listener = self.listen();
        let mut client = self.client();
        self.handshake(&mut client);
        let socket = self
            .app
            .accept(listener)
            .expect("the handshake is complete");
        self.app.take_events();
        (client, socket)
    }

    /// Makes a connection that the application opens to the peer.
    pub fn connected(&mut self, remote: SocketAddr) -> (Client, SocketId) {
        let socket = self.app.connect(remote);
        self.settle();
        let syn = self.tcp_with(Flags::SYN);
        let mut client = Client::answering(&syn);
        self.send(&client.syn_ack());
        let ack = self.tcp_with(Flags::ACK);
        assert_eq!(ack.seq, syn.seq + 1);
        client.rcv = ack.seq;
        self.app.take_events();
        (client, socket)
    }

    /// Lets the application write `bytes`, which must fit.
    pub fn write(&mut self, socket: SocketId, bytes: &[u8]) {
        assert_eq!(self.app.write(socket, bytes), bytes.len());
        self.settle();
    }

    /// Lets the application read everything that has arrived.
    pub fn read(&mut self, socket: SocketId) -> Vec<u8> {
        let bytes = self.app.read(socket);
        self.settle();
        bytes
    }

    pub fn close(&mut self, socket: SocketId) {
        self.app.close(socket);
        self.settle();
    }

    /// All counters of the stack by name, except those that merely count activity.
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        const ACTIVITY: [&str; 4] = ["turns", "rx_frames", "rx_bytes", "rx_segments"];
        let rows = self.stack.counters().rows();
        rows.filter(|(name, _)| !ACTIVITY.contains(name)).collect()
    }

    /// The counters that changed while `act` ran, with the differences.
    pub fn counted(&mut self, act: impl FnOnce(&mut Self)) -> Vec<(&'static str, u64)> {
        let before = self.drops();
        act(self);
        let after = self.drops();
        let moved = before.iter().zip(after);
        moved
            .filter(|((_, before), (_, after))| before != after)
            .map(|((name, before), (_, after))| (*name, after - before))
            .collect()
    }

    /// Closes everything of the application and waits until TCP has forgotten it.
    pub fn wind_up(&mut self) -> Usage {
        self.peer.deaf = false;
        self.app.abort_all();
        for _ in 0..100 {
            self.advance(60 * SECOND);
            if self.stack.usage() == Usage::default() {
                break;
            }
        }
        self.stack.usage()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() || self.unchecked {
            return;
        }
        assert_eq!(
            self.wind_up(),
            Usage::default(),
            "something was not given back"
        );
    }
}
