//! The ends of a mesh on one thread: which context gets which frame.

use super::*;
use crate::loopback::{LoopbackOptions, pair};
use crate::port::Port;

/// Lends `f` a frame with these bytes, as a port does.
fn with_frame(bytes: &[u8], f: impl FnOnce(&RxFrame)) {
    let (mut near, mut far) = pair(&LoopbackOptions::default()).unwrap();
    let slots = far.reserve(1);
    slots[0].set_len(slots[0].write(0, bytes));
    far.send(1).unwrap();
    f(&near.receive().unwrap()[0]);
}

fn hand(sender: &mut MeshSender, to: usize, bytes: &[u8], claim: Claim) -> HandOver {
    let mut outcome = HandOver::Full;
    with_frame(bytes, |frame| {
        outcome = sender.hand_over(to, (0, 1), frame, claim);
    });
    outcome
}

fn text(frame: &RxFrame) -> Vec<u8> {
    let mut bytes = vec![0; frame.len()];
    frame.copy_to(0, &mut bytes);
    bytes
}

#[test]
fn frame_handed_over_arrives_with_its_way_and_its_slot_returns() {
    let mesh = Mesh::new(2, 128, 64).unwrap();
    let (mut sender, _) = mesh.join(0).unwrap();
    let (_, mut receiver) = mesh.join(1).unwrap();
    for round in 0..MESH_SLOTS as u32 * 3 {
        let bytes = round.to_be_bytes();
        assert_eq!(hand(&mut sender, 1, &bytes, Claim::Any), HandOver::Done);
        assert!(receiver.has_frames());
        let batch = receiver.receive().unwrap();
        assert_eq!((batch.port, batch.hops, batch.frames.len()), (0, 1, 1));
        assert_eq!(text(&batch.frames[0]), bytes);
    }
    receiver.release();
    assert!(receiver.receive().is_none() && !receiver.has_frames());
}

#[test]
fn frames_that_came_different_ways_are_different_batches() {
    let mesh = Mesh::new(2, 128, 64).unwrap();
    let (mut sender, _) = mesh.join(0).unwrap();
    let (_, mut receiver) = mesh.join(1).unwrap();
    for way in [(0, 1), (0, 1), (1, 1), (1, 2)] {
        with_frame(b"frame", |frame| {
            sender.hand_over(1, way, frame, Claim::Any);
        });
    }
    let mut ways = Vec::new();
    while let Some(batch) = receiver.receive() {
        ways.push((batch.port, batch.hops, batch.frames.len()));
    }
    assert_eq!(ways, [(0, 1, 2), (1, 1, 1), (1, 2, 1)]);
}

#[test]
fn queue_full_says_so_and_copies_leave_half_of_it() {
    let mesh = Mesh::new(2, 128, 64).unwrap();
    let (mut sender, _) = mesh.join(0).unwrap();
    let (_, mut receiver) = mesh.join(1).unwrap();
    let mut copies = 0;
    while hand(&mut sender, 1, b"copy", Claim::Spare) == HandOver::Done {
        copies += 1;
    }
    assert_eq!(copies, MESH_SLOTS / 2 + 1);
    let mut frames = copies;
    while hand(&mut sender, 1, b"flow", Claim::Any) == HandOver::Done {
        frames += 1;
    }
    assert_eq!(frames, MESH_SLOTS);
    let mut taken = 0;
    while let Some(batch) = receiver.receive() {
        taken += batch.frames.len();
    }
    receiver.release();
    assert_eq!(taken, MESH_SLOTS);
    assert_eq!(hand(&mut sender, 1, b"flow", Claim::Any), HandOver::Done);
}

#[test]
fn frame_longer_than_a_slot_is_refused() {
    let mesh = Mesh::new(2, 64, 64).unwrap();
    let (mut sender, _) = mesh.join(0).unwrap();
    assert_eq!(
        hand(&mut sender, 1, &[0; 65], Claim::Any),
        HandOver::TooLong
    );
    assert_eq!(hand(&mut sender, 1, &[0; 64], Claim::Any), HandOver::Done);
}

#[test]
fn bell_rings_once_for_a_batch_and_not_at_all_while_awake() {
    let mesh = Mesh::new(2, 64, 64).unwrap();
    let (mut sender, _) = mesh.join(0).unwrap();
    let (_, receiver) = mesh.join(1).unwrap();
    let is_readable = |receiver: &MeshReceiver| {
        let fd = receiver.bell().fd();
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(
            fd,
            crate::PollFlags::IN,
        )];
        let zero = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut fds, Some(&zero)).unwrap() == 1
    };
    hand(&mut sender, 1, b"awake", Claim::Any);
    sender.ring();
    assert!(!is_readable(&receiver));
    receiver.bell().prepare_sleep();
    sender.ring();
    assert!(!is_readable(&receiver), "nothing was sent since");
    hand(&mut sender, 1, b"asleep", Claim::Any);
    sender.ring();
    assert!(is_readable(&receiver));
    receiver.bell().cancel_sleep();
    assert!(!is_readable(&receiver));
}

