//! Receive aggregation of interleaved flows: each connection has the same state and answers as
//! without aggregation.

use proptest::prelude::*;
use ring::socket_block::SocketId;
use ring::spsc;
use stack::StackConfig;
use stack::context::{Control, InfoQuery};
use tcp::{CongestionAlgorithm, EcnUse};
use wire::Ecn;
use wire::tcp::{Flags, Options, Timestamp};

use crate::aggregation::with_ecn;
use crate::common::frames::Tcp;
use crate::common::peer::Client;
use crate::common::{MILLIS, World};

/// Payload of a full segment with timestamps.
const FULL: usize = 1_448;
const FLOWS: usize = 6;

/// A connection, its peer, and everything that was observed of it.
struct Flow {
    client: Client,
    socket: SocketId,
    /// Segments lost on the way.
    lost: Vec<Tcp>,
    sent: Vec<Tcp>,
    /// Resets for segments of an ended connection. They share a queue with those of other flows,
    /// whose length decides whether an ACK leaves before them.
    resets: Vec<Tcp>,
    read: Vec<u8>,
}

/// A world with several connections whose segments arrive in common batches.
struct Bench {
    w: World,
    flows: Vec<Flow>,
}

/// The kind of a peer's congestion signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signals {
    /// An echo until the peer has reduced its window (RFC 3168).
    Classic,
    /// A counter in the flags (RFC 9768).
    Accurate,
    /// An echo with each change of the mark (RFC 8257).
    Dctcp,
}

impl Signals {
    fn settings(self, config: &mut StackConfig) {
        config.tcp.ecn = match self {
            Self::Classic | Self::Dctcp => EcnUse::WhenAsked,
            Self::Accurate => EcnUse::Accurate,
        };
        if self == Self::Dctcp {
            config.tcp.congestion = CongestionAlgorithm::Dctcp;
        }
    }

    /// Flags of the peer's SYN.
    fn hello(self) -> Flags {
        let classic = Flags::SYN | Flags::ECE | Flags::CWR;
        match self {
            Self::Classic | Self::Dctcp => classic,
            Self::Accurate => classic | Flags::AE,
        }
    }
}

/// A segment of a peer.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Data(usize),
    Push(usize),
    /// Data in an ECN-capable packet without a mark.
    Capable(usize),
    /// Data in a packet marked CE.
    Marked(usize),
    /// Data that echoes a mark on our packets.
    Echoed(usize),
    /// Data that tells of a window that was reduced.
    Reduced(usize),
    Lost(usize),
    /// The oldest lost segment.
    Retransmission,
    Duplicate,
    Ack,
    Fin,
    Reset,
}

#[derive(Clone, Debug)]
enum Step {
    /// A batch: for each flow in order, this many segments of a kind.
    Batch(Vec<(usize, usize, Kind)>),
    Read(usize),
    Write(usize, usize),
    Wait(u64),
}

impl Bench {
    fn new(aggregation_max: u16, signals: Signals) -> Self {
        let mut w = World::with(|setup| {
            setup.config.aggregation_max = aggregation_max;
            signals.settings(&mut setup.config);
            setup.wire.batch = 256;
            // Room for a reset of each segment: otherwise the order would decide which one is
            // dropped.
            setup.config.limits.control_queue_max = 4_096;
        });
        let listener = w.listen();
        let flows = (0..FLOWS).map(|_| Flow::established(&mut w, listener, signals));
        let flows = flows.collect();
        w.peer.forget();
        Self { w, flows }
    }

    /// Runs one turn in which all these frames arrive.
    fn batch(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            self.w.peer.transmit(frame);
        }
        self.w.settle();
        for segment in self.w.peer.take_tcp() {
            let of_segment = |flow: &&mut Flow| flow.client.peer.port() == segment.dst_port;
            if let Some(flow) = self.flows.iter_mut().find(of_segment) {
                if segment.seq == flow.client.rcv {
                    flow.client.take(&segment);
                }
                match segment.flags.contains(Flags::RST) {
                    true => flow.resets.push(segment),
                    false => flow.sent.push(segment),
                }
            }
        }
    }

    fn frames(&mut self, bursts: &[(usize, usize, Kind)]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for &(flow, count, kind) in bursts {
            for _ in 0..count {
                let segment = self.flows[flow].segment(kind);
                let frame = segment.map(|segment| self.w.peer.frame(&segment));
                frames.extend(frame.map(|frame| match kind {
                    Kind::Marked(_) => with_ecn(frame, Ecn::Ce),
                    Kind::Capable(_) | Kind::Reduced(_) => with_ecn(frame, Ecn::Ect0),
                    _ => frame,
                }));
            }
        }
        frames
    }

    fn play(mut self, steps: &[Step]) -> Vec<(Flow, String)> {
        for step in steps {
            match step {
                Step::Batch(bursts) => {
                    let frames = self.frames(bursts);
                    self.batch(&frames);
                }
                Step::Read(flow) => self.read(*flow),
                Step::Write(flow, len) => {
                    let socket = self.flows[*flow].socket;
                    self.w.app.write_if_open(socket, &vec![3; *len]);
                    self.batch(&[]);
                }
                Step::Wait(ms) => {
                    self.w.advance(ms * MILLIS);
                    self.batch(&[]);
                }
            }
        }
        (0..FLOWS).for_each(|flow| self.read(flow));
        let infos: Vec<String> = (0..FLOWS).map(|flow| self.info(flow)).collect();
        self.flows.into_iter().zip(infos).collect()
    }

    fn read(&mut self, flow: usize) {
        let bytes = self.w.app.read(self.flows[flow].socket);
        self.flows[flow].read.extend(bytes);
        self.batch(&[]);
    }

    /// `TCP_INFO` of a connection, empty if it has ended.
    fn info(&mut self, flow: usize) -> String {
        let (answer, mut answers) = spsc::queue(1);
        let socket = self.flows[flow].socket;
        let asked = InfoQuery { socket, answer };
        self.w.app.control(Control::Info(asked));
        self.w.settle();
        let info = answers.pop().flatten().map(|info| info.tcp);
        format!("{info:?} {:?}", self.w.app.state(socket))
    }

    fn counter(&self, name: &str) -> u64 {
        let rows = self.w.stack.counters().rows();
        rows.filter(|(row, _)| *row == name)
            .map(|(_, value)| value)
            .sum()
    }
}

