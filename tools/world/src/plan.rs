//! The plan of a world: plain values. [`draw`](super::draw) makes them from a seed, switching off
//! faults changes them, and a failing seed prints them.

use std::fmt;

use stack::Limits;
use stack::context::SocketOption;

use super::faults::{FaultKind, FaultSet};

/// The longest RTO under Linux's default settings, in ns: 120 s.
const CORKED_NS_MAX: u64 = 120_000_000_000;

/// A world before it begins. Times are in ns of the world's clock, which starts at 0.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed from which the plan was drawn.
    pub seed: u64,
    /// Time in ns at which faults end. Connections that they delayed must finish afterwards.
    pub heal_ns: u64,
    /// Strains that network and hosts together may put on connections.
    pub strain: Strain,
    /// The hosts, each with its stack.
    pub hosts: Vec<HostPlan>,
    /// Nodes of the network: the hosts in their order, then switch or routers.
    pub nodes: Vec<NodePlan>,
    /// The edges between nodes; they form a tree.
    pub links: Vec<LinkPlan>,
    /// The plans of the applications.
    pub flows: Vec<FlowPlan>,
    /// Forward jumps of hosts' clocks: time in ns, host, distance in ns.
    pub jumps: Vec<(u64, usize, u64)>,
    /// Packets that a liar puts onto the wire.
    pub lies: Vec<Lie>,
    /// Two or more like flows share a bottleneck, and must share it fairly.
    pub fair: bool,
}

/// Strains that a world may put on a connection. They decide which failures are excused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Strain {
    /// A connection may time out, because of many losses in a row or few retries.
    pub may_time_out: bool,
    /// ARP and ND packets may be lost, so neighbours may be hard to find.
    pub lossy: bool,
    /// Tables or buffers are so small that handshakes and segments are refused.
    pub scarce: bool,
}

/// The plan of one host and its stack.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Settings of TCP.
    pub tcp: tcp::Config,
    /// Sizes of its tables.
    pub limits: Limits,
    /// Time in ns that the host's clock shows when the world begins.
    pub clock_ns: u64,
    /// Time in ns that frames wait in the driver before a turn takes them.
    pub coalesce_ns: u64,
    /// Slots of its driver, in each direction.
    pub slots: usize,
    /// MTU of its port, in bytes.
    pub mtu: usize,
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePlan {
    /// Gives frames to the stack of this number.
    Host(usize),
    /// Passes frames on by MAC address.
    Switch,
    /// Passes packets on by IP address.
    Router {
        /// Sends an ICMP error for a packet too big for the next link, instead of dropping it
        /// silently.
        tells_too_big: bool,
    },
}

/// A link between two nodes.
#[derive(Clone, Debug)]
pub struct LinkPlan {
    /// Numbers of the nodes at its ends.
    pub ends: [usize; 2],
    /// The largest IP packet in bytes that routers put on it.
    pub mtu: usize,
    /// The line from the first end to the second, and the line back.
    pub lines: [LinePlan; 2],
}

/// One direction of a link.
#[derive(Clone, Debug, Default)]
pub struct LinePlan {
    /// Bits per second; 0: no limit.
    pub rate_bits: u64,
    /// Bytes that may wait in the queue.
    pub queue_bytes: u64,
    /// Length of the queue in bytes above which packets of ECN-capable flows are marked; 0: never.
    pub mark_bytes: u64,
    /// Delay of every frame, in ns.
    pub delay_ns: u64,
    /// Largest additional delay in ns; frames keep their order.
    pub jitter_ns: u64,
    /// Largest additional delay in ns that makes the transit time of every frame different.
    pub late_ns_max: u64,
    /// Probability that a frame is lost, in millionths.
    pub loss_ppm: u32,
    /// Losses in bursts; None: there are none.
    pub burst: Option<Burst>,
    /// Probability that a frame is held back so that others overtake it, in millionths.
    pub reorder_ppm: u32,
    /// Time in ns for which it is held back.
    pub reorder_ns: u64,
    /// Probability that a frame arrives twice, in millionths.
    pub duplicate_ppm: u32,
    /// Probability that a bit of a frame is flipped, in millionths.
    pub corrupt_ppm: u32,
    /// Times in ns in which every frame is lost: begin and end.
    pub blackholes: Vec<(u64, u64)>,
}

/// The Gilbert-Elliott model: a good state without loss, and a bad one.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// Probability of going from good to bad at a frame, in millionths.
    pub begin_ppm: u32,
    /// Probability of going from bad to good at a frame, in millionths.
    pub end_ppm: u32,
    /// Probability that a frame is lost in the bad state, in millionths.
    pub loss_ppm: u32,
}

