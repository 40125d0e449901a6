//! Random traces of a peer and an application have the same result with and without aggregation.

use proptest::prelude::*;
use tcp::{CongestionAlgorithm, EcnUse};
use wire::Ecn;
use wire::tcp::{Flags, Timestamp};

use super::{Bench, FULL, with_ecn};
use crate::common::MILLIS;
use crate::common::frames::Tcp;
use crate::common::peer::Client;

/// The next action of the peer or the application.
#[derive(Clone, Debug)]
enum Step {
    /// Segments that arrive in one turn.
    Batch(Vec<Kind>),
    Read(usize),
    Write(usize),
    Wait(u64),
}

/// A segment of the peer.
#[derive(Clone, Debug)]
enum Kind {
    Data(usize),
    Push(usize),
    /// Data, with an ACK for this many more bytes.
    DataAck(usize, u32),
    Ack(u32),
    /// Data behind a gap that only `Fill` closes.
    Skip(usize),
    Fill,
    Repeat,
    Tick,
    Urgent(usize),
    /// The peer advertises this window from now on.
    Window(u16),
    /// From now on the peer echoes the timestamps of the bytes that it acknowledges.
    Echo,
    /// Data in a packet marked CE.
    Marked(usize),
    /// Data in an ECN-capable packet without a mark.
    Capable(usize),
    Echoed(usize),
    /// Data with an old timestamp.
    Stale(usize),
}

/// Age of an old timestamp: more than the reordering that is tolerated.
const STALE: u32 = 3;

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
        1 => len.clone().prop_map(Kind::Urgent),
        1 => prop_oneof![Just(0), 0u16..1_024].prop_map(Kind::Window),
        1 => Just(Kind::Echo),
        1 => len.clone().prop_map(Kind::Marked),
        1 => len.clone().prop_map(Kind::Capable),
        1 => len.clone().prop_map(Kind::Echoed),
        1 => len.prop_map(Kind::Stale),
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

/// Gives a segment an old timestamp, as if it had been delayed.
fn stale(mut data: Tcp) -> Tcp {
    data.options.timestamp = data.options.timestamp.map(|stamp| Timestamp {
        value: stamp.value.wrapping_sub(STALE),
        ..stamp
    });
    data
}

impl Bench {
    /// The frame of the next segment of a kind. `acked`: the peer's highest ACK number; `missing`:
    /// segments left out so far.
    fn frame(&mut self, kind: &Kind, acked: &mut u32, missing: &mut Vec<Tcp>) -> Option<Vec<u8>> {
        let segment = self.segment(kind, acked, missing)?;
        let frame = self.w.peer.frame(&segment);
        Some(match kind {
            Kind::Marked(_) => with_ecn(frame, Ecn::Ce),
            Kind::Capable(_) => with_ecn(frame, Ecn::Ect0),
            _ => frame,
        })
    }

    fn segment(&mut self, kind: &Kind, acked: &mut u32, missing: &mut Vec<Tcp>) -> Option<Tcp> {
        let more = |acked: &mut u32, client: &Client, by: u32| {
            let open = client.rcv.wrapping_sub(*acked);
            *acked = acked.wrapping_add(by.min(open));
        };
        let mut segment = match *kind {
            Kind::Data(len) | Kind::Marked(len) | Kind::Capable(len) => self.data(len),
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
            Kind::Echoed(len) => {
                let data = self.data(len);
                data.with(Flags::ACK | Flags::ECE)
            }
            Kind::Stale(len) => {
                let data = self.data(len);
                missing.push(data.clone());
                stale(data)
            }
            Kind::Tick => {
                self.value += 1;
                return None;
            }
            Kind::Window(units) => {
                self.client.window = units;
                return None;
            }
            Kind::Echo => {
                let mut stamps = self
                    .sent
                    .iter()
                    .rev()
                    .filter_map(|sent| sent.options.timestamp);
                self.echo = stamps.next().map_or(self.echo, |stamp| stamp.value);
                return None;
            }
        };
        segment.ack = *acked;
        Some(segment)
    }

