//! Frames of interleaved flows come out flow by flow, each flow's in the order of their arrival.

use packetio::Port;
use packetio::loopback::{self, LoopbackOptions};

use super::{FlowOrder, FrameOrder};
use crate::limits::FLOW_ORDER_FRAMES_MAX;

/// The start of a TCP packet from `port`; `number` tells it from others.
fn tcp_frame(port: u16, number: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..16].copy_from_slice(&[0x08, 0, 0x45, 0]);
    frame[23] = 6;
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame[59] = number;
    frame
}

/// Port and number of each frame in processing order, one vector per line.
fn taken(frames: &[Vec<u8>]) -> Vec<Vec<(u16, u8)>> {
    let options = LoopbackOptions {
        batch: 2 * FLOW_ORDER_FRAMES_MAX,
        ..LoopbackOptions::default()
    };
    let mut port = loopback::echo(&options).unwrap();
    let slots = port.reserve(frames.len());
    for (slot, bytes) in slots.iter().zip(frames) {
        slot.slice_mut(0, bytes.len()).unwrap().write(0, bytes);
        slot.set_len(bytes.len());
    }
    port.send(frames.len()).unwrap();
    let mut rest = port.receive().unwrap();
    let mut order = FlowOrder::new();
    let mut lines = Vec::new();
    while !rest.is_empty() {
        let line = order.arrange(rest);
        let count = line.len();
        let of = |at| {
            let head: [u8; 60] = line.get(at).unwrap().head();
            (u16::from_be_bytes([head[34], head[35]]), head[59])
        };
        lines.push((0..count).map(of).collect());
        rest = &rest[count.max(1)..];
    }
    lines
}

#[test]
fn interleaved_frames_are_taken_flow_by_flow() {
    let frames: Vec<Vec<u8>> = (0..12).map(|n| tcp_frame(n % 3, n as u8)).collect();
    let expected: Vec<(u16, u8)> = (0..3)
        .flat_map(|port| (0..4).map(move |n| (port, 3 * n + port as u8)))
        .collect();
    assert_eq!(taken(&frames), [expected]);
}

#[test]
fn other_frames_stay_where_they_are() {
    let mut arp = tcp_frame(7, 7);
    arp[13] = 6;
    let frames = [
        tcp_frame(1, 0),
        tcp_frame(2, 1),
        arp,
        tcp_frame(1, 2),
        tcp_frame(2, 3),
        tcp_frame(1, 4),
    ];
    let [before, other, behind] = taken(&frames).try_into().unwrap();
    assert_eq!(before, [(1, 0), (2, 1)]);
    assert!(other.is_empty());
    assert_eq!(behind, [(1, 2), (1, 4), (2, 3)]);
}

#[test]
fn every_frame_of_a_long_batch_of_many_flows_is_taken_once() {
    let count = 2 * FLOW_ORDER_FRAMES_MAX;
    let frames: Vec<Vec<u8>> = (0..count)
        .map(|n| tcp_frame((n % 200) as u16 * 256, (n / 200) as u8))
        .collect();
    let lines = taken(&frames);
    assert_eq!(lines.len(), 2);
    let mut all: Vec<(u16, u8)> = lines.concat();
    assert_eq!(all.len(), count);
    for line in &lines {
        let of_one: Vec<u8> = line
            .iter()
            .filter(|(p, _)| *p == 0)
            .map(|(_, n)| *n)
            .collect();
        assert!(of_one.is_sorted(), "{of_one:?}");
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
}
