//! Trains expanded into frames that fit, and into frames that do not.

use packetio::Port;
use packetio::loopback::{self, LoopbackOptions};
use tcp::{PlainAck, SegmentOut};
use wire::tcp::Timestamp;
use wire::{Addr, FlowKey, MacAddr, SeqNumber};

use super::{AckTrains, Expansion};
use crate::header_fields::{HeaderFields, LinkEnds};

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

/// A train of ACKs, expanded into frames for packets of `mtu` bytes: the lengths of the frames, and
/// how many ACKs were lost.
fn expanded(mtu: usize, by_template: bool) -> (Vec<usize>, u64) {
    let options = LoopbackOptions {
        mtu,
        ..LoopbackOptions::default()
    };
    let mut port = loopback::echo(&options).unwrap();
    let ends = LinkEnds {
        source: MacAddr([2, 0, 0, 0, 0, 1]),
        destination: MacAddr([2, 0, 0, 0, 0, 2]),
        header: HeaderFields::default(),
    };
    let mut trains = AckTrains::new();
    for n in 0..ACKS {
        let ack = PlainAck {
            seq: SeqNumber(1),
            ack: SeqNumber(1_448 * n),
            window: 100,
            timestamp: Some(Timestamp { value: 1, echo: 2 }),
        };
        let coupled = trains
            .last_of(&key())
            .is_some_and(|train| train.couple(&ack));
        assert_eq!(coupled, n > 0);
        if !coupled {
            trains.push(&key(), ends, SegmentOut::from(ack));
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
