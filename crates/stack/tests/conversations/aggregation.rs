//! Receive aggregation and ACK trains: whatever arrives in one batch, a connection is left, and answers, as if aggregation were off.

use std::net::SocketAddr;

use proptest::prelude::*;
use ring::socket_block::SocketId;
use ring::spsc;
use stack::context::{Control, InfoQuery};
use tcp::CongestionAlgorithm;
use wire::tcp::{Flags, Options, Timestamp};

use crate::common::frames::Tcp;
use crate::common::peer::Client;
use crate::common::{MILLIS, PEER_V4, PEER_V6, PORT, STACK_V4, STACK_V6, World};

/// Payload of a full segment with timestamps.
const FULL: usize = 1_448;

/// A world with one connection whose peer's segments are written down first and sent in batches.
struct Bench {
    w: World,
    client: Client,
    socket: SocketId,
    stamps: bool,
    /// The peer's clock.
    value: u32,
    /// Everything the stack sent.
    sent: Vec<Tcp>,
    read: Vec<u8>,
}

impl Bench {
    fn new(aggregation_max: u16, change: impl FnOnce(&mut stack::StackConfig)) -> Self {
        Self::with_stamps(true, aggregation_max, change)
    }

    fn with_stamps(
        stamps: bool,
        aggregation_max: u16,
        change: impl FnOnce(&mut stack::StackConfig),
    ) -> Self {
        let mut w = World::with(|setup| {
            setup.config.aggregation_max = aggregation_max;
            setup.wire.mtu = 1_500;
            change(&mut setup.config);
        });
        let listener = w.listen();
        let client = w.client();
        Self::established(w, listener, client, stamps)
    }

    fn established(mut w: World, listener: SocketId, mut client: Client, stamps: bool) -> Self {
        let mut syn = client.syn();
        syn.options.sack_permitted = true;
        syn.options.window_scale = Some(7);
        syn.options.timestamp = stamps.then_some(Timestamp { value: 1, echo: 0 });
        w.send(&syn);
        let syn_ack = w.tcp_with(Flags::SYN | Flags::ACK);
        client.on_syn_ack(&syn_ack);
        client.window = 512;
        let ack = client.ack().options(stamp(stamps, 1));
        w.send(&ack);
        let socket = w.app.accept(listener).unwrap();
        w.peer.forget();
        Self {
            w,
            client,
            socket,
            stamps,
            value: 1,
            sent: Vec::new(),
            read: Vec::new(),
        }
    }

    /// The peer's next data.
    fn data(&mut self, len: usize) -> Tcp {
        let first = self.client.nxt;
        let bytes: Vec<u8> = (0..len as u32).map(|n| (first + n) as u8).collect();
        let mut segment = self.client.data(&bytes);
        segment.flags = Flags::ACK;
        self.stamped(segment)
    }

    fn stamped(&self, segment: Tcp) -> Tcp {
        segment.options(stamp(self.stamps, self.value))
    }

    /// One turn, in which all of these arrive.
    fn batch(&mut self, segments: &[Tcp]) {
        for segment in segments {
            self.w.peer.transmit(&self.w.peer.frame(segment));
        }
        self.w.settle();
        for segment in self.w.peer.take_tcp() {
            if segment.seq == self.client.rcv {
                self.client.take(&segment);
            }
            self.sent.push(segment);
        }
    }

    fn read(&mut self, max: usize) {
        let bytes = self.w.app.read_up_to(self.socket, max);
        self.read.extend(bytes);
        self.batch(&[]);
    }

    fn info(&mut self) -> tcp::Info {
        let (answer, mut answers) = spsc::queue(1);
        let socket = self.socket;
        let asked = self
            .w
            .app
            .side
            .controls
            .push(Control::Info(InfoQuery { socket, answer }));
        assert!(asked.is_ok());
        self.w.settle();
        answers.pop().flatten().expect("a connection").tcp
    }

    fn counter(&self, name: &str) -> u64 {
        let rows = self.w.stack.counters().rows();
        rows.filter(|(row, _)| *row == name)
            .map(|(_, value)| value)
            .sum()
    }
}

fn stamp(on: bool, value: u32) -> Options {
    Options {
        timestamp: on.then_some(Timestamp { value, echo: 0 }),
        ..Options::default()
    }
}