impl Flow {
    fn established(w: &mut World, listener: SocketId, signals: Signals) -> Self {
        let mut client = w.client();
        let mut syn = client.syn().with(signals.hello());
        syn.options.sack_permitted = true;
        syn.options.window_scale = Some(7);
        syn.options.timestamp = Some(Timestamp { value: 1, echo: 0 });
        w.send(&syn);
        let syn_ack = match w.peer.take_tcp() {
            mut answers if answers.len() == 1 => answers.remove(0),
            answers => panic!("a SYN-ACK is due: {answers:?}"),
        };
        let is_classic = syn_ack.flags.contains(Flags::ECE);
        assert_eq!(is_classic, signals != Signals::Accurate);
        client.on_syn_ack(&syn_ack);
        client.window = 512;
        let ack = stamped(client.ack());
        w.send(&ack);
        Self {
            client,
            socket: w.app.accept(listener).expect("a connection"),
            lost: Vec::new(),
            sent: Vec::new(),
            resets: Vec::new(),
            read: Vec::new(),
        }
    }

    fn data(&mut self, len: usize) -> Tcp {
        let first = self.client.nxt;
        let bytes: Vec<u8> = (0..len as u32).map(|n| (first + n) as u8).collect();
        let segment = self.client.data(&bytes);
        stamped(segment).with(Flags::ACK)
    }

    /// The next segment of a kind; `None`: there is none.
    fn segment(&mut self, kind: Kind) -> Option<Tcp> {
        Some(match kind {
            Kind::Data(len) | Kind::Capable(len) | Kind::Marked(len) => self.data(len),
            Kind::Push(len) => self.data(len).with(Flags::ACK | Flags::PSH),
            Kind::Echoed(len) => self.data(len).with(Flags::ACK | Flags::ECE),
            Kind::Reduced(len) => self.data(len).with(Flags::ACK | Flags::CWR),
            Kind::Lost(len) => {
                let segment = self.data(len);
                self.lost.push(segment);
                return None;
            }
            Kind::Retransmission if self.lost.is_empty() => return None,
            Kind::Retransmission => self.lost.remove(0),
            Kind::Duplicate => {
                let nxt = self.client.nxt;
                let again = self.data(FULL).at(nxt.wrapping_sub(FULL as u32));
                self.client.nxt = nxt;
                again
            }
            Kind::Ack => stamped(self.client.ack()),
            Kind::Fin => stamped(self.client.fin()),
            Kind::Reset => self.client.rst(),
        })
    }
}

fn stamped(segment: Tcp) -> Tcp {
    segment.options(Options {
        timestamp: Some(Timestamp { value: 1, echo: 0 }),
        ..Options::default()
    })
}

#[test]
fn established_flows_that_interleave_are_runs() {
    for (burst, limit, merged) in [(1, 20, 7), (3, 20, 7), (1, 5, 6), (1, 1, 0)] {
        let mut bench = Bench::new(limit, Signals::Accurate);
        let bursts: Vec<(usize, usize, Kind)> = (0..8 / burst)
            .flat_map(|_| (0..FLOWS).map(move |flow| (flow, burst, Kind::Data(FULL))))
            .chain((0..FLOWS).map(|flow| (flow, 8 % burst, Kind::Data(FULL))))
            .collect();
        let frames = bench.frames(&bursts);
        bench.batch(&frames);
        let found = bench.counter("rx_merged");
        let expected = FLOWS as u64 * merged;
        // Two frames were processed before the interleaving was detected.
        let before = 2 * u64::from(merged > 0);
        assert!(
            found <= expected && found + before >= expected,
            "bursts of {burst}, limit {limit}: {found} of {expected}"
        );
    }
}

