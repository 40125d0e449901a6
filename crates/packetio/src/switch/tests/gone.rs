//! A wire that is lost, and frames without a receiver.

use super::*;
use crate::mortal::mortal;

/// Waits until the member reports that its wire is gone.
fn is_told(member: &mut dyn Port) -> bool {
    let until = Instant::now() + Duration::from_secs(30);
    while Instant::now() < until {
        if member.receive().err() == Some(PortError::Gone) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn wire_gone_tells_every_member() {
    let (wire, mut peer, is_gone) = mortal();
    let switch = Switch::start(vec![Box::new(wire)], 3).unwrap();
    let mut members: Vec<_> = (0..2).map(|index| switch.member(index).unwrap()).collect();
    is_gone.raise();
    send(&mut peer, &segment(1, 80, ACK));
    assert!(members.iter_mut().all(|member| is_told(&mut **member)));
    let mut late = switch.member(2).unwrap();
    assert!(is_told(&mut *late), "whoever comes later is told, too");
}

#[test]
fn one_queue_gone_the_others_serve() {
    let (first, _peer, is_gone) = mortal();
    let (second, peer, _) = mortal();
    let mut world = World::of(vec![Box::new(first), Box::new(second)], peer, 2);
    (0..2).for_each(|_| world.joins());
    is_gone.raise();
    assert_eq!(world.fabric.turn(), 0);
    assert_eq!(world.fabric.wire.len(), 1);
    assert_ne!(world.hears(&segment(1, 80, ACK)), 0);
    // Member 0 sent by the lost queue before.
    world.says(0, &answer(80, 1, ACK));
    world.says(1, &answer(80, 1, ACK));
}

#[test]
fn nobody_there_frames_are_counted_for_who_comes() {
    let (ours, peer) = pair(&LoopbackOptions::default()).unwrap();
    let mut world = World::of(vec![Box::new(ours)], peer, 2);
    assert_eq!(world.hears(&segment(1, 80, SYN)), 0);
    assert_eq!(world.hears(&segment(2, 80, SYN)), 0);
    world.joins();
    world.joins();
    assert_eq!(world.counted(0, "switch_rx_dropped_no_member"), 2);
    assert_eq!(world.counted(1, "switch_rx_dropped_no_member"), 0);
}

#[test]
fn frame_too_long_for_the_other_side_is_counted() {
    let options = LoopbackOptions {
        mtu: 3000,
        ..LoopbackOptions::default()
    };
    let (ours, peer) = pair(&options).unwrap();
    let mut world = World::of(vec![Box::new(ours)], peer, 1);
    world.joins();
    let mut long = segment(1, 80, ACK);
    long.resize(2000, 0);
    assert_eq!(world.hears(&long), 0);
    assert_eq!(world.counted(0, "switch_rx_dropped_too_long"), 1);
    assert_eq!(world.counted(0, "switch_rx_dropped_full"), 0);
}

#[test]
fn ethernet_frame_for_nobody_is_counted() {
    let (_, peer) = pair(&LoopbackOptions::default()).unwrap();
    let mut world = World::of(Vec::new(), peer, 2);
    (0..2).for_each(|_| world.joins());
    let mut frame = segment(1, 2, ACK);
    frame[..6].copy_from_slice(&world.members[1].capabilities().mac.0);
    let gone = world.members.pop();
    drop(gone);
    world.fabric.turn();
    send(&mut world.members[0], &frame);
    world.fabric.turn();
    assert_eq!(world.counted(0, "switch_tx_dropped_no_member"), 1);
}
