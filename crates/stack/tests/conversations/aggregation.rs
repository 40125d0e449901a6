//! Receive aggregation and ACK trains: a batch leaves a connection in the same state, with the same
//! answers, as without aggregation.

use std::net::SocketAddr;

use ring::socket_block::SocketId;
use ring::spsc;
use stack::context::{Control, DontFragment, InfoQuery, SocketOption};
use wire::Ecn;
use wire::tcp::{Flags, Options, SackBlock, Timestamp};

use crate::common::frames::Tcp;
use crate::common::peer::Client;
use crate::common::{MILLIS, PEER_V4, PEER_V6, PORT, STACK_V4, STACK_V6, World};

mod traces;

/// Payload of a full segment with timestamps.
const FULL: usize = 1_448;

/// A world with one connection. The peer's segments are collected and sent in batches.
struct Bench {
    w: World,
    client: Client,
    socket: SocketId,
    stamps: bool,
    /// The peer's timestamp clock.
    value: u32,
    /// The timestamp value that the peer echoes.
    echo: u32,
    /// Every segment that the stack sent.
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
        Self::with_flags(Flags::SYN, stamps, aggregation_max, change)
    }

    /// A bench whose peer's SYN has these flags.
    fn with_flags(
        syn: Flags,
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
        Self::established(w, listener, client, (syn, stamps))
    }

    fn established(
        mut w: World,
        listener: SocketId,
        mut client: Client,
        (flags, stamps): (Flags, bool),
    ) -> Self {
        let mut syn = client.syn().with(flags);
        syn.options.sack_permitted = true;
        syn.options.window_scale = Some(7);
        syn.options.timestamp = stamps.then_some(Timestamp { value: 1, echo: 0 });
        w.send(&syn);
        let syn_ack = match w.peer.take_tcp() {
            mut answers if answers.len() == 1 => answers.remove(0),
            answers => panic!("a SYN-ACK is due: {answers:?}"),
        };
        client.on_syn_ack(&syn_ack);
        client.window = 512;
        let ack = client.ack().options(stamp(stamps, 1, 0));
        w.send(&ack);
        let socket = w.app.accept(listener).unwrap();
        w.peer.forget();
        Self {
            w,
            client,
            socket,
            stamps,
            value: 1,
            echo: 0,
            sent: Vec::new(),
            read: Vec::new(),
        }
    }

    /// The peer's next data segment.
    fn data(&mut self, len: usize) -> Tcp {
        let first = self.client.nxt;
        let bytes: Vec<u8> = (0..len as u32).map(|n| (first + n) as u8).collect();
        let mut segment = self.client.data(&bytes);
        segment.flags = Flags::ACK;
        self.stamped(segment)
    }

    fn stamped(&self, segment: Tcp) -> Tcp {
        segment.options(stamp(self.stamps, self.value, self.echo))
    }

    /// Runs one turn in which all these segments arrive.
    fn batch(&mut self, segments: &[Tcp]) {
        let frames = segments.iter().map(|segment| self.w.peer.frame(segment));
        self.batch_of_frames(frames.collect());
    }

    fn batch_of_frames(&mut self, frames: Vec<Vec<u8>>) {
        for frame in frames {
            self.w.peer.transmit(&frame);
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
        let asked = InfoQuery { socket, answer };
        self.w.app.control(Control::Info(asked));
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

fn stamp(on: bool, value: u32, echo: u32) -> Options {
    Options {
        timestamp: on.then_some(Timestamp { value, echo }),
        ..Options::default()
    }
}

#[test]
fn established_batch_is_one_run_and_its_acks_a_train() {
    let mut bench = Bench::new(20, |_| {});
    // By then quick ACKs have ended, and the buffer holds more than a batch.
    for _ in 0..60 {
        bench.value += 1;
        let segments = [bench.data(FULL), bench.data(FULL)];
        bench.batch(&segments);
        bench.read(usize::MAX);
        bench.w.advance(MILLIS);
    }
    bench.sent.clear();
    let count = |bench: &Bench| (bench.counter("rx_merged"), bench.counter("acks_in_trains"));
    let before = count(&bench);
    let segments: Vec<Tcp> = (0..10).map(|_| bench.data(FULL)).collect();
    bench.batch(&segments);
    let after = count(&bench);
    assert_eq!(after.0 - before.0, 9);
    // The last ACK may be due only after the application has read.
    let in_trains = (after.1 - before.1) as usize;
    assert!(in_trains + 1 >= bench.sent.len(), "{in_trains}");
    let acks: Vec<u32> = bench.sent.iter().map(|ack| ack.ack).collect();
    assert!(acks.len() >= 5 && acks.is_sorted(), "{acks:?}");
    assert_eq!(acks.last(), Some(&bench.client.nxt));
}

#[test]
fn established_run_is_no_longer_than_the_limit() {
    for (limit, merged) in [(1, 0), (2, 10), (3, 13), (5, 16), (20, 19)] {
        let mut bench = Bench::new(limit, |_| {});
        let segments: Vec<Tcp> = (0..20).map(|_| bench.data(FULL)).collect();
        bench.batch(&segments);
        assert_eq!(bench.counter("rx_merged"), merged, "limit {limit}");
        bench.read(usize::MAX);
        assert_eq!(bench.read.len(), 20 * FULL);
    }
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
            let mut bench = Bench::established(w, listener, client, (Flags::SYN, true));
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
fn established_acks_of_a_batch_that_may_be_fragmented_have_numbers_of_their_own() {
    let mut bench = Bench::new(20, |_| {});
    let choice = SocketOption::MtuDiscover {
        dont_fragment: DontFragment::Never,
        retransmits: true,
        heeds_v6: true,
    };
    bench.w.app.option(bench.socket, choice);
    bench.w.settle();
    let segments: Vec<Tcp> = (0..8).map(|_| bench.data(FULL)).collect();
    bench.batch(&segments);
    let mut numbers = bench.w.peer.fragmentable.clone();
    assert!(numbers.len() >= 4, "{numbers:?}");
    let count = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "{numbers:?}");
}

#[test]
fn established_batch_beside_a_full_turn_of_output_is_answered_as_ever() {
    let mut sender = Bench::new(20, |config| {
        config.tcp.initial_window_segments = 2_000;
        config.tcp.send_buffer.bytes_default = 4 << 20;
        config.limits.large_chunks = 2_048;
        config.limits.segment_records = 4_096;
    });
    sender.client.window = 60_000;
    let ack = sender.client.ack();
    let ack = sender.stamped(ack);
    sender.batch(&[ack]);
    let (mut w, socket) = (sender.w, sender.socket);
    let own = SocketAddr::new(STACK_V4, PORT + 1);
    let listener = w.listen_at(own, 8);
    let client = w.client_from(PEER_V4, own);
    let mut bench = Bench::established(w, listener, client, (Flags::SYN, true));
    // The sender has more data than one turn sends, and no ACK waits for it to ride on.
    let written = bench.w.app.write(socket, &vec![1; 1_200 * FULL]);
    assert!(written > 600 * FULL, "{written}");
    bench.w.turn();
    let segments: Vec<Tcp> = (0..8).map(|_| bench.data(FULL)).collect();
    bench.batch(&segments);
    let acks = bench.sent.iter().filter(|sent| sent.src_port == PORT + 1);
    let acks: Vec<u32> = acks.map(|sent| sent.ack).collect();
    assert!(acks.len() >= 4, "{acks:?}");
    assert!(bench.sent.len() > 600, "{}", bench.sent.len());
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
    // The ACK of the FIN may be delayed.
    bench.w.advance(100 * MILLIS);
    bench.batch(&[]);
    let acks: Vec<u32> = bench.sent.iter().map(|ack| ack.ack).collect();
    assert!(acks.is_sorted(), "{acks:?}");
    assert_eq!(acks.last(), Some(&bench.client.nxt));
}

/// Offset of the IPv4 header in a frame.
const IP_AT: usize = 14;

/// Adds four bytes of IPv4 options: three no-operations and the end.
fn with_ip_options(frame: Vec<u8>) -> Vec<u8> {
    let (head, rest) = frame.split_at(IP_AT + 20);
    let mut longer = [head, &[1, 1, 1, 0], rest].concat();
    longer[IP_AT] = 0x46;
    let total_len = u16::from_be_bytes([frame[IP_AT + 2], frame[IP_AT + 3]]) + 4;
    longer[IP_AT + 2..IP_AT + 4].copy_from_slice(&total_len.to_be_bytes());
    with_ip_checksum(longer)
}

/// Sets the ECN codepoint of a frame's packet.
pub(crate) fn with_ecn(mut frame: Vec<u8>, ecn: Ecn) -> Vec<u8> {
    frame[IP_AT + 1] = ecn.within(frame[IP_AT + 1]);
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

/// Sets the flag "more fragments".
fn fragment(mut frame: Vec<u8>) -> Vec<u8> {
    frame[IP_AT + 6] |= 0x20;
    with_ip_checksum(frame)
}

fn as_it_is(frame: Vec<u8>) -> Vec<u8> {
    frame
}

type Odd = (&'static str, fn(&mut Tcp), fn(Vec<u8>) -> Vec<u8>);

const ODD: [Odd; 8] = [
    ("IP options", |_| {}, with_ip_options),
    (
        "another ECN codepoint",
        |_| {},
        |frame| with_ecn(frame, Ecn::Ce),
    ),
    ("a fragment", |_| {}, fragment),
    ("no timestamp", |tcp| tcp.options.timestamp = None, as_it_is),
    ("another flag", |tcp| tcp.flags |= Flags::ECE, as_it_is),
    ("urgent", |tcp| tcp.flags |= Flags::URG, as_it_is),
    (
        "another option",
        |tcp| tcp.options.mss = Some(1_460),
        as_it_is,
    ),
    (
        "SACK",
        |tcp| {
            let [left, right] = [10, 20].map(|n| wire::SeqNumber(tcp.ack + n));
            tcp.options.sack.push(SackBlock { left, right });
        },
        as_it_is,
    ),
];

/// Payload of a segment with room for any option.
const ROOMY: usize = 1_000;

#[test]
fn established_odd_segment_between_two_joins_neither() {
    for (name, change, framed) in ODD {
        let mut bench = Bench::new(20, |_| {});
        let mut segments: Vec<Tcp> = (0..3).map(|_| bench.data(ROOMY)).collect();
        change(&mut segments[1]);
        for (index, segment) in segments.iter().enumerate() {
            let frame = bench.w.peer.frame(segment);
            let frame = if index == 1 { framed(frame) } else { frame };
            bench.w.peer.transmit(&frame);
        }
        bench.batch(&[]);
        assert_eq!(bench.counter("rx_merged"), 0, "{name}");
        bench.read(usize::MAX);
        let taken = if name == "a fragment" { 1 } else { 3 };
        assert_eq!(bench.read.len(), taken * ROOMY, "{name}");
    }
}

#[test]
fn established_segment_with_an_older_ack_begins_a_run() {
    let mut bench = Bench::new(20, |_| {});
    // Data in flight, so that ACK numbers can go back.
    bench.w.app.write(bench.socket, &[7; 100]);
    bench.batch(&[]);
    let mut segments: Vec<Tcp> = (0..4).map(|_| bench.data(ROOMY)).collect();
    segments[2].ack -= 1;
    bench.batch(&segments);
    // Segment two joins one, and four joins three.
    assert_eq!(bench.counter("rx_merged"), 2);
    bench.read(usize::MAX);
    assert_eq!(bench.read.len(), 4 * ROOMY);
}

#[test]
fn settings_merge_twenty_segments_and_no_acks() {
    let config = stack::StackConfig::default();
    assert_eq!((config.aggregation_max, config.merge_acks), (20, false));
}