/// Short frames stay in order of arrival: they carry messages, and a flow rarely has two in a
/// batch. An average of 256 bytes is no longer short.
#[test]
fn established_short_segments_that_interleave_are_taken_as_they_came() {
    /// Bytes of Ethernet, IPv4 and TCP headers with timestamps.
    const HEADERS: usize = 14 + 20 + 32;
    let merged = |len: usize| {
        let mut bench = Bench::new(20, Signals::Accurate);
        let bursts: Vec<(usize, usize, Kind)> = (0..8)
            .flat_map(|_| (0..FLOWS).map(move |flow| (flow, 1, Kind::Data(len))))
            .collect();
        let frames = bench.frames(&bursts);
        assert!(frames.iter().all(|frame| frame.len() == HEADERS + len));
        bench.batch(&frames);
        bench.counter("rx_merged")
    };
    assert_eq!(merged(255 - HEADERS), 0);
    assert!(merged(256 - HEADERS) > 0);
}

/// The ECE flag of the ACKs for a segment, for a marked one, and for two that follow it.
fn echoes(signals: Signals, follower: Kind) -> Vec<bool> {
    let mut bench = Bench::new(20, signals);
    let kinds = [
        Kind::Capable(FULL),
        Kind::Marked(FULL),
        follower,
        Kind::Capable(FULL),
    ];
    for kind in kinds {
        let frames = bench.frames(&[(0, 1, kind)]);
        bench.batch(&frames);
        bench.w.advance(300 * MILLIS);
        bench.batch(&[]);
    }
    let acks = bench.flows[0].sent.iter();
    acks.map(|ack| ack.flags.contains(Flags::ECE)).collect()
}

#[test]
fn established_flow_that_is_marked_answers_by_the_rule_of_its_signals() {
    let (plain, reduced) = (Kind::Capable(FULL), Kind::Reduced(FULL));
    let classic = echoes(Signals::Classic, plain);
    assert_eq!(classic, [false, true, true, true]);
    let classic = echoes(Signals::Classic, reduced);
    assert_eq!(classic, [false, true, false, false]);
    let dctcp = echoes(Signals::Dctcp, plain);
    assert_eq!(dctcp, [false, true, false, false]);
}

fn signals() -> impl Strategy<Value = Signals> {
    prop_oneof![
        Just(Signals::Classic),
        Just(Signals::Accurate),
        Just(Signals::Dctcp),
    ]
}

fn kinds() -> impl Strategy<Value = Kind> {
    let len = prop_oneof![4 => Just(FULL), 1 => 1usize..FULL];
    prop_oneof![
        20 => len.clone().prop_map(Kind::Data),
        4 => len.clone().prop_map(Kind::Push),
        10 => len.clone().prop_map(Kind::Capable),
        2 => len.clone().prop_map(Kind::Marked),
        1 => len.clone().prop_map(Kind::Echoed),
        1 => len.clone().prop_map(Kind::Reduced),
        2 => len.prop_map(Kind::Lost),
        3 => Just(Kind::Retransmission),
        1 => Just(Kind::Duplicate),
        1 => Just(Kind::Ack),
        1 => Just(Kind::Fin),
        1 => Just(Kind::Reset),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let burst = (
        0..FLOWS,
        prop_oneof![3 => Just(1usize), 1 => 2usize..20],
        kinds(),
    );
    let step = prop_oneof![
        6 => proptest::collection::vec(burst, 1..60).prop_map(Step::Batch),
        3 => (0..FLOWS).prop_map(Step::Read),
        1 => (0..FLOWS, 1usize..20_000).prop_map(|(flow, len)| Step::Write(flow, len)),
        2 => (0u64..60).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..10)
}

/// The number of cases; `PROPTEST_CASES` sets it.
fn cases() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(96),
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_interleaving_is_taken_alike_with_and_without_aggregation(
        signals in signals(),
        steps in steps(),
    ) {
        let alone = Bench::new(1, signals).play(&steps);
        for limit in [2, 20] {
            let merged = Bench::new(limit, signals).play(&steps);
            for (at, ((one, info), (other, other_info))) in alone.iter().zip(&merged).enumerate() {
                let mut pairs = one.sent.iter().zip(&other.sent);
                let first = pairs.find(|(one, other)| one != other);
                prop_assert!(first.is_none(), "flow {}, limit {}: {:?}", at, limit, first);
                prop_assert_eq!(one.sent.len(), other.sent.len(), "flow {}, limit {}", at, limit);
                prop_assert_eq!(&one.resets, &other.resets, "flow {}, limit {}", at, limit);
                prop_assert!(one.read == other.read, "bytes of flow {}, limit {}", at, limit);
                prop_assert_eq!(info, other_info, "flow {}, limit {}", at, limit);
            }
        }
    }
}