    /// Plays a trace. With `together` the segments of a batch arrive in one turn, otherwise in one
    /// each.
    fn play(mut self, steps: &[Step], together: bool) -> (Vec<Tcp>, Vec<u8>, String) {
        let mut acked = self.client.rcv;
        let mut missing = Vec::new();
        for step in steps {
            match step {
                Step::Batch(kinds) => {
                    let frames: Vec<Vec<u8>> = kinds
                        .iter()
                        .filter_map(|kind| self.frame(kind, &mut acked, &mut missing))
                        .collect();
                    let most = if together { frames.len() } else { 1 };
                    for frames in frames.chunks(most.max(1)) {
                        self.batch_of_frames(frames.to_vec());
                    }
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
        // Everything that the connection holds, and TCP's counters.
        let connections: Vec<String> = self
            .w
            .stack
            .connections()
            .map(|(_, conn)| without_stopwatch(&format!("{conn:#?}")))
            .collect();
        let counted = self.w.stack.tcp_counters().clone();
        let info = format!("{:?} {counted:?} {}", self.info(), connections.join("\n"));
        (self.sent, self.read, info)
    }
}

/// Removes the fields for busy times from a `Debug` text. A short moment may be attributed
/// differently, and `Info` has their sum.
fn without_stopwatch(shown: &str) -> String {
    let mut kept = String::new();
    let mut within = false;
    for line in shown.lines() {
        let field = line.trim_start();
        within |= field.starts_with("busy_ns: [");
        if !within && !field.starts_with("busy_since_ns:") {
            kept.push_str(line);
            kept.push('\n');
        }
        within &= !field.starts_with(']');
    }
    kept
}

/// The parameters of a connection.
#[derive(Clone, Copy, Debug)]
struct Choice {
    stamps: bool,
    merge_acks: bool,
    /// Flags of the SYN.
    syn: Flags,
    congestion: CongestionAlgorithm,
}

const PLAIN: Choice = Choice {
    stamps: true,
    merge_acks: false,
    syn: Flags::SYN,
    congestion: CongestionAlgorithm::Cubic,
};

fn choices() -> impl Strategy<Value = Choice> {
    let syn = prop_oneof![
        2 => Just(Flags::SYN),
        1 => Just(Flags::SYN | Flags::ECE | Flags::CWR),
        1 => Just(Flags::SYN | Flags::ECE | Flags::CWR | Flags::AE),
    ];
    let congestion = proptest::sample::select(&[
        CongestionAlgorithm::Cubic,
        CongestionAlgorithm::NewReno,
        CongestionAlgorithm::Dctcp,
    ]);
    (any::<bool>(), any::<bool>(), syn, congestion).prop_map(
        |(stamps, merge_acks, syn, congestion)| Choice {
            stamps,
            merge_acks,
            syn,
            congestion,
        },
    )
}

/// Plays a trace with and without aggregation: bytes, sent segments and all variables must be the
/// same.
fn compare(steps: &[Step], choice: Choice) -> Result<(), TestCaseError> {
    let play = |aggregation_max, offload_acks| {
        let bench = Bench::with_flags(choice.syn, choice.stamps, aggregation_max, |config| {
            config.merge_acks = choice.merge_acks;
            config.offload_acks = offload_acks;
            config.tcp.congestion = choice.congestion;
            config.tcp.ecn = EcnUse::Accurate;
        });
        bench.play(steps, true)
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

/// Data held back behind a pure ACK is polled for once per turn, whether the ACK leaves alone or in
/// a train.
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
    compare(&burst_waits, PLAIN).unwrap();
    let window_is_full = [
        Write(14_601),
        Wait(3),
        Batch(vec![DataAck(FULL, 1_460)]),
        Wait(40),
        Write(4_380),
        Batch(vec![Ack(1_895), Data(FULL), DataAck(FULL, 1_025)]),
    ];
    let stampless = Choice {
        stamps: false,
        ..PLAIN
    };
    compare(&window_is_full, stampless).unwrap();
}

/// Batches that a receiver gets, with loss and reordering.
fn received() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![4 => Just(FULL - 20), 1 => 1usize..FULL - 20];
    let kind = prop_oneof![
        8 => len.clone().prop_map(Kind::Data),
        1 => len.clone().prop_map(Kind::Push),
        2 => len.clone().prop_map(Kind::Skip),
        2 => Just(Kind::Fill),
        2 => Just(Kind::Repeat),
        1 => Just(Kind::Tick),
        2 => len.clone().prop_map(Kind::Marked),
        2 => len.prop_map(Kind::Capable),
    ];
    let step = prop_oneof![
        4 => proptest::collection::vec(kind, 1..16).prop_map(Step::Batch),
        2 => Just(Step::Read(usize::MAX)),
        1 => (0u64..60).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..16)
}

/// Compares with turns of one segment each: every ACK must be sent, with the same SACKs and marks.
fn compare_with_turns_of_their_own(steps: &[Step], choice: Choice) -> Result<(), TestCaseError> {
    let play = |together| {
        let bench = Bench::with_flags(choice.syn, choice.stamps, 20, |config| {
            config.tcp.congestion = choice.congestion;
            config.tcp.ecn = EcnUse::Accurate;
        });
        bench.play(steps, together)
    };
    let (alone, together) = (play(false), play(true));
    prop_assert_eq!(&alone.0, &together.0);
    prop_assert!(alone.1 == together.1);
    Ok(())
}

#[test]
fn established_batch_that_fills_gaps_is_answered_segment_by_segment() {
    use Kind::{Data, Fill, Repeat, Skip};
    let full = FULL - 20;
    let held = Step::Batch(vec![
        Data(full),
        Skip(full),
        Skip(full),
        Skip(full),
        Skip(full),
    ]);
    for batch in [
        vec![Fill, Fill],
        vec![Repeat, Data(full), Data(full), Data(full), Data(full)],
        vec![Repeat, Data(full), Repeat, Data(full), Repeat],
    ] {
        let steps = [held.clone(), Step::Batch(batch)];
        compare_with_turns_of_their_own(&steps, PLAIN).unwrap();
        compare_with_turns_of_their_own(&steps[1..], PLAIN).unwrap();
    }
}

/// The number of cases; `PROPTEST_CASES` sets it.
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
        choice in choices(),
    ) {
        compare(&steps, choice)?;
    }

    #[test]
    fn any_batch_of_a_receiver_is_answered_as_in_turns_of_their_own(
        steps in received(),
        choice in choices(),
    ) {
        compare_with_turns_of_their_own(&steps, choice)?;
    }
}
