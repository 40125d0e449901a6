//! A crowd comes and goes. Its memory returns to the system after a while, and the next crowd finds
//! all that it needs.

use ring::socket_block::SocketId;
use stack::StackConfig;

use crate::common::{Client, SECOND, World};

const CROWD: usize = 1_200;
/// One request. The four of a connection together exceed a large chunk (4 KiB).
const REQUEST: [u8; 1_400] = [7; 1_400];
const REQUESTS_EACH: usize = 4;

type Ends = Vec<(Client, SocketId)>;

/// A world with slots for the whole crowd, which returns unused memory after a second.
fn roomy(change: impl FnOnce(&mut StackConfig)) -> (World, SocketId) {
    let mut w = World::with(|setup| {
        let limits = &mut setup.config.limits;
        (limits.sockets_max, limits.warm_sockets) = (4_096, 4_096);
        (limits.small_chunks, limits.large_chunks) = (8_192, 4_096);
        setup.config.return_memory_ns = SECOND;
        change(&mut setup.config);
    });
    let listener = w.listen();
    (w, listener)
}

/// Makes the crowd's connections; each has sent requests that the application has not read.
fn crowd(w: &mut World, listener: SocketId) -> Ends {
    let mut ends = Ends::new();
    for _ in 0..CROWD {
        let mut client = w.client();
        w.handshake(&mut client);
        let socket = w.app.accept(listener).expect("the handshake is complete");
        for _ in 0..REQUESTS_EACH {
            w.send(&client.data(&REQUEST));
        }
        w.peer.forget();
        ends.push((client, socket));
    }
    ends
}

/// Reads everything and ends the connections at once.
fn leave(w: &mut World, ends: impl IntoIterator<Item = (Client, SocketId)>) {
    for (client, socket) in ends {
        assert_eq!(w.read(socket), REQUEST.repeat(REQUESTS_EACH));
        w.send(&client.rst());
        w.close(socket);
        w.peer.forget();
    }
}

fn returned(w: &World) -> u64 {
    w.stack.counters().memory_returned_bytes
}

#[test]
fn quiet_after_a_crowd_returns_its_memory() {
    let (mut w, listener) = roomy(|_| {});
    for nth in 1..=2 {
        let ends = crowd(&mut w, listener);
        let full = w.app.side.memory.resident_bytes();
        assert!(full > (CROWD * REQUEST.len() * REQUESTS_EACH) as u64);
        leave(&mut w, ends);
        let before = returned(&w);
        // Recently used memory is not returned yet.
        w.advance(SECOND / 2);
        assert_eq!(returned(&w), before, "crowd {nth}");
        w.advance(6 * SECOND);
        let resident = w.app.side.memory.resident_bytes();
        let went = returned(&w) - before;
        assert!(resident < full / 3, "crowd {nth}: {resident} of {full}");
        assert!(went > full / 2, "crowd {nth}: {went} of {full}");
        // Nothing more can be returned, so the stack sleeps for good.
        let until_ns = w.now_ns + 2 * SECOND;
        let next_ns = w.stack.next_timer_ns();
        assert!(next_ns.is_none_or(|next_ns| next_ns > until_ns));
    }
}

#[test]
fn established_stay_when_the_crowd_around_them_goes() {
    let (mut w, listener) = roomy(|_| {});
    let mut ends = crowd(&mut w, listener);
    // Some of the connections that stay have the last slots, which are returned first.
    let mut stay = ends.split_off(CROWD - 3);
    let middle = ends.split_off(CROWD / 2);
    let (also, middle): (Ends, Ends) = {
        let mut middle = middle;
        let rest = middle.split_off(2);
        (middle, rest)
    };
    stay.extend(also);
    leave(&mut w, ends);
    leave(&mut w, middle);
    let before = returned(&w);
    w.advance(6 * SECOND);
    assert!(returned(&w) > before);
    for (client, socket) in &mut stay {
        // The unread bytes are intact.
        assert_eq!(w.read(*socket), REQUEST.repeat(REQUESTS_EACH));
        w.peer.forget();
        w.send(&client.data(b"request"));
        assert_eq!(w.read(*socket), b"request");
        w.write(*socket, b"response");
        let response = w.peer.take_tcp().pop().expect("the response");
        assert_eq!(client.take(&response), b"response");
        w.send(&client.ack());
    }
    assert_eq!(w.stack.usage().sockets, 1 + stay.len());
    let ends = crowd(&mut w, listener);
    leave(&mut w, ends);
}

#[test]
fn quiet_without_rounds_keeps_its_memory() {
    let (mut w, listener) = roomy(|config| config.return_memory_ns = 0);
    let ends = crowd(&mut w, listener);
    let full = w.app.side.memory.resident_bytes();
    leave(&mut w, ends);
    w.advance(20 * SECOND);
    assert_eq!(returned(&w), 0);
    assert_eq!(w.app.side.memory.resident_bytes(), full);
}
