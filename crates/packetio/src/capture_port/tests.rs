//! A captured port beside its far end: everything passes, and the log tells of it.

use ring::frame_log::FrameLogReader;

use super::*;
use crate::loopback::{self, Loopback, LoopbackOptions};

/// A port that is captured, its far end, and a reader.
fn captured(snap: usize) -> (Box<dyn Port + Send>, Loopback, FrameLogReader) {
    let (near, far) = loopback::pair(&LoopbackOptions::default()).expect("eventfds");
    let mut near: Box<dyn Port + Send> = Box::new(near);
    let log = FrameLog::create(1 << 12, snap, &["drop_a", "drop_b"]).expect("a log");
    CapturePort::cover(&mut near, log);
    let file = CapturePort::of(&mut *near).expect("the cover").file();
    let reader = FrameLogReader::open(file.expect("a copy")).expect("a log");
    (near, far, reader)
}

fn send(port: &mut dyn Port, frames: &[&[u8]]) {
    let slots = port.reserve(frames.len());
    assert_eq!(slots.len(), frames.len());
    for (slot, frame) in slots.iter().zip(frames) {
        slot.set_len(slot.write(0, frame));
    }
    port.send(frames.len()).expect("sent");
}

/// Direction, bytes and drop reason of what is in the log.
fn log(reader: &mut FrameLogReader) -> Vec<(bool, Vec<u8>, Option<String>)> {
    let mut all = Vec::new();
    while let Some(frame) = reader.next_frame() {
        let reason = frame.reason.map(str::to_owned);
        all.push((frame.is_outbound, frame.bytes.to_vec(), reason));
    }
    all
}

#[test]
fn frames_of_both_directions_pass_and_are_logged() {
    let (mut near, mut far, mut reader) = captured(64);
    send(&mut *near, &[b"out one", b"out two"]);
    assert_eq!(far.receive().expect("received").len(), 2);
    send(&mut far, &[b"in"]);
    assert_eq!(near.receive().expect("received").len(), 1);
    let sent = |text: &[u8]| (true, text.to_vec(), None);
    let out = [sent(b"out one"), sent(b"out two")];
    assert_eq!(log(&mut reader), out, "the batch in is still lent");
    near.release();
    assert_eq!(log(&mut reader), [(false, b"in".to_vec(), None)]);
}

#[test]
fn dropped_frame_of_a_batch_is_logged_with_its_reason() {
    let (mut near, mut far, mut reader) = captured(64);
    send(&mut far, &[b"good", b"bad"]);
    assert_eq!(near.receive().expect("received").len(), 2);
    let cover = CapturePort::of(&mut *near).expect("the cover");
    cover.note_drop(1, 2);
    cover.note_drop(9, 1);
    near.release();
    let bad = (false, b"bad".to_vec(), Some("drop_b".to_owned()));
    assert_eq!(log(&mut reader), [(false, b"good".to_vec(), None), bad]);
}

#[test]
fn checksum_that_the_driver_computes_is_whole_in_the_log() {
    let (mut near, _far, mut reader) = captured(64);
    let slots = near.reserve(1);
    slots[0].set_len(slots[0].write(0, &[0, 0, 0, 0, 1, 2]));
    slots[0].set_checksum_offload(2, 0);
    near.send(1).expect("sent");
    let sum = !0x0102_u16;
    let [high, low] = sum.to_be_bytes();
    assert_eq!(log(&mut reader)[0].1, [0, 0, high, low, 1, 2]);
}

#[test]
fn longer_frames_are_kept_once_somebody_asks() {
    let (mut near, _far, mut reader) = captured(4);
    send(&mut *near, &[b"an ethernet frame"]);
    CapturePort::of(&mut *near)
        .expect("the cover")
        .raise_snap(9);
    CapturePort::of(&mut *near)
        .expect("the cover")
        .raise_snap(2);
    send(&mut *near, &[b"an ethernet frame"]);
    let lengths = log(&mut reader)
        .iter()
        .map(|one| one.1.len())
        .collect::<Vec<_>>();
    assert_eq!(lengths, [4, 9]);
}

#[test]
fn uncovered_port_goes_on_and_logs_nothing() {
    let (mut near, mut far, mut reader) = captured(64);
    CapturePort::uncover(&mut near);
    assert!(CapturePort::of(&mut *near).is_none());
    CapturePort::uncover(&mut near);
    send(&mut *near, &[b"out"]);
    assert_eq!(far.receive().expect("received").len(), 1);
    assert_eq!(log(&mut reader), []);
}
