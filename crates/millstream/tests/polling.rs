//! Programs that poll without sleeping on the CPU that a helper thread needs to move their bytes.
//!
//! The scheduler takes a CPU from a thread that never sleeps only after milliseconds, in which that
//! thread polls thousands of times. These tests count polls, so the speed of the machine does not
//! matter.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use millstream::{
    Clock, Context, Crank, Events, Interest, Mode, Poll, Runtime, TcpListener, TcpStream, Token,
    VirtualClock,
};
use packetio::loopback::{self, Loopback, LoopbackOptions};
use packetio::{Port, PortError, RxFrame};
use ring::published::Published64;

const EXCHANGES: usize = 100;
/// Median number of polls until a byte has gone from one context to the other. Each thread on the
/// way runs during one of them, and waking a thread may take a few more.
const POLLS_MAX: usize = 60;

/// Binds this thread, and those that it starts, to its present CPU.
fn pin() {
    let mut set = rustix::thread::CpuSet::new();
    set.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

/// A connection between two contexts of this thread.
fn connected(here: &Context, there: &Context, address: &str) -> (TcpStream, TcpStream) {
    let address = address.parse().unwrap();
    let listener = TcpListener::bind(there, address).unwrap();
    listener.set_nonblocking(true);
    let mut poll = Poll::new(there);
    poll.register(&listener, Token(0), Interest::READABLE, Mode::Level)
        .unwrap();
    let mut events = Events::with_capacity(1);
    let client = TcpStream::start_connect(here, address).unwrap();
    client.set_nonblocking(true);
    loop {
        here.turn().unwrap();
        poll.wait(&mut events, Some(Duration::from_millis(1)))
            .unwrap();
        if let Ok((server, _)) = listener.accept() {
            server.set_nonblocking(true);
            return (client, server);
        }
    }
}

/// Median number of polls until a byte arrives.
fn polls_for_a_byte(here: &Context, there: &Context, address: &str) -> usize {
    let (mut client, mut server) = connected(here, there, address);
    // With Nagle's algorithm a byte would wait for the acknowledgment of the previous one.
    client.set_nodelay(true).unwrap();
    let mut poll = Poll::new(there);
    poll.register(&server, Token(0), Interest::READABLE, Mode::Level)
        .unwrap();
    let mut events = Events::with_capacity(1);
    let mut counts = Vec::new();
    for _ in 0..EXCHANGES {
        while let Err(error) = client.write(b"x") {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            here.turn().unwrap();
        }
        here.turn().unwrap();
        let mut count = 0;
        loop {
            count += 1;
            if poll.wait(&mut events, Some(Duration::ZERO)).unwrap() > 0 {
                break;
            }
        }
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 1);
        counts.push(count);
    }
    counts.sort_unstable();
    println!("polls: {counts:?}");
    counts[EXCHANGES / 2]
}

#[test]
fn poll_without_a_timeout_leaves_the_cpu_to_the_stack_thread() {
    pin();
    let wire = format!("loopback:{}", common::unique("polling"));
    let open = |address| Runtime::new(common::config(&wire, address, Crank::Dedicated)).unwrap();
    let (one, other) = (open("10.9.0.1/24"), open("10.9.0.2/24"));
    let (here, there) = (one.context(0).unwrap(), other.context(0).unwrap());
    let polls = polls_for_a_byte(&here, &there, "10.9.0.2:80");
    assert!(polls <= POLLS_MAX, "{polls}");
}

/// A port whose frames another thread moves, as the switch does. Counts how often it is asked.
struct Moved {
    port: Loopback,
    shares_cpu: bool,
    asked: Arc<Published64>,
}

impl Port for Moved {
    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.asked.add(1);
        self.port.receive()
    }

    fn mover_shares_cpu(&self) -> bool {
        self.shares_cpu
    }

    packetio::forward_port!(self => self.port; capabilities release reserve reserved send
        prepare_wait finish_wait poll_fds counters);
}

/// Number of times that a wait with a zero timeout and without events asks the port, on a clock
/// that stands still.
fn asked_by_a_poll(shares_cpu: bool) -> u64 {
    let (near, _far) = loopback::pair(&LoopbackOptions::default()).unwrap();
    let asked = Arc::<Published64>::default();
    let port = Moved {
        port: near,
        shares_cpu,
        asked: asked.clone(),
    };
    let mut config = common::config("loopback:unused", "10.9.0.1/24", Crank::Inline);
    config.clock = Clock::Virtual(VirtualClock::new(1_000_000_000));
    let runtime = Runtime::with_ports(config, vec![Box::new(port)]).unwrap();
    let context = runtime.context(0).unwrap();
    context.turn_until_idle().unwrap();
    let mut poll = Poll::new(&context);
    let mut events = Events::with_capacity(1);
    let before = asked.load();
    let found = poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
    assert_eq!(found, 0);
    asked.load() - before
}

#[test]
fn poll_that_finds_nothing_looks_again_after_the_thread_that_moves_frames() {
    assert_eq!(asked_by_a_poll(true), 2);
    assert_eq!(asked_by_a_poll(false), 1);
}
