//! Delayed SACKs in a stack: the delay is a part of a round trip, even of a short one.

use wire::tcp::{Flags, Options, Timestamp};

use crate::common::{Client, World};

const MICROS: u64 = 1_000;
/// Round trip to a near peer: 2.3 ms, as over a wire of 1 ms each way.
const ROUND_TRIP: u64 = 2_300 * MICROS;
const PAYLOAD: [u8; 1_000] = [7; 1_000];

/// Timestamp option of the peer, echoing the stack's value.
fn stamps(echo: u32) -> Options {
    Options {
        timestamp: Some(Timestamp { value: 1, echo }),
        ..Options::default()
    }
}

/// A connection that has received two segments per round trip for a while. Its quick ACKs are used
/// up, and it has measured the round trip.
fn received_for_a_while() -> (World, Client, u32) {
    let mut w = World::new();
    let listener = w.listen();
    let mut client = w.client();
    let mut syn = client.syn();
    syn.options.sack_permitted = true;
    syn.options.timestamp = stamps(0).timestamp;
    w.send(&syn);
    let syn_ack = w.tcp_with(Flags::SYN | Flags::ACK);
    client.on_syn_ack(&syn_ack);
    let mut echo = syn_ack.options.timestamp.expect("stamps").value;
    w.advance(ROUND_TRIP);
    let ack = client.ack().options(stamps(echo));
    w.send(&ack);
    let socket = w.app.accept(listener).unwrap();
    for _ in 0..40 {
        for _ in 0..2 {
            let data = client.data(&PAYLOAD).options(stamps(echo));
            w.send(&data);
        }
        w.read(socket);
        let acks = w.peer.take_tcp();
        echo = acks
            .last()
            .expect("an ACK")
            .options
            .timestamp
            .unwrap()
            .value;
        w.advance(ROUND_TRIP);
    }
    w.peer.forget();
    (w, client, echo)
}

#[test]
fn established_sack_that_waits_for_others_leaves_within_a_part_of_the_round_trip() {
    let (mut w, mut client, echo) = received_for_a_while();
    // One segment is lost. Three of those behind it are answered at once, the others together.
    client.data(&PAYLOAD);
    for _ in 0..6 {
        let data = client.data(&PAYLOAD).options(stamps(echo));
        w.send(&data);
    }
    assert_eq!(w.peer.take_tcp().len(), 3);
    w.advance(ROUND_TRIP / 8);
    let acks = w.peer.take_tcp();
    assert_eq!(acks.len(), 1, "{acks:?}");
    let block = acks[0].options.sack.as_slice()[0];
    assert_eq!(block.right.0, client.nxt);
}
