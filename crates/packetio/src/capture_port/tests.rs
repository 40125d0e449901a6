//! A captured port and its far end: all frames pass, and the log holds them.

use ring::frame_log::FrameLogReader;

use super::*;
use crate::frame_filter::Instruction;
use crate::limits::CAPTURE_FILTERS_MAX;
use crate::loopback::{self, Loopback, LoopbackOptions};

/// A captured port, its far end, and a reader of the log.
fn captured(snap: usize) -> (Box<dyn Port + Send>, Loopback, FrameLogReader) {
    let (near, far) = loopback::pair(&LoopbackOptions::default()).expect("eventfds");
    let mut near: Box<dyn Port + Send> = Box::new(near);
    let log = FrameLog::create(1 << 12, snap, &["drop_a", "drop_b"]).expect("a log");
    CapturePort::cover(&mut near, log);
    let cover = CapturePort::of(&mut *near).expect("the cover");
    cover.want(snap, None, 0, 100);
    let file = cover.file();
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

/// Direction, bytes and drop reason of each record in the log.
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
    for snap in [9, 2] {
        let cover = CapturePort::of(&mut *near).expect("the cover");
        cover.want(snap, None, 0, 100);
    }
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

/// A filter for frames whose byte at `at` is `wanted`.
fn byte(at: u32, wanted: u8) -> FrameFilter {
    let words = [
        (48, 0, 0, at),
        (21, 0, 1, wanted.into()),
        (6, 0, 0, 1),
        (6, 0, 0, 0),
    ];
    let program = words.map(|(code, then, otherwise, k)| Instruction {
        code,
        then,
        otherwise,
        k,
    });
    FrameFilter::new(&program).expect("a program")
}

/// A covered port for which no reader has a wish, its far end, and a reader.
fn covered(snap: usize) -> (Box<dyn Port + Send>, Loopback, FrameLogReader) {
    let (mut near, far, _) = captured(snap);
    CapturePort::uncover(&mut near);
    let log = FrameLog::create(1 << 12, snap, &["drop_a", "drop_b"]).expect("a log");
    CapturePort::cover(&mut near, log);
    let cover = CapturePort::of(&mut *near).expect("the cover");
    let reader = FrameLogReader::open(cover.file().expect("a copy")).expect("a log");
    (near, far, reader)
}

/// Asks for frames from `now_ns` on, for ten ns.
fn want(port: &mut dyn Port, filter: Option<FrameFilter>, now_ns: u64) {
    let cover = CapturePort::of(port).expect("the cover");
    cover.want(0, filter, now_ns, now_ns + 10);
}

/// Sends frames `a` to `f`; returns the letters of those that were logged.
fn letters(port: &mut dyn Port, reader: &mut FrameLogReader) -> String {
    let frames: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];
    send(port, &frames);
    let all = log(reader);
    all.iter().map(|(_, bytes, _)| bytes[0] as char).collect()
}

#[test]
fn frames_that_no_filter_takes_pass_and_are_not_logged() {
    let (mut near, mut far, mut reader) = covered(64);
    assert_eq!(letters(&mut *near, &mut reader), "", "nobody has asked");
    want(&mut *near, Some(byte(0, b'b')), 0);
    want(&mut *near, Some(byte(0, b'e')), 0);
    assert_eq!(letters(&mut *near, &mut reader), "be");
    assert_eq!(far.receive().expect("received").len(), 12);
    far.release();
    send(&mut far, &[b"a", b"b", b"c"]);
    let cover = CapturePort::of(&mut *near).expect("the cover");
    let mut logged = Vec::new();
    assert_eq!(
        cover.receive_noting(&mut logged).expect("received").len(),
        3
    );
    assert_eq!(logged, [1]);
    for at in 0..3 {
        cover.note_drop(at, 1);
    }
    near.release();
    let dropped = (false, b"b".to_vec(), Some("drop_a".to_owned()));
    assert_eq!(log(&mut reader), [dropped]);
}

#[test]
fn filter_of_a_reader_that_left_is_forgotten() {
    let (mut near, _far, mut reader) = covered(64);
    want(&mut *near, Some(byte(0, b'b')), 0);
    want(&mut *near, Some(byte(0, b'c')), 5);
    assert_eq!(letters(&mut *near, &mut reader), "bc");
    want(&mut *near, Some(byte(0, b'c')), 10);
    assert_eq!(letters(&mut *near, &mut reader), "c");
    want(&mut *near, None, 10);
    assert_eq!(letters(&mut *near, &mut reader), "abcdef");
    want(&mut *near, Some(byte(0, b'c')), 19);
    assert_eq!(letters(&mut *near, &mut reader), "abcdef");
    want(&mut *near, Some(byte(0, b'c')), 20);
    assert_eq!(letters(&mut *near, &mut reader), "c");
}

#[test]
fn more_filters_than_the_limit_log_all_frames() {
    let (mut near, _far, mut reader) = covered(64);
    for wanted in 0..CAPTURE_FILTERS_MAX as u8 {
        want(&mut *near, Some(byte(0, wanted)), 0);
    }
    assert_eq!(letters(&mut *near, &mut reader), "");
    want(&mut *near, Some(byte(0, b'd')), 0);
    assert_eq!(letters(&mut *near, &mut reader), "abcdef");
}

#[test]
fn filter_sees_more_of_a_frame_than_is_logged() {
    let (mut near, _far, mut reader) = covered(64);
    want(&mut *near, Some(byte(299, 7)), 0);
    let mut frame = [0; 400];
    send(&mut *near, &[&frame]);
    frame[299] = 7;
    send(&mut *near, &[&frame]);
    assert_eq!(log(&mut reader), [(true, frame[..64].to_vec(), None)]);
}
