//! The end of a text on a port that cuts: the short segment with the FIN leaves in the frame before
//! it, and the peer sees no difference.

use wire::tcp::Flags;

use crate::common::Tcp;
use crate::large_frames::{Bench, LARGE, Lanes, stamped, text};

/// Sends a document of ten segments, a full one and a short one, and ends the connection. Returns
/// the segments of both flights, and the frames that were cut until each had left.
fn document(segment_bytes_max: usize, lanes: Lanes) -> (Vec<Vec<Tcp>>, Vec<usize>) {
    let mut b = Bench::with_lanes(lanes, segment_bytes_max, false, |_| {});
    assert_eq!(b.app.write_if_open(b.socket, &text(16_605)), 16_605);
    b.app.shutdown_if_open(b.socket);
    let (mut flights, mut cut_until) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        b.settle();
        let flight: Vec<Tcp> = b.take_with_lanes().into_iter().map(|one| one.0).collect();
        cut_until.push(b.cut());
        let last = flight.last().unwrap();
        let end = last.seq.wrapping_add(last.payload.len() as u32);
        let mut ack = stamped(b.client.segment(Flags::ACK));
        ack.window = 60_000;
        flights.push(flight);
        b.arrive(&ack.acking(end));
    }
    (flights, cut_until)
}

#[test]
fn end_of_a_text_with_fin_leaves_in_the_frame_before_it() {
    let (single, cut) = document(0, Lanes::One);
    assert_eq!(cut, [0, 0]);
    assert_eq!((single[0].len(), single[1].len()), (10, 2));
    assert!(single[1][1].flags.contains(Flags::FIN | Flags::PSH));
    for lanes in [Lanes::One, Lanes::Two] {
        let (large, cut) = document(LARGE, lanes);
        assert_eq!(large, single);
        assert_eq!(cut, [2, 3]);
    }
    // A slot of the MTU's size without a large buffer has no room for a second segment.
    for lanes in [Lanes::Behind, Lanes::Scarce] {
        assert_eq!(document(LARGE, lanes).0, single);
    }
    // A frame that is full takes nothing more.
    assert_eq!(document(20 + 32 + 1_448, Lanes::One).0, single);
}
