//! Memory for socket buffers runs short over all connections. First bytes beyond gaps are dropped,
//! then windows close; everything recovers.
//!
//! When a world ends it checks that every pool is full again (`Usage`).

use ring::socket_block::SocketId;

use crate::common::frames::Tcp;
use crate::common::{Client, MILLIS, World};

/// Payload of one segment.
const PIECE: usize = 1_000;

/// A stack with some seventy thousand bytes of memory, and two connections.
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

/// The last ACK that the peer received.
fn last_ack(w: &mut World) -> Tcp {
    let segments = w.peer.take_tcp();
    segments.last().expect("an ACK").clone()
}

/// Sends in-order bytes that the application does not read, until `enough`.
fn fill(w: &mut World, client: &mut Client, enough: impl Fn(&World) -> bool) -> usize {
    let mut sent = 0;
    while !enough(w) {
        w.send(&client.data(&[3; PIECE]));
        sent += PIECE;
        assert!(sent < 100 * PIECE, "memory has no end");
    }
    sent
}

/// Sends the rest of a stream in pieces, from the stack's last ACK on, and reads it.
fn finish(
    w: &mut World,
    client: &mut Client,
    socket: SocketId,
    from: u32,
    whole: &[u8],
) -> Vec<u8> {
    let mut got = w.read(socket);
    while got.len() < whole.len() {
        let at = got.len();
        client.nxt = from.wrapping_add(at as u32);
        w.send(&client.data(&whole[at..(at + PIECE).min(whole.len())]));
        let more = w.read(socket);
        assert!(!more.is_empty(), "there is memory again, and nothing comes");
        got.extend(more);
    }
    got
}

#[test]
fn memory_exhausted_sheds_what_lies_beyond_gaps_then_shuts_windows_and_recovers() {
    let (mut w, (mut gappy, reader), (mut bulk, hoarder)) = small_world();
    // Ten thousand bytes, of which the first thousand are lost.
    let gappy_from = gappy.nxt;
    let lossy: Vec<u8> = (0..10 * PIECE).map(|n| (n / 7) as u8).collect();
    for at in (PIECE..lossy.len()).step_by(PIECE) {
        gappy.nxt = gappy_from.wrapping_add(at as u32);
        w.send(&gappy.data(&lossy[at..at + PIECE]));
    }
    assert!(w.app.read(reader).is_empty());
    assert_eq!(w.stack.usage().range_blocks, 1);
    // A second connection fills memory with bytes in order, until the first one must give up bytes
    // out of order.
    let bulk_from = bulk.nxt;
    let first = fill(&mut w, &mut bulk, |w| {
        w.stack.counters().connections_shed > 0
    });
    assert_eq!(w.stack.tcp_counters().bytes_out_of_order_shed, 9_000);
    assert_eq!(w.stack.usage().range_blocks, 0);
    assert_eq!(
        w.app.readable(hoarder) as usize,
        first,
        "nothing in order was lost for it"
    );
    w.peer.forget();
    // The peer sends until memory is exhausted. The window then closes although bytes are missing.
    let before = w.stack.tcp_counters().bytes_drop_no_memory;
    let more = fill(&mut w, &mut bulk, |w| {
        w.stack.tcp_counters().bytes_drop_no_memory > before
    });
    w.advance(40 * MILLIS);
    let at = last_ack(&mut w).ack;
    bulk.nxt = at;
    w.send(&bulk.data(&[3; PIECE]));
    let ack = last_ack(&mut w);
    assert_eq!(ack.window, 0);
    assert!(w.stack.counters().rx_no_buffer > 0);
    let kept = w.app.readable(hoarder) as usize;
    assert_eq!(ack.ack, bulk_from.wrapping_add(kept as u32));
    assert!(kept > first && kept < first + more);
    // The application reads; the window opens, and both streams arrive complete.
    let bytes = w.read(hoarder);
    assert_eq!(bytes, vec![3; kept]);
    assert!(last_ack(&mut w).window > 0);
    assert_eq!(
        finish(&mut w, &mut gappy, reader, gappy_from, &lossy),
        lossy
    );
    let all = vec![3; kept + 20 * PIECE];
    let rest = finish(
        &mut w,
        &mut bulk,
        hoarder,
        bulk_from.wrapping_add(kept as u32),
        &all[kept..],
    );
    assert_eq!(rest, all[kept..]);
}

#[test]
fn memory_low_each_writer_has_a_share_of_whole_segments_and_a_third_of_it_wakes() {
    let mut w = World::with(|s| {
        s.config.limits.small_chunks = 64;
        s.config.limits.large_chunks = 16;
    });
    let listener = w.listen();
    let mut ends: Vec<_> = (0..6)
        .map(|_| {
            let mut client = w.client();
            w.handshake(&mut client);
            (client, w.app.accept(listener).unwrap())
        })
        .collect();
    let (mut writer, socket) = ends.pop().unwrap();
    let ample = w.app.block(socket).tx_limit();
    // Another connection takes more than half of the memory.
    let (hoarder, _) = &mut ends[0];
    for _ in 0..42 {
        w.send(&hoarder.data(&[3; PIECE]));
    }
    w.peer.forget();
    w.send(&writer.data(b"write now"));
    w.write(socket, b"yes");
    // A sixth of three quarters of the chunk memory is slightly more than six segments of 1,460
    // bytes.
    let block = w.app.block(socket);
    assert!(ample > 8_760, "{ample}");
    assert_eq!(block.tx_limit(), 8_760);
    assert!(block.is_writable_at(8_760 - 8_760 / 3));
    assert!(!block.is_writable_at(8_760 - 8_760 / 3 + 1));
}
