//! Paced departures in a stack: exact to the nanosecond, beside the timer wheel's milliseconds.

use ring::socket_block::SocketId;
use stack::context::SocketOption;

use crate::common::{MILLIS, World};

/// A connection that may send a segment every 14.6 ms and has sent its first ten. Departures thus
/// never fall on whole milliseconds.
fn held() -> (World, SocketId, usize) {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.app.option(socket, SocketOption::MaxPacingRate(99_991));
    let bytes = [7; 50_000];
    let mut received = 0;
    for _ in 0..10 {
        w.app.write(socket, &bytes);
        w.settle();
        let segments = w.peer.take_tcp();
        if segments.is_empty() {
            break;
        }
        for segment in segments {
            received += client.take(&segment).len();
        }
        w.send(&client.ack());
    }
    assert!(w.peer.take_tcp().is_empty());
    (w, socket, received)
}

#[test]
fn established_paced_data_leaves_when_its_time_has_come_and_not_before() {
    let (mut w, _, received) = held();
    assert!((10_000..20_000).contains(&received), "{received}");
    let begin_ns = w.now_ns;
    // Outdated timers of the wheel may fire in between.
    while w.peer.take_tcp().is_empty() {
        let due_ns = w.stack.next_timer_ns().expect("a departure");
        assert!(due_ns > w.now_ns && due_ns < begin_ns + 1_000 * MILLIS);
        w.now_ns = due_ns - 1;
        w.settle();
        assert!(w.peer.take_tcp().is_empty());
        w.now_ns = due_ns;
        w.settle();
    }
    assert_ne!(w.now_ns % MILLIS, 0, "the wheel would have rounded it up");
}

#[test]
fn established_paced_connection_that_is_aborted_departs_no_more() {
    let (mut w, socket, _) = held();
    w.app.abort(socket);
    w.settle();
    w.peer.forget();
    w.advance(1_000 * MILLIS);
    assert!(w.peer.take_tcp().is_empty());
}