/// Connections of one kind, one after another.
#[derive(Clone, Debug)]
pub struct FlowPlan {
    /// Number of the host that connects.
    pub client: usize,
    /// Number of the host that accepts; with `simultaneous` it connects too.
    pub server: usize,
    /// Port of the server, which no other flow uses.
    pub port: u16,
    /// Uses IPv6.
    pub v6: bool,
    /// Begin of the first connection, in ns.
    pub start_ns: u64,
    /// Number of connections.
    pub count: u32,
    /// Time in ns from the begin of one connection to that of the next.
    pub gap_ns: u64,
    /// Both ends connect at once.
    pub simultaneous: bool,
    /// The client's first bytes go with its SYN, if it has a cookie.
    pub fast_open: bool,
    /// The parts of client and server.
    pub ends: [EndPlan; 2],
}

/// One application's part in a connection. It reads all the time at its pace, and meanwhile follows
/// its steps.
#[derive(Clone, Debug, Default)]
pub struct EndPlan {
    /// Steps in their order.
    pub steps: Vec<Step>,
    /// Most bytes per read; 0: everything there is.
    pub read_piece: u32,
    /// Time between two reads, in ns.
    pub read_gap_ns: u64,
    /// Closes the socket after its last step, without waiting for the peer's end.
    pub leaves_early: bool,
    /// Options of its socket.
    pub options: Vec<SocketOption>,
}

/// A step of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes bytes in pieces, with pauses between them.
    Write {
        /// Bytes in all.
        bytes: u64,
        /// Bytes per write.
        piece: u32,
        /// Time between two writes, in ns.
        gap_ns: u64,
    },
    /// Waits until this many bytes have been read since the connection began.
    Await(u64),
    /// Does nothing for this time, in ns.
    Pause(u64),
    /// Sends FIN.
    Shutdown,
    /// Closes with a reset.
    Abort,
}

/// A packet of a liar, who knows addresses and ports but no sequence number.
#[derive(Clone, Copy, Debug)]
pub struct Lie {
    /// The time at which the packet is sent, ns.
    pub at_ns: u64,
    /// Number of the flow to which the packet pretends to belong.
    pub flow: usize,
    /// The end of the flow that gets the packet: 0 is the client.
    pub end: usize,
    /// The kind of the lie.
    pub kind: LieKind,
    /// The seed of its random numbers.
    pub dice: u64,
}

/// The message of a lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LieKind {
    /// A reset.
    Reset,
    /// A SYN.
    Syn,
    /// A SYN-ACK.
    SynAck,
    /// A data segment.
    Data,
    /// A bare ACK.
    Ack,
    /// An ICMP error that names a sequence number.
    Unreachable,
    /// An ICMP error that names a sequence number and an MTU.
    TooBig,
}

impl FlowPlan {
    /// Bytes that an end writes in one connection, if nothing goes wrong.
    #[must_use]
    pub fn bytes_written(&self, end: usize) -> u64 {
        let bytes = self.ends[end].steps.iter().map(|step| match step {
            Step::Write { bytes, .. } => *bytes,
            _ => 0,
        });
        bytes.sum()
    }

    /// Whether one of its ends may end the connection with a reset.
    #[must_use]
    pub fn may_reset(&self) -> bool {
        let may = |end: &EndPlan| end.leaves_early || end.steps.contains(&Step::Abort);
        self.ends.iter().any(may)
    }

    /// Time in ns that its applications take by themselves.
    #[must_use]
    pub fn leisure_ns(&self) -> u64 {
        let mut ns = 0;
        for (end, plan) in self.ends.iter().enumerate() {
            // A cork holds the last part of a write back for up to an RTO. A clock jump may have
            // driven the RTO to its maximum.
            let corked = plan.options.contains(&SocketOption::Cork(true));
            let held_ns = if corked { CORKED_NS_MAX } else { 0 };
            for step in &plan.steps {
                ns += match *step {
                    Step::Write {
                        bytes,
                        piece,
                        gap_ns,
                    } => (bytes / u64::from(piece.max(1)) + 1) * gap_ns + held_ns,
                    Step::Pause(ns) => ns,
                    _ => 0,
                };
            }
            if plan.read_piece > 0 {
                let reads = self.bytes_written(1 - end) / u64::from(plan.read_piece) + 2;
                ns += reads * plan.read_gap_ns;
            }
        }
        ns
    }
}

