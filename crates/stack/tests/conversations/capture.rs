//! Captures that begin, are prolonged and end: the stack behaves the same as without one, and the
//! log holds each frame with its drop reason.

use packetio::frame_filter::{FrameFilter, Instruction};
use ring::frame_log::FrameLogReader;
use wire::ethernet;

use crate::common::{Client, SECOND, Tcp, World};

/// A frame in the log.
#[derive(Debug, PartialEq, Eq)]
struct Logged {
    is_outbound: bool,
    bytes: usize,
    wire_bytes: usize,
    reason: Option<String>,
}

fn begin(w: &mut World, snap: usize) -> FrameLogReader {
    begin_filtered(w, snap, None)
}

fn begin_filtered(w: &mut World, snap: usize, filter: Option<FrameFilter>) -> FrameLogReader {
    let until_ns = w.now_ns + 3 * SECOND;
    let file = w.stack.capture(0, snap, filter, until_ns).unwrap();
    FrameLogReader::open(file).unwrap()
}

/// A filter for frames of this length.
fn of_length(wire_bytes: usize) -> FrameFilter {
    let instruction = |code, otherwise, k| Instruction {
        code,
        then: 0,
        otherwise,
        k,
    };
    let program = [
        instruction(0x80, 0, 0),
        instruction(0x15, 1, wire_bytes as u32),
        instruction(6, 0, 1),
        instruction(6, 0, 0),
    ];
    FrameFilter::new(&program).unwrap()
}

fn read(reader: &mut FrameLogReader) -> Vec<Logged> {
    let mut all = Vec::new();
    while let Some(frame) = reader.next_frame() {
        all.push(Logged {
            is_outbound: frame.is_outbound,
            bytes: frame.bytes.len(),
            wire_bytes: frame.wire_bytes,
            reason: frame.reason.map(str::to_owned),
        });
    }
    all
}

/// Lets the peer send frames that the stack receives in one batch.
fn send_at_once(w: &mut World, frames: &[Vec<u8>]) {
    for frame in frames {
        w.peer.transmit(frame);
    }
    w.settle();
}

/// The frame with its last byte changed, so that the TCP checksum is wrong.
fn spoilt(mut frame: Vec<u8>) -> Vec<u8> {
    *frame.last_mut().unwrap() ^= 1;
    frame
}

#[test]
fn captured_stack_names_the_reason_of_each_drop_of_a_batch() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.peer.forget();
    let mut reader = begin(&mut w, 2_000);
    let mut other = w.peer.frame(&client.ack());
    other[5] ^= 0x10;
    let data = |w: &World, client: &mut Client| {
        let segment = client.data(b"text");
        w.peer.frame(&segment)
    };
    let first = data(&w, &mut client);
    let second = data(&w, &mut client);
    let bad = spoilt(second.clone());
    let short = vec![1; ethernet::HEADER_LEN - 1];
    let frames = [first, bad, other, second, short];
    let bytes: u64 = frames.iter().map(|frame| frame.len() as u64).sum();
    let before = w.stack.counters().clone();
    send_at_once(&mut w, &frames);
    let after = w.stack.counters();
    assert_eq!(after.rx_frames - before.rx_frames, frames.len() as u64);
    assert_eq!(after.rx_bytes - before.rx_bytes, bytes);
    assert_eq!(w.read(socket), b"texttext");
    let log = read(&mut reader);
    let reasons: Vec<_> = (log.iter().filter(|one| !one.is_outbound))
        .map(|one| one.reason.as_deref())
        .collect();
    let wanted = [
        None,
        Some("rx_drop_tcp_checksum"),
        Some("rx_drop_other_mac"),
        None,
        Some("rx_drop_ethernet"),
    ];
    assert_eq!(reasons, wanted);
    assert!(log.iter().any(|one| one.is_outbound), "the ACK");
}

#[test]
fn filtered_capture_names_the_reasons_of_wanted_frames_alone() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.peer.forget();
    let segments = [&b"one"[..], b"wanted", b"three", b"wanted", b"wanted"];
    let mut frames: Vec<_> = segments
        .map(|text| {
            let segment = client.data(text);
            w.peer.frame(&segment)
        })
        .into();
    let mut reader = begin_filtered(&mut w, 2_000, Some(of_length(frames[1].len())));
    let before = w.stack.counters().clone();
    let bytes: u64 = frames.iter().map(|frame| frame.len() as u64).sum();
    let late = [frames[2].clone(), frames[3].clone()];
    for at in [2, 3] {
        frames[at] = spoilt(frames[at].clone());
    }
    send_at_once(&mut w, &frames);
    let after = w.stack.counters();
    assert_eq!(after.rx_frames - before.rx_frames, 5);
    assert_eq!(after.rx_bytes - before.rx_bytes, bytes);
    send_at_once(&mut w, &late);
    assert_eq!(w.read(socket), b"onewantedthreewantedwanted");
    w.peer.forget();
    let log = read(&mut reader);
    let reasons: Vec<_> = log.iter().map(|one| one.reason.as_deref()).collect();
    assert_eq!(reasons, [None, Some("rx_drop_tcp_checksum"), None, None]);
}

