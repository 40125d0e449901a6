//! Pacing through the stack: departures are kept to the nanosecond, beside the wheel's milliseconds.

use stack::context::SocketOption;

use crate::common::{MILLIS, World};

#[test]
fn established_paced_data_leaves_when_its_time_has_come_and_not_before() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    // A segment every 14.6 ms.
    w.app.option(socket, SocketOption::MaxPacingRate(100_000));
    w.write(socket, &[7; 60_000]);
    let mut received = 0;
    // The first window is free, the second one burst.
    for _ in 0..2 {
        for segment in w.peer.take_tcp() {
            received += client.take(&segment).len();
        }
        w.send(&client.ack());
    }
    assert!(w.peer.take_tcp().is_empty());
    let due_ns = w.stack.next_timer_ns().expect("a departure");
    assert!(due_ns > w.now_ns);
    assert_ne!(due_ns % MILLIS, 0, "the wheel would have rounded it up");
    w.now_ns = due_ns - 1;
    w.settle();
    assert!(w.peer.take_tcp().is_empty());
    w.now_ns = due_ns;
    w.settle();
    for segment in w.peer.take_tcp() {
        received += client.take(&segment).len();
    }
    assert!(received > 40_000, "{received}");
    w.send(&client.ack());
}

#[test]
fn established_paced_connection_that_is_aborted_departs_no_more() {
    let mut w = World::new();
    let (mut client, socket) = w.established();
    w.app.option(socket, SocketOption::MaxPacingRate(100_000));
    w.write(socket, &[7; 60_000]);
    for _ in 0..2 {
        for segment in w.peer.take_tcp() {
            let _ = client.take(&segment);
        }
        w.send(&client.ack());
    }
    w.app.abort(socket);
    w.settle();
    w.peer.forget();
    w.advance(1_000 * MILLIS);
    assert!(w.peer.take_tcp().is_empty());
}
