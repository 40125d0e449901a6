//! ACK trains expanded into frames that are large enough, and into frames that are not.

use packetio::Port;
use packetio::loopback::{self, LoopbackOptions};
use tcp::{PlainAck, SegmentOut};
use wire::tcp::Timestamp;
use wire::{Addr, FlowKey, MacAddr, SeqNumber};

use super::{AckTrains, Expansion};
use crate::header_fields::{HeaderFields, LinkEnds};
use crate::limits::ACK_TRAINS_MAX;

const ACKS: u32 = 3;

fn key() -> FlowKey {
    let addr = |last| Addr::v4([10, 0, 0, last].into());
    FlowKey {
        local: addr(1),
        remote: addr(2),
        local_port: 80,
        remote_port: 4_000,
    }
}

fn ends() -> LinkEnds {
    LinkEnds {
        source: MacAddr([2, 0, 0, 0, 0, 1]),
        destination: MacAddr([2, 0, 0, 0, 0, 2]),
        header: HeaderFields::default(),
    }
}

/// The ACK of the `n`th segment after the first one.
fn ack(n: u32) -> PlainAck {
    PlainAck {
        seq: SeqNumber(1),
        ack: SeqNumber(1_448 * n),
        window: 100,
        timestamp: Some(Timestamp { value: 1, echo: 2 }),
    }
}

/// A train of ACKs, expanded into frames for packets of `mtu` bytes: the lengths of the frames, and
/// how many ACKs were lost.
fn expanded(mtu: usize, by_template: bool) -> (Vec<usize>, u64) {
    let options = LoopbackOptions {
        mtu,
        ..LoopbackOptions::default()
    };
    let mut port = loopback::echo(&options).unwrap();
    let mut trains = AckTrains::new();
    for n in 0..ACKS {
        let coupled = trains.last_of(&key()).is_some() && trains.couple(&ack(n));
        assert_eq!(coupled, n > 0);
        if !coupled {
            trains.push(&key(), ends(), SegmentOut::from(ack(n)));
        }
    }
    let how = Expansion {
        checksum_offload: false,
        by_template,
    };
    let frames = port.reserve(ACKS as usize + 1);
    let filled = trains.fill(frames, how);
    assert!(trains.is_empty());
    let lengths = frames.iter().map(|frame| frame.len());
    let used: Vec<usize> = lengths.filter(|&len| len > 0).collect();
    assert_eq!(used.len(), filled.used);
    (used, filled.too_small)
}

#[test]
fn train_fills_a_frame_with_each_ack() {
    for by_template in [false, true] {
        assert_eq!(expanded(1_500, by_template), (vec![66; 3], 0));
    }
}

#[test]
fn train_whose_frames_are_too_small_is_counted_and_sends_nothing() {
    for by_template in [false, true] {
        assert_eq!(expanded(40, by_template), (vec![], 3));
    }
}

/// A train has one IP identification, but every ACK that may be fragmented needs its own.
#[test]
fn train_takes_another_ack_unless_it_may_be_fragmented() {
    for (discovers_mtu, trains_of_two) in [(true, 1), (false, 2)] {
        let mut ends = ends();
        ends.header.discovers_mtu = discovers_mtu;
        let mut trains = AckTrains::new();
        for n in 0..2 {
            trains.push(&key(), ends, SegmentOut::from(ack(n)));
        }
        assert_eq!(trains.trains.len(), trains_of_two);
    }
}

/// An ACK stays with its connection when no further train can begin.
#[test]
fn trains_are_no_more_than_the_limit() {
    let mut trains = AckTrains::new();
    for port in 0..=ACK_TRAINS_MAX {
        let key = FlowKey {
            remote_port: port as u16,
            ..key()
        };
        assert_eq!(trains.has_room(), port < ACK_TRAINS_MAX);
        trains.push(&key, ends(), SegmentOut::from(ack(1)));
    }
    assert_eq!(trains.trains.len(), ACK_TRAINS_MAX);
}
