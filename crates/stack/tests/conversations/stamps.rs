//! Time stamps in a stack (`SO_TIMESTAMPING`): when the last byte of a write left and was
//! acknowledged, and when read bytes had arrived.

use ring::socket_block::SocketId;
use stack::context::{Control, SocketOption, StampAnswer, StampKinds, StampQuery};

use crate::common::{MILLIS, World};

/// Fetches the stamps; `read` is the position up to which the application has read.
fn stamps(w: &mut World, socket: SocketId, read: u32) -> StampAnswer {
    let (answer, mut answers) = ring::spsc::queue(1);
    w.app.control(Control::Stamps(StampQuery {
        socket,
        read,
        answer,
    }));
    w.settle();
    answers.pop().expect("an answer")
}

/// Kind, position and time of the stamps that are ready.
fn sent(w: &mut World, socket: SocketId) -> Vec<(StampKinds, u32, u64)> {
    let answer = stamps(w, socket, 0);
    let of = |stamp: stack::context::TxStamp| (stamp.kind, stamp.position, stamp.at_ns);
    answer.sent.into_iter().map(of).collect()
}

const ALL: [StampKinds; 3] = [StampKinds::SCHEDULED, StampKinds::SENT, StampKinds::ACKED];

fn all() -> StampKinds {
    ALL[0] | ALL[1] | ALL[2]
}

#[test]
fn established_write_is_stamped_when_it_leaves_and_when_it_is_acknowledged() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.app.option(socket, SocketOption::StampSent(100, all()));
    w.write(socket, &[1; 100]);
    let left_ns = w.now_ns;
    let segment = w.tcp();
    assert_eq!(client.take(&segment).len(), 100);
    let seen = sent(&mut w, socket);
    assert_eq!(
        seen,
        [(ALL[0], 100, left_ns), (ALL[1], 100, left_ns)],
        "the ACK is to come"
    );
    w.advance(7 * MILLIS);
    w.send(&client.ack());
    assert_eq!(sent(&mut w, socket), [(ALL[2], 100, w.now_ns)]);
    assert_eq!(sent(&mut w, socket), [], "each is told once");
}

#[test]
fn established_write_in_two_segments_is_stamped_by_the_second() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let bytes = vec![3; 2_000];
    w.app.option(
        socket,
        SocketOption::StampSent(2_000, StampKinds::SENT | StampKinds::ACKED),
    );
    w.write(socket, &bytes);
    let segments = w.peer.take_tcp();
    assert_eq!(segments.len(), 2);
    assert_eq!(sent(&mut w, socket).len(), 1);
    // The first segment's ACK does not cover the last byte.
    let first = client.take(&segments[0]).len();
    w.send(&client.ack());
    assert_eq!(sent(&mut w, socket), []);
    assert_eq!(first + client.take(&segments[1]).len(), bytes.len());
    w.send(&client.ack());
    assert_eq!(sent(&mut w, socket), [(ALL[2], 2_000, w.now_ns)]);
}

#[test]
fn established_retransmission_is_stamped_again() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.app
        .option(socket, SocketOption::StampSent(10, StampKinds::SENT));
    w.write(socket, &[5; 10]);
    let lost = w.tcp();
    assert_eq!(sent(&mut w, socket).len(), 1);
    w.advance(2_000 * MILLIS);
    let again = w.peer.take_tcp();
    assert!(!again.is_empty() && again[0].seq == lost.seq);
    let stamped = sent(&mut w, socket);
    assert_eq!(stamped.len(), again.len(), "one for each time that it left");
    assert!(stamped.iter().all(|stamp| stamp.0 == StampKinds::SENT));
    client.take(&again[0]);
    w.send(&client.ack());
    assert_eq!(sent(&mut w, socket), [], "ACKs were not asked for");
}

#[test]
fn established_statistics_are_those_of_the_moment() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    let kinds = StampKinds::SENT | StampKinds::ACKED | StampKinds::STATS;
    w.app.option(socket, SocketOption::StampSent(50, kinds));
    w.write(socket, &[1; 50]);
    let segment = w.tcp();
    client.take(&segment);
    w.send(&client.ack());
    let answer = stamps(&mut w, socket, 0);
    let stats: Vec<_> = answer
        .sent
        .iter()
        .map(|stamp| stamp.stats.as_ref().expect("statistics"))
        .collect();
    assert_eq!(stats.len(), 2);
    assert_eq!((stats[0].send_buffered, stats[1].send_buffered), (50, 0));
    assert_eq!(stats[0].sent_ns, stats[1].sent_ns);
    assert_eq!(stats[1].tcp.bytes_acked, 50);
}

#[test]
fn established_arrivals_are_remembered_by_position() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.app.option(socket, SocketOption::StampArrivals(true));
    w.settle();
    let first_ns = w.now_ns;
    w.send(&client.data(&[1; 10]));
    w.advance(3 * MILLIS);
    let second_ns = w.now_ns;
    w.send(&client.data(&[2; 20]));
    w.peer.forget();
    assert_eq!(stamps(&mut w, socket, 10).arrived_ns, Some(first_ns));
    // A single read reports the time of its last byte.
    assert_eq!(stamps(&mut w, socket, 30).arrived_ns, Some(second_ns));
    assert_eq!(w.app.read(socket).len(), 30);
}

#[test]
fn established_nobody_asked_and_nothing_is_stamped() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.write(socket, &[1; 10]);
    let segment = w.tcp();
    client.take(&segment);
    w.send(&client.ack());
    let answer = stamps(&mut w, socket, 0);
    assert!(answer.sent.is_empty() && answer.arrived_ns.is_none());
}

/// Stamps beyond the limit are lost and counted if the application does not fetch them.
#[test]
fn established_stamps_that_nobody_fetches_are_lost_at_the_limit() {
    const HELD_MAX: u32 = 512;
    const WRITES: u32 = HELD_MAX / 3 + 4;
    let mut w = World::new();
    let (mut client, socket) = w.established();
    for nth in 1..=WRITES {
        w.app.option(socket, SocketOption::StampSent(nth, all()));
        w.write(socket, &[7]);
        client.take(&w.tcp());
        w.send(&client.ack());
    }
    let lost = 3 * WRITES - HELD_MAX;
    assert_eq!(w.stack.counters().stamps_lost, lost.into());
    assert_eq!(sent(&mut w, socket).len(), HELD_MAX as usize);
}

#[test]
fn established_segments_of_one_moment_are_one_arrival() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.app.option(socket, SocketOption::StampArrivals(true));
    w.settle();
    w.send(&client.data(b"f"));
    let first_ns = w.now_ns;
    w.advance(5 * MILLIS);
    // As many segments as arrivals are remembered: if each made an entry, the first one would be
    // forgotten.
    for _ in 0..64 {
        w.send(&client.data(b"l"));
    }
    w.peer.forget();
    assert_eq!(stamps(&mut w, socket, 1).arrived_ns, Some(first_ns));
    assert_eq!(stamps(&mut w, socket, 2).arrived_ns, Some(w.now_ns));
}
