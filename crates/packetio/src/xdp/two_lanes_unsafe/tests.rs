//! Frames of both lanes in one batch, with a memif channel as the port.

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;
use crate::memif::{self, Handover};
use crate::mux::channel_options;
use crate::wait::monotonic_ns;

#[test]
fn frame_behind_one_of_the_bulk_lane_keeps_its_bytes() {
    let options = channel_options(1500, Some(64), 1);
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
