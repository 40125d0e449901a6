//! Programs that poll without sleeping, on the CPU that a helper thread needs to move their bytes.
//!
//! The scheduler takes a CPU from a thread that never sleeps only after milliseconds, in which that
//! thread polls thousands of times. These tests count polls, so that the speed of the machine does
//! not matter.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use millstream::{
    Context, Crank, Events, Interest, Mode, Poll, Runtime, TcpListener, TcpStream, Token,
};

const EXCHANGES: usize = 100;
/// Polls for a byte's way from one context to the other, at the median: each thread on the way runs
/// for one of them, and a few more may pass while a thread is woken.
const POLLS_MAX: usize = 60;

/// This thread, and those that it starts, run on one CPU: the one that it is on.
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

/// How many polls it takes for a byte to arrive, at the median.
fn polls_for_a_byte(here: &Context, there: &Context, address: &str) -> usize {
    let (mut client, mut server) = connected(here, there, address);
    // No byte waits for the acknowledgment of the one before it.
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

#[test]
fn poll_without_a_timeout_leaves_the_cpu_to_the_switch() {
    pin();
    let mut config = common::config("loopback", "10.9.0.1/24", Crank::Inline);
    config.contexts = 2;
    let runtime = Runtime::new(config).unwrap();
    let (here, there) = (runtime.context(0).unwrap(), runtime.context(1).unwrap());
    let polls = polls_for_a_byte(&here, &there, "10.9.0.2:80");
    assert!(polls <= POLLS_MAX, "{polls}");
}