impl Plan {
    /// Time in ns by which the flow is over or stuck. It is the end of the faults, plus a multiple
    /// of the time that applications and the slowest link take, plus TCP's longest timers.
    #[must_use]
    pub fn bound_ns(&self, flow: &FlowPlan) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        let lines = || self.links.iter().flat_map(|link| &link.lines);
        let rate_bits = lines()
            .filter(|line| line.rate_bits > 0)
            .map(|line| line.rate_bits)
            .min()
            .unwrap_or(1_000_000_000);
        let written = |flow: &FlowPlan| {
            (flow.bytes_written(0) + flow.bytes_written(1) + 1_000) * u64::from(flow.count)
        };
        let all_bytes: u64 = self.flows.iter().map(written).sum();
        let wire_ns = (u128::from(all_bytes) * 8_000_000_000 / u128::from(rate_bits)) as u64;
        // Round trip in ns of windows as small as the smallest buffer, each acknowledged late.
        let round_ns: u64 = lines()
            .map(|line| line.delay_ns + line.jitter_ns + line.reorder_ns)
            .sum::<u64>()
            + SECOND / 2;
        let buffer = |host: &HostPlan| {
            // At most half of the memory holds payload, and less if segments are small.
            let bytes = host.tcp.recv_buffer.bytes_default;
            u64::from(bytes.min(host.tcp.send_buffer.bytes_default)) / 8
        };
        let window = self
            .hosts
            .iter()
            .map(buffer)
            .min()
            .unwrap_or(2_048)
            .max(512)
            / 2;
        let windows = (flow.bytes_written(0) + flow.bytes_written(1)) / window + 2;
        let repeated_ns = u64::from(flow.count) * flow.gap_ns;
        let patience_ns = if self.strain.may_time_out { 2_500 } else { 700 } * SECOND;
        self.heal_ns.max(flow.start_ns)
            + repeated_ns
            + 4 * (flow.leisure_ns() + wire_ns + windows * round_ns)
            + patience_ns
    }

    /// The same world without the faults in `off`.
    #[must_use]
    pub fn without(mut self, off: FaultSet) -> Self {
        for link in &mut self.links {
            if off.contains(FaultKind::Mtu) {
                link.mtu = 1_500;
            }
            let rates = link.lines.each_ref().map(|line| line.rate_bits);
            link.lines.iter_mut().for_each(|line| line.without(off));
            if self.fair {
                // Keep the rates: a fair world is about its bottleneck.
                let lines = link.lines.iter_mut().zip(rates);
                lines.for_each(|(line, rate_bits)| line.rate_bits = rate_bits);
            }
        }
        for host in &mut self.hosts {
            host.without(off);
        }
        if off.contains(FaultKind::ClockJump) {
            self.jumps.clear();
        }
        self.lies.retain(|lie| {
            let kind = match lie.kind {
                LieKind::Unreachable | LieKind::TooBig => FaultKind::IcmpLie,
                _ => FaultKind::Attack,
            };
            !off.contains(kind)
        });
        self
    }
}

impl LinePlan {
    fn without(&mut self, off: FaultSet) {
        let clean = LinePlan::default();
        if off.contains(FaultKind::Loss) {
            self.loss_ppm = 0;
        }
        if off.contains(FaultKind::Burst) {
            self.burst = None;
        }
        if off.contains(FaultKind::Reorder) {
            self.reorder_ppm = 0;
        }
        if off.contains(FaultKind::Duplicate) {
            self.duplicate_ppm = 0;
        }
        if off.contains(FaultKind::Corrupt) {
            self.corrupt_ppm = 0;
        }
        if off.contains(FaultKind::Blackhole) {
            self.blackholes.clear();
        }
        if off.contains(FaultKind::Jitter) {
            self.jitter_ns = 0;
        }
        if off.contains(FaultKind::Lateness) {
            self.late_ns_max = 0;
        }
        if off.contains(FaultKind::Queue) {
            (self.rate_bits, self.mark_bytes) = (clean.rate_bits, clean.mark_bytes);
        }
    }
}

impl HostPlan {
    fn without(&mut self, off: FaultSet) {
        if off.contains(FaultKind::Scarcity) {
            self.limits = super::draw::ample_limits();
        }
        if off.contains(FaultKind::Coalesce) {
            self.coalesce_ns = 0;
        }
        if off.contains(FaultKind::Slots) {
            self.slots = super::draw::SLOTS;
        }
        if off.contains(FaultKind::Mtu) {
            self.mtu = 1_500;
        }
        if off.contains(FaultKind::Settings) {
            self.tcp = tcp::Config::default();
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {} hosts, {} nodes, heals at {} ms, {:?}{}",
            self.seed,
            self.hosts.len(),
            self.nodes.len(),
            self.heal_ns / 1_000_000,
            self.strain,
            if self.fair { ", fair" } else { "" }
        )?;
        for (number, host) in self.hosts.iter().enumerate() {
            writeln!(f, "  host {number}: {host:?}")?;
        }
        for (number, link) in self.links.iter().enumerate() {
            let [a, b] = link.ends.map(|node| (node, self.nodes[node]));
            writeln!(f, "  link {number}: {a:?} to {b:?}, mtu {}", link.mtu)?;
            writeln!(f, "    there {:?}", link.lines[0])?;
            writeln!(f, "    back  {:?}", link.lines[1])?;
        }
        for (number, flow) in self.flows.iter().enumerate() {
            writeln!(f, "  flow {number}: {flow:?}")?;
        }
        for (at_ns, host, by_ns) in &self.jumps {
            writeln!(f, "  clock of host {host} jumps by {by_ns} ns at {at_ns}")?;
        }
        writeln!(f, "  {} lies", self.lies.len())
    }
}
