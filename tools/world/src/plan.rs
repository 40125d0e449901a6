//! The plan of a world: plain values, drawn from a seed by [`draw`](super::draw), changed by
//! switching faults off, printed when a seed fails.

use std::fmt;

use stack::Limits;
use stack::context::SocketOption;

use super::faults::{FaultKind, FaultSet};

/// Longest RTO of Linux's settings.
const CORKED_NS_MAX: u64 = 120_000_000_000;

/// A world before it begins. Times are nanoseconds of the world's own clock, which starts at 0.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed from which the plan was drawn.
    pub seed: u64,
    /// Faults end here; what they delayed has to come to its end afterwards.
    pub heal_ns: u64,
    /// Strains that the network and the hosts may put on connections, in all.
    pub strain: Strain,
    /// The stacks.
    pub hosts: Vec<HostPlan>,
    /// Hosts first, in their order; then what joins them.
    pub nodes: Vec<NodePlan>,
    /// The edges between nodes; they form a tree.
    pub links: Vec<LinkPlan>,
    /// The plans of the applications.
    pub flows: Vec<FlowPlan>,
    /// Hosts' clocks that jump forward: when, whose, how far.
    pub jumps: Vec<(u64, usize, u64)>,
    /// Packets that a liar puts onto the wire: when, which flow, to which of its ends.
    pub lies: Vec<Lie>,
    /// Two or more like flows share a bottleneck, and are to share it fairly.
    pub fair: bool,
}

/// Strains that a world may put on a connection, judged by its plan. They decide which failures are
/// excused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Strain {
    /// So many losses in a row, or so few retries, that a connection may time out.
    pub may_time_out: bool,
    /// Neighbours may be hard to find (ARP and ND packets get lost).
    pub lossy: bool,
    /// Tables or buffers so small that handshakes and segments are refused.
    pub scarce: bool,
}

/// One stack.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Settings of TCP.
    pub tcp: tcp::Config,
    /// Sizes of its tables.
    pub limits: Limits,
    /// The time that the host's clock shows when the world begins.
    pub clock_ns: u64,
    /// How long frames lie in the driver before a turn looks at them.
    pub coalesce_ns: u64,
    /// Slots of its driver, per direction.
    pub slots: usize,
    /// MTU of its port.
    pub mtu: usize,
}

/// The treatment of frames by a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodePlan {
    /// Gives them to the stack of this number.
    Host(usize),
    /// Passes them on by MAC address.
    Switch,
    /// Passes packets on by IP address.
    Router {
        /// Says so when a packet is too big for the next link.
        tells_too_big: bool,
    },
}

/// An edge.
#[derive(Clone, Debug)]
pub struct LinkPlan {
    /// The nodes at its ends.
    pub ends: [usize; 2],
    /// The largest IP packet that routers put on it.
    pub mtu: usize,
    /// From the first end to the second, and back.
    pub lines: [LinePlan; 2],
}

/// One direction of a link.
#[derive(Clone, Debug, Default)]
pub struct LinePlan {
    /// Bits per second; 0: no limit.
    pub rate_bits: u64,
    /// Bytes that may wait for the rate.
    pub queue_bytes: u64,
    /// Packets of ECN-capable flows are marked when more bytes than this wait; 0: never.
    pub mark_bytes: u64,
    /// Every frame is late by this.
    pub delay_ns: u64,
    /// ... and by up to this on top, without overtaking.
    pub jitter_ns: u64,
    /// ... and by up to this, so that no two frames take exactly the same time.
    pub late_ns_max: u64,
    /// A frame is lost.
    pub loss_ppm: u32,
    /// Losses in bursts.
    pub burst: Option<Burst>,
    /// A frame is held back so that others overtake it.
    pub reorder_ppm: u32,
    /// By how much.
    pub reorder_ns: u64,
    /// A frame arrives twice.
    pub duplicate_ppm: u32,
    /// One bit is flipped.
    pub corrupt_ppm: u32,
    /// From when to when every frame is lost.
    pub blackholes: Vec<(u64, u64)>,
}

