//! Memory for socket buffers runs short, over all connections of a stack: what lies beyond gaps goes first, then windows shut; all comes back.
//!
//! That every pool is full again at the end is what each world asserts when it ends (`Usage`).

use ring::socket_block::SocketId;
use wire::tcp::Flags;

use crate::common::{Client, MILLIS, Tcp, World};

/// A segment of payload.
const PIECE: usize = 1_000;

/// A stack with room for some seventy thousand bytes, and two connections.
fn small_world() -> (World, (Client, SocketId), (Client, SocketId)) {
    let mut w = World::with(|s| {
        s.config.limits.small_chunks = 64;
        s.config.limits.large_chunks = 16;
        s.config.tcp.comp_sack_ns_max = 0;
    });
    let listener = w.listen();
    let mut connect = || {
        let mut client = w.client();
        w.handshake(&mut client);
        let socket = w.app.accept(listener).unwrap();
        (client, socket)
    };
    let (first, second) = (connect(), connect());
    (w, first, second)
}

/// The window of the last ACK that the peer got.
fn last_ack(w: &mut World) -> Tcp {
    let segments = w.peer.take_tcp();
    segments.last().expect("an ACK").clone()
}

/// In-order bytes that nobody reads, until `enough`.
fn fill(w: &mut World, client: &mut Client, enough: impl Fn(&World) -> bool) -> usize {
    let mut sent = 0;
    while !enough(w) {
        w.send(&client.data(&[3; PIECE]));
        sent += PIECE;
        assert!(sent < 100 * PIECE, "memory has no end");
    }
    sent
}

#[test]
fn memory_short_sheds_what_lies_beyond_gaps_first() {
    let (mut w, (mut gappy, reader), (mut bulk, hoarder)) = small_world();
    // Ten thousand bytes, the first thousand of which are lost.
    let whole: Vec<Tcp> = (0..10u8).map(|n| gappy.data(&[n; PIECE])).collect();
    for segment in &whole[1..] {
        w.send(segment);
    }
    assert!(w.app.read(reader).is_empty());
    let held = w.stack.usage();
    assert_eq!(held.range_blocks, 1);
    // Another connection takes memory with bytes in order: those are kept, to the last.
    let sent = fill(&mut w, &mut bulk, |w| {
        w.stack.tcp_counters().bytes_out_of_order_shed > 0 || w.stack.counters().rx_no_buffer > 0
    });
    println!("{sent} {:?} {:?}", w.stack.usage(), w.stack.tcp_counters());
    w.unchecked = true;
    let _ = (hoarder, MILLIS, Flags::ACK, last_ack(&mut w));
    panic!("look");
}