#[test]
fn established_batch_is_one_run_and_its_acks_a_train() {
    let mut bench = Bench::new(20, |_| {});
    // Quick ACKs end in time, and the buffer grows to hold more than a batch.
    for _ in 0..60 {
        bench.value += 1;
        let segments = [bench.data(FULL), bench.data(FULL)];
        bench.batch(&segments);
        bench.read(usize::MAX);
        bench.w.advance(MILLIS);
    }
    bench.sent.clear();
    let before = bench.counter("rx_merged");
    let segments: Vec<Tcp> = (0..10).map(|_| bench.data(FULL)).collect();
    bench.batch(&segments);
    assert_eq!(bench.counter("rx_merged") - before, 9);
    let acks: Vec<u32> = bench.sent.iter().map(|ack| ack.ack).collect();
    assert!(acks.len() >= 5 && acks.is_sorted(), "{acks:?}");
    assert_eq!(acks.last(), Some(&bench.client.nxt));
}

#[test]
fn established_batch_is_answered_as_its_segments_one_by_one() {
    for v6 in [false, true] {
        let play = |together: bool| {
            let mut w = World::with(|setup| setup.wire.mtu = 1_500);
            let (peer, own) = if v6 {
                (PEER_V6, STACK_V6)
            } else {
                (PEER_V4, STACK_V4)
            };
            let own = SocketAddr::new(own, PORT);
            let listener = w.listen_at(own, 8);
            let client = w.client_from(peer, own);
            let mut bench = Bench::established(w, listener, client, true);
            for round in 0..12 {
                bench.value += round;
                let segments: Vec<Tcp> = (0..8).map(|_| bench.data(FULL - 20)).collect();
                if together {
                    bench.batch(&segments);
                } else {
                    for segment in segments {
                        bench.batch(&[segment]);
                    }
                }
                bench.read(usize::MAX);
                bench.w.advance(MILLIS);
            }
            (bench.sent, bench.read)
        };
        let (alone, together) = (play(false), play(true));
        for (one, other) in alone.0.iter().zip(&together.0) {
            assert_eq!(one, other);
        }
        assert_eq!(alone.0.len(), together.0.len());
        assert!(alone.1 == together.1);
    }
}

#[test]
fn established_batch_with_merged_acks_is_answered_once() {
    let mut bench = Bench::new(20, |config| config.merge_acks = true);
    let segments: Vec<Tcp> = (0..10).map(|_| bench.data(FULL)).collect();
    bench.batch(&segments);
    assert_eq!(bench.sent.len(), 1);
    assert_eq!(bench.sent[0].ack, bench.client.nxt);
}

#[test]
fn established_damaged_segment_within_a_run_is_left_out() {
    let mut bench = Bench::new(20, |_| {});
    let segments: Vec<Tcp> = (0..3).map(|_| bench.data(FULL)).collect();
    let mut damaged = bench.w.peer.frame(&segments[1]);
    *damaged.last_mut().unwrap() ^= 1;
    let (first, last) = (
        bench.w.peer.frame(&segments[0]),
        bench.w.peer.frame(&segments[2]),
    );
    for frame in [first, damaged, last] {
        bench.w.peer.transmit(&frame);
    }
    bench.batch(&[]);
    bench.read(usize::MAX);
    assert_eq!(bench.read.len(), FULL);
    assert_eq!(bench.counter("rx_drop_tcp_checksum"), 1);
    let again = segments[1].clone();
    bench.batch(&[again]);
    bench.read(usize::MAX);
    assert_eq!(bench.read.len(), 3 * FULL);
}

#[test]
fn established_fin_behind_a_run_passes_alone() {
    let mut bench = Bench::new(20, |_| {});
    let mut segments: Vec<Tcp> = (0..4).map(|_| bench.data(FULL)).collect();
    let fin = bench.client.fin();
    segments.push(bench.stamped(fin));
    bench.batch(&segments);
    bench.read(usize::MAX);
    assert_eq!(bench.counter("rx_merged"), 3);
    assert_eq!(bench.read.len(), 4 * FULL);
    // The ACK of the FIN may be a delayed one.
    bench.w.advance(100 * MILLIS);
    bench.batch(&[]);
    let acks: Vec<u32> = bench.sent.iter().map(|ack| ack.ack).collect();
    assert!(acks.is_sorted(), "{acks:?}");
    assert_eq!(acks.last(), Some(&bench.client.nxt));
}

/// Where the IPv4 header lies in a frame.
const IP_AT: usize = 14;

