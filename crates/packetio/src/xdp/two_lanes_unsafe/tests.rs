//! Frames of both lanes in one batch, with a memif channel as the port.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::memif::{self, Handover, MemifPort};
use crate::mux::channel_options;
use crate::wait::monotonic_ns;

/// A service's end of a channel with so many slots, and the application's end with a bulk lane.
fn channel(ring_slots: u32) -> (MemifPort, TwoLanes<MemifPort>) {
    let options = channel_options(1500, Some(ring_slots), 1);
    let flags = SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (ours, theirs) = pair.unwrap();
    let mut server = memif::serve(ours, &options, 64 << 20).unwrap();
    let handover = Handover::default();
    handover.put(theirs);
    let named = server.capabilities().clone();
    let client = memif::join(&handover, &options, named).unwrap();
    // Any file can take the packets of the bulk lane.
    let file = memfd_create("lane", MemfdFlags::CLOEXEC).unwrap();
    let mut lanes = TwoLanes::new(client, Some(BulkWire::service_tap(file)));
    let until_ns = monotonic_ns() + 30_000_000_000;
    while lanes.reserve(4).len() < 4 {
        assert!(monotonic_ns() < until_ns, "no connection");
        let _ = (server.receive().map(|_| ()), lanes.receive().map(|_| ()));
    }
    (server, lanes)
}

#[test]
fn frame_behind_one_of_the_bulk_lane_keeps_its_bytes() {
    let (mut server, mut lanes) = channel(64);
    let slots = lanes.reserve(4);
    for (slot, byte) in slots.iter().zip(1..) {
        let is_large = byte % 2 == 1;
        assert!(!is_large || slot.take_bulk_lane());
        let bytes = vec![byte; if is_large { 9000 } else { 100 }];
        slot.set_len(slot.write(0, &bytes));
    }
    lanes.send(4).unwrap();
    let frames = server.receive().unwrap();
    let heads: Vec<[u8; 100]> = frames.iter().map(|frame| frame.head()).collect();
    assert_eq!(heads, [[2; 100], [4; 100]]);
    assert_eq!(lanes.counters().value("mux_bulk_frames"), Some(2));
}

/// A slot without a buffer of the lane would send a segment past those that wait in the lane.
#[test]
fn ring_of_more_slots_than_buffers_every_slot_granted_can_change_its_lane() {
    let (mut server, mut lanes) = channel(256);
    let mut sent = 0;
    for wanted in [128, XDP_BATCH_MAX, 256] {
        let slots = lanes.reserve(wanted);
        assert_eq!(slots.len(), XDP_BATCH_MAX, "{wanted} slots were asked for");
        for (at, slot) in slots.iter().enumerate() {
            assert!(slot.take_bulk_lane(), "slot {at} of {wanted}");
            assert_eq!(slot.write(0, &[7; 9000]), 9000);
            slot.set_len(9000);
        }
        sent += slots.len();
        lanes.send(XDP_BATCH_MAX).unwrap();
        assert!(server.receive().unwrap().is_empty(), "none by the channel");
    }
    assert_eq!(lanes.counters().value("mux_bulk_frames"), Some(sent as u64));
}

#[test]
fn port_without_a_bulk_lane_grants_all_that_its_ring_has() {
    let (_server, lanes) = channel(256);
    let mut alone = TwoLanes::new(lanes.port, None);
    let slots = alone.reserve(128);
    assert_eq!(slots.len(), 128);
    assert!(slots.iter().all(|slot| !slot.take_bulk_lane()));
}
