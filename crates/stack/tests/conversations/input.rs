//! The amount of input that a turn takes, and what it leaves for the next one.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use packetio::loopback::{self, Loopback, LoopbackOptions};
use packetio::{Port, PortError, RxFrame};
use stack::Stack;
use stack::limits::{RX_FRAMES_PER_TURN, RX_FRAMES_WAITING_MAX, TX_FRAMES_PER_TURN};

use crate::common::{PORT, SECOND, STACK_V4, World, config};

/// A wire whose full ring loses frames, and that reports how many wait.
struct Losing {
    inner: Loopback,
    waiting: usize,
    /// Number of times that the wire was asked to make room.
    drained: Arc<Mutex<u32>>,
}

impl Port for Losing {
    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        let frames = self.inner.receive()?;
        self.waiting = self.waiting.saturating_sub(frames.len());
        Ok(frames)
    }

    fn drain(&mut self) {
        *self.drained.lock().unwrap() += 1;
    }

    fn waiting(&mut self) -> usize {
        self.waiting
    }

    packetio::forward_port!(self => self.inner; capabilities release reserve reserved send
        prepare_wait finish_wait poll_fds counters);
}

/// Of `sent` frames, those that each of two turns takes. `says`: the wire reports how many wait.
fn taken(sent: usize, says: bool) -> (u64, u64) {
    let wire = LoopbackOptions {
        slots: 8_192,
        ..LoopbackOptions::default()
    };
    let (near, mut far) = loopback::pair(&wire).expect("a link");
    let near = Losing {
        inner: near,
        waiting: if says { sent } else { 0 },
        drained: Arc::default(),
    };
    let (mut stack, _app) = Stack::new(config(), Box::new(near), SECOND).expect("a stack");
    for _ in 0..sent {
        let slots = far.reserve(1);
        slots[0].write(0, &[0; 60]);
        slots[0].set_len(60);
        far.send(1).expect("room on the wire");
    }
    stack.turn(SECOND);
    let first = stack.counters().rx_frames;
    stack.turn(SECOND);
    (first, stack.counters().rx_frames - first)
}

#[test]
fn many_frames_wait_where_none_are_lost_and_a_turn_takes_its_budget() {
    let budget = RX_FRAMES_PER_TURN as u64;
    assert_eq!(taken(1_000, false), (budget, budget));
}

#[test]
fn many_frames_wait_where_a_full_ring_loses_some_and_a_turn_takes_all() {
    assert_eq!(taken(1_000, true), (1_000, 0));
    assert_eq!(taken(100, true), (100, 0));
}

#[test]
fn more_frames_wait_than_a_turn_may_take_and_the_next_one_takes_the_rest() {
    let all = 5_000;
    let first = RX_FRAMES_WAITING_MAX as u64;
    assert_eq!(taken(all, true), (first, all as u64 - first));
}

#[test]
fn stack_whose_turn_is_long_in_coming_has_its_port_make_room() {
    let (near, _far) = loopback::pair(&LoopbackOptions::default()).expect("a link");
    let drained = Arc::new(Mutex::new(0));
    let near = Losing {
        inner: near,
        waiting: 0,
        drained: drained.clone(),
    };
    let (mut stack, _app) = Stack::new(config(), Box::new(near), SECOND).expect("a stack");
    stack.drain();
    assert_eq!(*drained.lock().unwrap(), 1);
}

/// Segments of the initial window.
const WINDOW_SEGMENTS: usize = 10;
const SEGMENT_BYTES: usize = 1_460;

/// Connections with this many full segments in all, which their peers' windows have just admitted.
fn let_go(mut segments: usize) -> World {
    let mut world = World::with(|setup| {
        setup.config.limits.sockets_max = 128;
        setup.config.limits.large_chunks = 1_024;
        setup.config.limits.segment_records = 2_048;
        setup.wire.slots = 2_048;
    });
    world.unchecked = true;
    let listener = world.listen_at(SocketAddr::new(STACK_V4, PORT), 16);
    let mut clients = Vec::new();
    while segments > 0 {
        let count = segments.min(WINDOW_SEGMENTS);
        segments -= count;
        let mut client = world.client();
        client.window = 0;
        world.handshake(&mut client);
        let socket = world
            .app
            .accept(listener)
            .expect("the handshake is complete");
        world.write(socket, &vec![7; count * SEGMENT_BYTES]);
        clients.push(client);
    }
    world.peer.forget();
    for mut client in clients {
        client.window = 60_000;
        let frame = world.peer.frame(&client.ack());
        world.peer.transmit(&frame);
    }
    world
}

#[test]
fn more_is_ready_than_a_turn_sends_and_the_turn_says_that_it_is_behind() {
    let mut world = let_go(TX_FRAMES_PER_TURN + 8);
    let turned = world.turn();
    assert!(turned.behind && !turned.blocked, "{turned:?}");
    assert!(world.peer.len() < TX_FRAMES_PER_TURN + 8);
    let turned = world.turn();
    assert!(!turned.behind, "{turned:?}");
    assert_eq!(world.peer.len(), TX_FRAMES_PER_TURN + 8);
}

#[test]
fn as_much_is_ready_as_a_turn_sends_and_the_turn_is_not_behind() {
    let mut world = let_go(TX_FRAMES_PER_TURN);
    let turned = world.turn();
    assert!(!turned.behind && !turned.blocked, "{turned:?}");
    assert_eq!(world.peer.len(), TX_FRAMES_PER_TURN);
}