/// Four bytes of options in the IPv4 header: three of no operation, and the end.
fn with_ip_options(frame: Vec<u8>) -> Vec<u8> {
    let (head, rest) = frame.split_at(IP_AT + 20);
    let mut longer = [head, &[1, 1, 1, 0], rest].concat();
    longer[IP_AT] = 0x46;
    let total_len = u16::from_be_bytes([frame[IP_AT + 2], frame[IP_AT + 3]]) + 4;
    longer[IP_AT + 2..IP_AT + 4].copy_from_slice(&total_len.to_be_bytes());
    with_ip_checksum(longer)
}

/// The congestion that a router has seen.
fn marked(mut frame: Vec<u8>) -> Vec<u8> {
    frame[IP_AT + 1] |= 0b11;
    with_ip_checksum(frame)
}

fn with_ip_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    let end = IP_AT + 4 * usize::from(frame[IP_AT] & 0x0f);
    frame[IP_AT + 10..IP_AT + 12].fill(0);
    let words = frame[IP_AT..end].chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[IP_AT + 10..IP_AT + 12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    frame
}

#[test]
fn established_odd_segment_between_two_joins_neither() {
    type Odd = (&'static str, fn(&mut Tcp), fn(Vec<u8>) -> Vec<u8>);
    let odd: [Odd; 5] = [
        ("IP options", |_| {}, with_ip_options),
        ("another ECN codepoint", |_| {}, marked),
        (
            "no timestamp",
            |tcp| tcp.options.timestamp = None,
            |frame| frame,
        ),
        ("another flag", |tcp| tcp.flags |= Flags::ECE, |frame| frame),
        (
            "another option",
            |tcp| tcp.options.mss = Some(1_460),
            |frame| frame,
        ),
    ];
    for (name, change, framed) in odd {
        let mut bench = Bench::new(20, |_| {});
        let mut segments: Vec<Tcp> = (0..3).map(|_| bench.data(FULL)).collect();
        change(&mut segments[1]);
        for (index, segment) in segments.iter().enumerate() {
            let frame = bench.w.peer.frame(segment);
            let frame = if index == 1 { framed(frame) } else { frame };
            bench.w.peer.transmit(&frame);
        }
        bench.batch(&[]);
        assert_eq!(bench.counter("rx_merged"), 0, "{name}");
        bench.read(usize::MAX);
        assert!(
            bench.read.len() == 3 * FULL || name == "no timestamp",
            "{name}"
        );
    }
}

#[test]
fn settings_merge_twenty_segments_and_no_acks() {
    let config = stack::StackConfig::default();
    assert_eq!((config.aggregation_max, config.merge_acks), (20, false));
}

/// What the peer or the application does next.
#[derive(Clone, Debug)]
enum Step {
    /// These arrive in one turn.
    Batch(Vec<Kind>),
    Read(usize),
    Write(usize),
    Wait(u64),
}

/// A segment of the peer's.
#[derive(Clone, Debug)]
enum Kind {
    Data(usize),
    Push(usize),
    /// Data with an ACK of so many bytes more.
    DataAck(usize, u32),
    Ack(u32),
    /// Data behind a gap that is never filled but by `Fill`.
    Skip(usize),
    Fill,
    Repeat,
    Tick,
    Urgent(usize),
}

fn kinds() -> impl Strategy<Value = Kind> {
    let len = prop_oneof![4 => Just(FULL), 1 => 1usize..FULL];
    prop_oneof![
        8 => len.clone().prop_map(Kind::Data),
        2 => len.clone().prop_map(Kind::Push),
        3 => (len.clone(), 0u32..4_000).prop_map(|(len, acked)| Kind::DataAck(len, acked)),
        2 => (0u32..6_000).prop_map(Kind::Ack),
        1 => len.clone().prop_map(Kind::Skip),
        1 => Just(Kind::Fill),
        1 => Just(Kind::Repeat),
        2 => Just(Kind::Tick),
        1 => len.prop_map(Kind::Urgent),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => proptest::collection::vec(kinds(), 1..24).prop_map(Step::Batch),
        2 => (1usize..60_000).prop_map(Step::Read),
        2 => (1usize..20_000).prop_map(Step::Write),
        2 => (0u64..60).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..24)
}

impl Bench {
    /// The segment of a kind; `acked` = up to where the peer has acknowledged, `missing` = what it left out.
    fn segment(&mut self, kind: &Kind, acked: &mut u32, missing: &mut Vec<Tcp>) -> Option<Tcp> {
        let more = |acked: &mut u32, client: &Client, by: u32| {
            let open = client.rcv.wrapping_sub(*acked);
            *acked = acked.wrapping_add(by.min(open));
        };
        let mut segment = match *kind {
            Kind::Data(len) => self.data(len),
            Kind::Push(len) => {
                let data = self.data(len);
                data.with(Flags::ACK | Flags::PSH)
            }
            Kind::DataAck(len, by) => {
                more(acked, &self.client, by);
                self.data(len)
            }
            Kind::Ack(by) => {
                more(acked, &self.client, by);
                let ack = self.client.ack();
                self.stamped(ack)
            }
            Kind::Skip(len) => {
                let gap = self.data(len);
                missing.push(gap);
                self.data(len)
            }
            Kind::Fill => missing.pop()?,
            Kind::Repeat => {
                let nxt = self.client.nxt;
                let mut again = self.data(FULL);
                again.seq = nxt.wrapping_sub(FULL as u32);
                self.client.nxt = nxt;
                again
            }
            Kind::Urgent(len) => {
                let data = self.data(len);
                data.with(Flags::ACK | Flags::URG)
            }
            Kind::Tick => {
                self.value += 1;
                return None;
            }
        };
        segment.ack = *acked;
        Some(segment)
    }

    fn play(mut self, steps: &[Step]) -> (Vec<Tcp>, Vec<u8>, String) {
        let mut acked = self.client.rcv;
        let mut missing = Vec::new();
        for step in steps {
            match step {
                Step::Batch(kinds) => {
                    let segments: Vec<Tcp> = kinds
                        .iter()
                        .filter_map(|kind| self.segment(kind, &mut acked, &mut missing))
                        .collect();
                    self.batch(&segments);
                }
                Step::Read(max) => self.read(*max),
                Step::Write(len) => {
                    self.w.app.write(self.socket, &vec![3; *len]);
                    self.batch(&[]);
                }
                Step::Wait(ms) => {
                    self.w.advance(ms * MILLIS);
                    self.batch(&[]);
                }
            }
        }
        // All variables of the connection, and what TCP counted.
        let connections: Vec<String> = self
            .w
            .stack
            .connections()
            .map(|(_, conn)| format!("{conn:#?}"))
            .collect();
        let counted = self.w.stack.tcp_counters().clone();
        let info = format!("{:?} {counted:?} {}", self.info(), connections.join("\n"));
        (self.sent, self.read, info)
    }
}

/// The same bytes, the same segments out, the same variables within (the congestion window among them), whatever is put together.
fn compare(
    steps: &[Step],
    (stamps, merge_acks, newreno): (bool, bool, bool),
) -> Result<(), TestCaseError> {
    let play = |aggregation_max, offload_acks| {
        let bench = Bench::with_stamps(stamps, aggregation_max, |config| {
            config.merge_acks = merge_acks;
            config.offload_acks = offload_acks;
            if newreno {
                config.tcp.congestion = CongestionAlgorithm::NewReno;
            }
        });
        bench.play(steps)
    };
    let alone = play(1, false);
    for (aggregation_max, offload_acks) in [(1, true), (2, false), (5, true), (20, true)] {
        let merged = play(aggregation_max, offload_acks);
        prop_assert_eq!(&alone.0, &merged.0, "aggregation_max {}", aggregation_max);
        prop_assert!(alone.1 == merged.1);
        prop_assert_eq!(&alone.2, &merged.2, "aggregation_max {}", aggregation_max);
    }
    Ok(())
}

/// A pure ACK that leaves alone, or in a train: whether what is kept back behind it is asked for.
#[test]
fn established_bytes_kept_back_are_asked_for_once_a_turn() {
    use Kind::{Ack, Data, DataAck};
    use Step::{Batch, Read, Wait, Write};
    let burst_waits = [
        Batch(vec![Data(FULL)]),
        Write(1),
        Wait(1),
        Read(1),
        Write(6 * FULL),
        Write(3 * FULL),
        Batch(vec![Data(FULL); 5]),
    ];
    compare(&burst_waits, (true, false, false)).unwrap();
    let window_is_full = [
        Write(14_601),
        Wait(3),
        Batch(vec![DataAck(FULL, 1_460)]),
        Wait(40),
        Write(4_380),
        Batch(vec![Ack(1_895), Data(FULL), DataAck(FULL, 1_025)]),
    ];
    compare(&window_is_full, (false, false, false)).unwrap();
}

/// With `PROPTEST_CASES` as many as it says.
fn cases() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(128),
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_trace_is_taken_alike_with_and_without_aggregation(
        steps in steps(),
        stamps in any::<bool>(),
        merge_acks in any::<bool>(),
        newreno in any::<bool>(),
    ) {
        compare(&steps, (stamps, merge_acks, newreno))?;
    }
}