/// Gilbert and Elliott's model: a good state without loss and a bad one.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// From good to bad, per frame.
    pub begin_ppm: u32,
    /// From bad to good, per frame.
    pub end_ppm: u32,
    /// A frame is lost in the bad state.
    pub loss_ppm: u32,
}

/// A connection, or many like it one after another.
#[derive(Clone, Debug)]
pub struct FlowPlan {
    /// Number of the host that connects.
    pub client: usize,
    /// Number of the host that accepts; with `simultaneous` it connects too.
    pub server: usize,
    /// The server's port, its own.
    pub port: u16,
    /// Over IPv6.
    pub v6: bool,
    /// When the first connection begins.
    pub start_ns: u64,
    /// How many connections.
    pub count: u32,
    /// From one connection's begin to the next one's.
    pub gap_ns: u64,
    /// Both ends connect at once.
    pub simultaneous: bool,
    /// The client's first bytes go with its SYN, where it has a cookie.
    pub fast_open: bool,
    /// Client's and server's part.
    pub ends: [EndPlan; 2],
}

/// One application's part in a connection. It reads all the time, at its pace, and follows its
/// steps for the rest.
#[derive(Clone, Debug, Default)]
pub struct EndPlan {
    /// In their order.
    pub steps: Vec<Step>,
    /// Bytes read at once; 0: all there is.
    pub read_piece: u32,
    /// Time between two reads.
    pub read_gap_ns: u64,
    /// Lets go of the socket when its steps are done, without waiting for the peer's end.
    pub leaves_early: bool,
    /// Options of its socket.
    pub options: Vec<SocketOption>,
}

/// A step of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Writes so many bytes, so many at once, with so much time between.
    Write {
        /// In all.
        bytes: u64,
        /// At once.
        piece: u32,
        /// Between.
        gap_ns: u64,
    },
    /// Waits until so many bytes have been read since the connection began.
    Await(u64),
    /// Does nothing for so long.
    Pause(u64),
    /// Sends FIN.
    Shutdown,
    /// Closes with a reset.
    Abort,
}

/// A packet of someone who sees the addresses and ports, and no sequence number.
#[derive(Clone, Copy, Debug)]
pub struct Lie {
    /// The time at which the packet is sent, ns.
    pub at_ns: u64,
    /// The flow that the packet pretends to belong to.
    pub flow: usize,
    /// The end of the flow that gets the packet: 0, the client.
    pub end: usize,
    /// The kind of the lie.
    pub kind: LieKind,
    /// The seed of its random numbers.
    pub dice: u64,
}

/// The message of a liar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LieKind {
    /// A reset.
    Reset,
    /// A SYN.
    Syn,
    /// A SYN that is acknowledged.
    SynAck,
    /// Data.
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

    /// One of its ends may end it with a reset.
    #[must_use]
    pub fn may_reset(&self) -> bool {
        let may = |end: &EndPlan| end.leaves_early || end.steps.contains(&Step::Abort);
        self.ends.iter().any(may)
    }

    /// Time that its applications take on their own.
    #[must_use]
    pub fn leisure_ns(&self) -> u64 {
        let mut ns = 0;
        for (end, plan) in self.ends.iter().enumerate() {
            // A cork holds the rest of every write for as long as an RTO, which a clock that jumped
            // may have driven to its maximum.
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
    /// Every flow is over by then, or it sticks: after the faults end, what the applications and
    /// the slowest link take, several times over, and the longest timers of TCP.
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
        // Round trip of windows that are each as small as the smallest buffer and each acknowledged
        // late.
        let round_ns: u64 = lines()
            .map(|line| line.delay_ns + line.jitter_ns + line.reorder_ns)
            .sum::<u64>()
            + SECOND / 2;
        let buffer = |host: &HostPlan| {
            // At most half of the memory is payload, and less where segments are small.
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

    /// The same world without some of its faults.
    #[must_use]
    pub fn without(mut self, off: FaultSet) -> Self {
        for link in &mut self.links {
            if off.contains(FaultKind::Mtu) {
                link.mtu = 1_500;
            }
            let rates = link.lines.each_ref().map(|line| line.rate_bits);
            link.lines.iter_mut().for_each(|line| line.without(off));
            if self.fair {
                // The bottleneck is what such a world is about.
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