#[test]
fn captured_segment_beyond_the_window_is_named_by_tcp() {
    let mut w = World::new();
    let (mut client, _) = w.established();
    let mut far = client.data(b"text");
    far.seq = far.seq.wrapping_add(1 << 30);
    let mut reader = begin(&mut w, 2_000);
    w.send(&far);
    let log = read(&mut reader);
    assert_eq!(log[0].reason.as_deref(), Some("drop_outside_window"));
    w.peer.forget();
}

/// Plays two interleaved flows. Returns the segments that the peer received by flow, whether the
/// application read each text, and the drop counters.
fn conversation(
    capture: Option<Option<FrameFilter>>,
) -> (Vec<Tcp>, [bool; 2], Vec<(&'static str, u64)>) {
    let mut w = World::new();
    let listener = w.listen();
    let mut clients = [w.client(), w.client()];
    let mut sockets = Vec::new();
    for client in &mut clients {
        w.handshake(client);
        sockets.push(w.app.accept(listener).unwrap());
    }
    w.peer.forget();
    if let Some(filter) = capture {
        let mut reader = begin_filtered(&mut w, 96, filter);
        assert_eq!(reader.next_frame(), None);
    }
    let mut batch = Vec::new();
    for round in 0..12_u8 {
        let burst = if round % 3 == 0 { 1 } else { 2 };
        for client in &mut clients {
            for _ in 0..burst {
                let segment = client.data(&[round; 1_000]);
                batch.push(w.peer.frame(&segment));
            }
        }
    }
    // The batch has a gap, a duplicate and a wrong checksum.
    let late = batch.remove(7);
    batch.push(batch[3].clone());
    batch.push(spoilt(late.clone()));
    batch.push(late);
    send_at_once(&mut w, &batch);
    w.write(sockets[0], &[9; 5_000]);
    let mut seen = w.peer.take_tcp();
    // Without a capture a batch is processed flow by flow, with one in order of arrival.
    seen.sort_by_key(|segment| segment.dst_port);
    let text: Vec<u8> = (0..12_u8)
        .flat_map(|round| vec![round; if round % 3 == 0 { 1_000 } else { 2_000 }])
        .collect();
    let is_whole = [w.read(sockets[0]) == text, w.read(sockets[1]) == text];
    w.peer.forget();
    let mut drops = w.drops();
    drops.retain(|(name, _)| name.contains("drop"));
    (seen, is_whole, drops)
}

#[test]
fn captured_stack_answers_and_counts_as_one_that_is_not() {
    let (seen, is_whole, drops) = conversation(None);
    assert!(seen.len() > 10 && is_whole == [true, true]);
    for filter in [None, Some(of_length(1_054)), Some(of_length(1))] {
        let (other, is_whole, other_drops) = conversation(Some(filter));
        assert_eq!(is_whole, [true, true]);
        assert_eq!(other_drops, drops);
        assert_eq!(other.len(), seen.len());
        for (at, (other, one)) in other.iter().zip(&seen).enumerate() {
            assert!(other == one, "segment {at}: {other:?} is not {one:?}");
        }
    }
}

#[test]
fn capture_goes_on_while_somebody_asks_and_then_ends() {
    let mut w = World::new();
    let (client, _) = w.established();
    let ack = w.peer.frame(&client.ack());
    let mut reader = begin(&mut w, 20);
    w.advance(2 * SECOND);
    let again = begin(&mut w, 40);
    w.advance(2 * SECOND);
    w.stack.end_old_capture(w.now_ns);
    w.send_frame(&ack);
    drop(again);
    let mut log = read(&mut reader);
    let last = log.pop().unwrap();
    assert_eq!(
        (last.bytes, last.wire_bytes),
        (40, ack.len()),
        "asked for again, at the longest that was asked for"
    );
    w.advance(2 * SECOND);
    w.stack.end_old_capture(w.now_ns);
    read(&mut reader);
    w.send_frame(&ack);
    assert_eq!(read(&mut reader), []);
    w.peer.forget();
}
