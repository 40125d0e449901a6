//! Frames in, and who gets them.

use std::time::{Duration, Instant};

use super::*;

/// A TCP segment between these ports, with these flags.
fn segment(from: u16, to: u16, flags: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
    frame.resize(60, 0);
    frame
}

fn send(port: &mut dyn Port, frame: &[u8]) {
    let slots = port.reserve(1);
    slots[0].set_len(slots[0].write(0, frame));
    port.send(1).unwrap();
}

/// Waits a moment for one frame.
fn receive(port: &mut dyn Port) -> Option<Vec<u8>> {
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        let frames = port.receive().ok()?;
        if let [frame, ..] = frames {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(0, &mut bytes);
            return Some(bytes);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

const SYN: u8 = 2;
const ACK: u8 = 16;

#[test]
fn wire_shared_answers_go_to_the_caller_and_calls_to_who_listens() {
    let (ours, mut peer) = pair(&LoopbackOptions::default()).unwrap();
    let switch = Switch::start(vec![Box::new(ours)], 3).unwrap();
    let mut members: Vec<_> = (0..3).map(|index| switch.member(index).unwrap()).collect();
    send(&mut *members[2], &segment(40_000, 80, SYN));
    assert!(receive(&mut peer).is_some());
    send(&mut peer, &segment(80, 40_000, SYN | ACK));
    assert!(receive(&mut *members[2]).is_some());
    assert!(members[0].receive().unwrap().is_empty());
    switch.listens(1, 80, true);
    std::thread::sleep(Duration::from_millis(50));
    for from in 1000..1010 {
        send(&mut peer, &segment(from, 80, SYN));
        assert!(receive(&mut *members[1]).is_some(), "{from}");
    }
}

#[test]
fn ethernet_frames_go_to_whom_they_name() {
    let switch = Switch::ethernet(1500, 3).unwrap();
    let mut members: Vec<_> = (0..3).map(|index| switch.member(index).unwrap()).collect();
    let mut frame = segment(1, 2, ACK);
    send(&mut *members[0], &frame);
    assert!(receive(&mut *members[1]).is_some() && receive(&mut *members[2]).is_some());
    let to = members[1].capabilities().mac;
    frame[..6].copy_from_slice(&to.0);
    send(&mut *members[0], &frame);
    assert!(receive(&mut *members[1]).is_some());
    assert!(members[2].receive().unwrap().is_empty());
}

#[test]
fn local_ports_divided_do_not_overlap() {
    let parts: Vec<_> = (0..3)
        .map(|index| ports_of((1000, 1099), index, 3))
        .collect();
    assert_eq!(parts, [(1000, 1032), (1033, 1065), (1066, 1098)]);
    assert_eq!(ports_of((5, 5), 3, 8), (5, 5));
}