#[test]
fn flow_added_is_known_to_the_others_until_its_owner_loses_it_or_goes() {
    let mesh = Mesh::new(3, 64, 64).unwrap();
    let ends: Vec<_> = (0..3).map(|index| mesh.join(index).unwrap()).collect();
    let directory = |index: usize| ends[index].0.directory().clone();
    let (first, second) = (directory(0), directory(1));
    let (flow, other) = (0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321);
    assert!(first.add(flow) && first.add(other));
    assert_eq!((second.owner(flow), first.owner(flow)), (Some(0), None));
    first.remove(flow);
    assert_eq!((second.owner(flow), second.owner(other)), (None, Some(0)));
    drop(ends.into_iter().next());
    assert_eq!(second.owner(other), None);
}

#[test]
fn context_comes_again_and_knows_nothing_of_its_predecessor() {
    let mesh = Mesh::new(2, 64, 64).unwrap();
    let (mut sender, _rest) = mesh.join(0).unwrap();
    let (second, receiver) = mesh.join(1).unwrap();
    mesh.listens(1, 80, true);
    assert!(second.directory().add(7 << 40));
    assert_eq!(sender.directory().listener(80, 1), Some(1));
    assert!(mesh.join(1).is_err(), "it is still there");
    hand(&mut sender, 1, b"late", Claim::Any);
    drop((second, receiver));
    assert_eq!(sender.directory().listener(80, 1), None);
    assert_eq!(sender.directory().others(), 0);
    let (_second, mut receiver) = mesh.join(1).unwrap();
    assert!(receiver.receive().is_none());
    assert_eq!(sender.directory().owner(7 << 40), None);
    assert_eq!(sender.directory().others(), 0b10);
    for _ in 0..MESH_SLOTS {
        assert_eq!(hand(&mut sender, 1, b"new", Claim::Any), HandOver::Done);
    }
}

#[test]
fn listeners_share_the_flows_and_all_contexts_agree() {
    let mesh = Mesh::new(4, 64, 64).unwrap();
    let ends: Vec<_> = (0..4).map(|index| mesh.join(index).unwrap()).collect();
    [0, 1, 1, 2]
        .into_iter()
        .for_each(|index| mesh.listens(index, 80, true));
    mesh.listens(1, 80, false);
    let mut shares = [0; 4];
    for flow in 0..3000_u64 {
        let hash = mix_of(flow);
        let chosen = ends[3].0.directory().listener(80, hash).unwrap();
        shares[chosen] += 1;
        if chosen != 0 {
            // Among the contexts other than 0 the same one ranks highest.
            assert_eq!(ends[0].0.directory().listener(80, hash), Some(chosen));
        }
    }
    assert_eq!(shares[3], 0);
    assert!(shares[..3].iter().all(|share| *share > 800), "{shares:?}");
    mesh.listens(1, 80, false);
    let left = ends[3].0.directory().listener(80, mix_of(1));
    assert_ne!(left, Some(1), "its last socket has closed");
}

fn mix_of(flow: u64) -> u64 {
    flow.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

#[test]
fn cookies_are_expected_as_long_as_the_last_of_any_context_is_good() {
    const SECOND: u64 = 1_000_000_000;
    let mesh = Mesh::new(2, 128, 64).unwrap();
    let ends = [mesh.join(0).unwrap(), mesh.join(1).unwrap()];
    let [first, second] = ends.each_ref().map(|(sender, _)| sender.directory());
    assert_eq!(second.cookies_out_until_ns(), 0);
    first.expect_cookies_until(120 * SECOND);
    let until_ns = second.cookies_out_until_ns();
    assert!((120 * SECOND..=121 * SECOND).contains(&until_ns));
    // Further cookies of the same second do not write.
    first.expect_cookies_until(until_ns);
    assert_eq!(second.cookies_out_until_ns(), until_ns);
    second.expect_cookies_until(until_ns + 1);
    assert!(first.cookies_out_until_ns() > until_ns);
    second.expect_cookies_until(1);
    assert!(
        first.cookies_out_until_ns() > until_ns,
        "earlier ones take nothing back"
    );
}
