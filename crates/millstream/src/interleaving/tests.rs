//! Every order of a wait's steps and of the steps that end it: nested polls, kernel descriptors,
//! accept and connect.
//!
//! A scenario prepares two contexts, names two steps of other threads, and waits. It runs once for
//! each way to place the steps, in order, between the points that the wait passes. A step whose
//! point is never reached happens at the last look before the sleep, so it has to end the sleep. A
//! lost wake-up makes the wait time out after [`PATIENCE`], and the scenario fails.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packetio::loopback::{self, LoopbackOptions};
use packetio::wait::monotonic_ns;
use packetio::{Clock, Port};
use ring::trylock::TryLock;
use rustix::event::{EventfdFlags, eventfd};
use stack::{Limits, Stack};

use crate::config::Config;
use crate::context::Context;
use crate::crank::Crank;
use crate::lease::Lease;
use crate::shared_stack::{SharedStack, Watch};
use crate::sharing::Sharing;
use crate::{Events, Interest, Mode, Poll, TcpListener, TcpStream, Token};

/// Longer than any wait that was woken.
const PATIENCE: Duration = Duration::from_secs(20);
const INNER: Token = Token(1);
const SOCKET: Token = Token(2);
const BELL: Token = Token(3);
/// A level-triggered descriptor would end each wait, so that the byte could arrive at any later
/// point.
const EPOLLIN_EDGE: u32 = 1 | 1 << 31;
const BOTH_MODES: [Mode; 2] = [Mode::Level, Mode::Edge];

/// A step of another thread.
type Step = Box<dyn FnMut()>;

/// The steps of one run, each with the number of the point at which it happens.
struct Agenda {
    steps: VecDeque<(usize, Step)>,
    passed: usize,
    /// Runs the peer while the owner sleeps.
    peers_turn: Step,
}

thread_local! {
    static AGENDA: RefCell<Option<Agenda>> = const { RefCell::new(None) };
    /// Number of steps that reached their point.
    static PLACED: Cell<usize> = const { Cell::new(0) };
}

/// Runs the steps whose point this is.
pub(crate) fn point() {
    // A step passes points, too; these do not count.
    let Some(mut agenda) = AGENDA.take() else {
        return;
    };
    while agenda
        .steps
        .front()
        .is_some_and(|(at, _)| *at <= agenda.passed)
        && let Some((_, mut step)) = agenda.steps.pop_front()
    {
        step();
        PLACED.set(PLACED.get() + 1);
    }
    agenda.passed += 1;
    AGENDA.set(Some(agenda));
}

/// Runs all remaining steps, and the peer.
pub(crate) fn before_sleep() {
    let Some(mut agenda) = AGENDA.take() else {
        return;
    };
    for (_, mut step) in agenda.steps.drain(..) {
        step();
    }
    (agenda.peers_turn)();
    AGENDA.set(Some(agenda));
}

/// Runs `act` while `steps` happen at the points `places`. Returns the number of steps that reached
/// their point.
fn play<T>(
    pair: &Pair,
    places: &[usize; 2],
    steps: [Step; 2],
    act: impl FnOnce() -> T,
) -> (usize, T) {
    PLACED.set(0);
    AGENDA.set(Some(Agenda {
        steps: places.iter().copied().zip(steps).collect(),
        passed: 0,
        peers_turn: pair.peers_turn(),
    }));
    let begin = Instant::now();
    let outcome = act();
    AGENDA.set(None);
    // A wait looks once more after its timeout, so it would find events for which it was not woken.
    assert!(begin.elapsed() < PATIENCE, "a lost wake-up at {places:?}");
    (PLACED.get(), outcome)
}

/// Runs a scenario with two steps at every pair of places, the first step not after the second.
/// `scenario` returns the number of steps that reached their point. Returns the number of runs.
fn in_every_order(scenario: impl Fn(&[usize; 2]) -> usize) -> usize {
    let mut runs = 0;
    for first in 0.. {
        for second in first.. {
            runs += 1;
            match scenario(&[first, second]) {
                2 => {}
                1 => break,
                _ => return runs,
            }
        }
    }
    runs
}

/// A context whose stack only the test turns, and that stack.
fn context(address: &str, port: Box<dyn Port + Send>) -> (Context, Arc<SharedStack>) {
    let mut config = Config::new("loopback:unused".parse().expect("a wire"));
    config.addresses.push(address.parse().expect("an address"));
    config.clock = Clock::System;
    config.spin_ns = 0;
    config.linger_ns = 0;
    config.limits = Limits {
        sockets_max: 16,
        small_chunks: 64,
        large_chunks: 64,
        time_wait_max: 16,
        half_open_max: 16,
        ..Limits::default()
    };
    let (stack, side) =
        Stack::new(config.stack(0), port, monotonic_ns()).expect("a stack of small tables");
    let shared = Arc::new(SharedStack {
        stack: TryLock::new(stack),
        watch: Watch::new(),
    });
    let crank = Crank::new(shared.clone(), None, &config);
    let lease = Arc::new(Lease {
        member: Sharing::none().membership(0),
        mux: None,
        _mirror: None,
    });
    (
        Context::new(0, side, crank, Arc::new(config), lease),
        shared,
    )
}

/// Two hosts on one wire, both turned by the test.
struct Pair {
    ours: Context,
    our_stack: Arc<SharedStack>,
    peer: Context,
}

impl Pair {
    fn new() -> Self {
        let (near, far) = loopback::pair(&LoopbackOptions::default()).expect("a link");
        let (ours, our_stack) = context("10.9.0.1/24", Box::new(near));
        let (peer, _) = context("10.9.0.2/24", Box::new(far));
        Self {
            ours,
            our_stack,
            peer,
        }
    }

    fn our_place() -> SocketAddr {
        "10.9.0.1:80".parse().expect("an address")
    }

    fn peers_place() -> SocketAddr {
        "10.9.0.2:80".parse().expect("an address")
    }

    fn settle(&self) {
        while self.ours.turn_until_idle().expect("a wire")
            | self.peer.turn_until_idle().expect("a wire")
        {}
    }

    /// Both ends of a connection, ours first.
    fn connected(&self) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(&self.peer, Self::peers_place()).expect("a free port");
        listener.set_nonblocking(true);
        let client = TcpStream::start_connect(&self.ours, Self::peers_place()).expect("a socket");
        self.settle();
        let (server, _) = listener.accept().expect("a connection");
        server.set_nodelay(true).expect("a connection");
        self.settle();
        (client, server)
    }

    /// The watchdog's step: a turn, unless the owner holds the stack.
    fn watchdog(&self) -> Step {
        let shared = self.our_stack.clone();
        Box::new(move || {
            if let Some(mut stack) = shared.stack.try_lock() {
                stack.turn(monotonic_ns());
            }
        })
    }

    /// The peer's step: it handles arrived frames and sends its answers.
    fn peers_turn(&self) -> Step {
        let peer = self.peer.clone();
        Box::new(move || {
            peer.turn_until_idle().expect("a wire");
        })
    }
}

/// The step of a writer at the peer: sends one byte.
fn byte_of(server: &Rc<RefCell<TcpStream>>, pair: &Pair) -> Step {
    let (server, peer) = (server.clone(), pair.peer.clone());
    Box::new(move || {
        server.borrow_mut().write_all(b"x").expect("room");
        peer.turn_until_idle().expect("a wire");
    })
}

/// The step of a thread that makes a kernel descriptor readable.
fn ring_of(bell: &Arc<OwnedFd>) -> Step {
    let bell = bell.clone();
    Box::new(move || {
        rustix::io::write(&*bell, &1u64.to_ne_bytes()).expect("room in a counter");
    })
}

fn new_bell() -> Arc<OwnedFd> {
    Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("a descriptor"))
}

/// The tokens that one wait reports.
fn tokens(poll: &mut Poll, timeout: Duration) -> Vec<Token> {
    let mut events = Events::with_capacity(8);
    poll.wait(&mut events, Some(timeout)).expect("a wire");
    events.iter().map(|event| event.token()).collect()
}

/// All tokens that `poll` reports until it has reported each of `wanted`.
fn told(poll: &mut Poll, wanted: &[Token]) -> Vec<Token> {
    let mut all = Vec::new();
    while !wanted.iter().all(|token| all.contains(token)) {
        let more = tokens(poll, PATIENCE);
        assert!(!more.is_empty(), "nothing but {all:?} of {wanted:?}");
        all.extend(more);
    }
    all
}

#[test]
fn poll_within_a_poll_tells_of_bytes_that_arrive_at_any_step() {
    for (outer_mode, inner_mode) in BOTH_MODES
        .into_iter()
        .flat_map(|outer| BOTH_MODES.map(|inner| (outer, inner)))
    {
        let runs = in_every_order(|places| {
            let pair = Pair::new();
            let (mut client, server) = pair.connected();
            let server = Rc::new(RefCell::new(server));
            let (mut outer, mut inner) = (Poll::new(&pair.ours), Poll::new(&pair.ours));
            let mut placed = 0;
            // The second round begins with the edges that the first one has seen.
            for round in 0..2 {
                let steps = [byte_of(&server, &pair), pair.watchdog()];
                let places = if round == 0 { &[0, 0] } else { places };
                let (count, heard) = play(&pair, places, steps, || {
                    if round == 0 {
                        let wanted = Interest::READABLE;
                        inner
                            .register(&client, SOCKET, wanted, inner_mode)
                            .expect("new");
                        point();
                        outer
                            .register_poll(&mut inner, INNER, wanted, outer_mode, false)
                            .expect("new");
                    }
                    point();
                    told(&mut outer, &[INNER])
                });
                placed = count;
                assert_eq!(heard, [INNER], "{places:?}, {outer_mode:?}, {inner_mode:?}");
                assert_eq!(told(&mut inner, &[SOCKET]), [SOCKET], "{places:?}");
                assert_eq!(client.read(&mut [0; 8]).expect("a byte"), 1);
                pair.settle();
                assert_eq!(tokens(&mut outer, Duration::ZERO), [], "{places:?}");
            }
            placed
        });
        assert!(runs > 30, "{runs} runs");
    }
}

#[test]
fn poll_is_registered_with_another_while_bytes_arrive() {
    for mode in BOTH_MODES {
        let runs = in_every_order(|places| {
            let pair = Pair::new();
            let (client, server) = pair.connected();
            let server = Rc::new(RefCell::new(server));
            let (mut outer, mut inner) = (Poll::new(&pair.ours), Poll::new(&pair.ours));
            let steps = [byte_of(&server, &pair), pair.watchdog()];
            let (placed, heard) = play(&pair, places, steps, || {
                point();
                inner
                    .register(&client, SOCKET, Interest::READABLE, mode)
                    .expect("new");
                point();
                outer
                    .register_poll(&mut inner, INNER, Interest::READABLE, mode, false)
                    .expect("new");
                point();
                told(&mut outer, &[INNER])
            });
            assert_eq!(heard, [INNER], "{places:?}, {mode:?}");
            placed
        });
        assert!(runs > 30, "{runs} runs");
    }
}

#[test]
fn kernel_descriptor_is_told_of_at_any_step_beside_a_socket() {
    for is_nested in [false, true] {
        let runs = in_every_order(|places| {
            let pair = Pair::new();
            let (client, server) = pair.connected();
            let server = Rc::new(RefCell::new(server));
            let bell = new_bell();
            let (mut poll, mut inner) = (Poll::new(&pair.ours), Poll::new(&pair.ours));
            let (readable, edge) = (Interest::READABLE, Mode::Edge);
            poll.register(&client, SOCKET, readable, edge).expect("new");
            let bells = match is_nested {
                true => INNER,
                false => BELL,
            };
            let steps = [ring_of(&bell), byte_of(&server, &pair)];
            let (placed, heard) = play(&pair, places, steps, || {
                point();
                match is_nested {
                    true => {
                        inner.register_fd(&*bell, BELL, readable).expect("new");
                        point();
                        poll.register_poll(&mut inner, INNER, readable, edge, false)
                            .expect("new");
                    }
                    false => poll
                        .register_fd_with(&*bell, BELL, EPOLLIN_EDGE)
                        .expect("new"),
                }
                point();
                told(&mut poll, &[SOCKET, bells])
            });
            let of_the_socket = heard.iter().filter(|token| **token == SOCKET).count();
            assert_eq!(of_the_socket, 1, "{places:?}: an edge is told once");
            placed
        });
        assert!(runs > 30, "{runs} runs");
    }
}

/// A listener, and a peer whose next turn completes the handshake.
fn half_open(pair: &Pair) -> (TcpListener, TcpStream) {
    let listener = TcpListener::bind(&pair.ours, Pair::our_place()).expect("a free port");
    let client = TcpStream::start_connect(&pair.peer, Pair::our_place()).expect("a socket");
    // The first turns find the neighbours; the peer has sent its SYN and not seen the answer.
    for _ in 0..4 {
        pair.peer.turn_until_idle().expect("a wire");
        pair.ours.turn_until_idle().expect("a wire");
        if pair.ours.report().expect("an answer").usage.half_open > 0 {
            return (listener, client);
        }
    }
    panic!("no SYN has arrived");
}

#[test]
fn accept_ends_at_whatever_step_the_handshake_is_complete() {
    let runs = in_every_order(|places| {
        let pair = Pair::new();
        let (listener, _client) = half_open(&pair);
        listener.options().set_recv_timeout(Some(PATIENCE));
        let steps = [pair.peers_turn(), pair.watchdog()];
        let (placed, accepted) = play(&pair, places, steps, || listener.accept());
        let remote = accepted
            .unwrap_or_else(|error| panic!("{places:?}: {error}"))
            .1;
        assert_eq!(remote.ip(), Pair::peers_place().ip());
        placed
    });
    assert!(runs > 10, "{runs} runs");
}

#[test]
fn listener_is_readable_at_whatever_step_the_handshake_is_complete() {
    for mode in BOTH_MODES {
        let runs = in_every_order(|places| {
            let pair = Pair::new();
            let (listener, _client) = half_open(&pair);
            listener.set_nonblocking(true);
            let mut poll = Poll::new(&pair.ours);
            let steps = [pair.peers_turn(), pair.watchdog()];
            let (placed, heard) = play(&pair, places, steps, || {
                poll.register(&listener, SOCKET, Interest::READABLE, mode)
                    .expect("new");
                point();
                told(&mut poll, &[SOCKET])
            });
            assert_eq!(heard, [SOCKET], "{places:?}, {mode:?}");
            listener
                .accept()
                .unwrap_or_else(|error| panic!("{places:?}: {error}"));
            assert_eq!(
                tokens(&mut poll, Duration::ZERO),
                [],
                "{places:?}, {mode:?}"
            );
            placed
        });
        assert!(runs > 10, "{runs} runs");
    }
}

/// The peer answers a SYN that left before its step, or else before we sleep.
fn answering(pair: &Pair) -> [Step; 2] {
    [pair.peers_turn(), pair.watchdog()]
}

/// The peer knows our MAC address and we know the peer's.
fn acquainted() -> Pair {
    let pair = Pair::new();
    drop(pair.connected());
    pair.settle();
    pair
}

#[test]
fn connect_ends_at_whatever_step_the_peer_answers() {
    for listens in [true, false] {
        let runs = in_every_order(|places| {
            let pair = acquainted();
            let _listener =
                listens.then(|| TcpListener::bind(&pair.peer, Pair::peers_place()).expect("free"));
            let (placed, stream) = play(&pair, places, answering(&pair), || {
                TcpStream::connect_timeout(&pair.ours, Pair::peers_place(), PATIENCE)
            });
            match stream {
                Ok(_) => assert!(listens, "{places:?}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{places:?}");
                    assert!(!listens, "{places:?}");
                }
            }
            placed
        });
        assert!(runs > 10, "{runs} runs");
    }
}

#[test]
fn stream_is_writable_at_whatever_step_the_peer_answers() {
    for (listens, mode) in [true, false]
        .into_iter()
        .flat_map(|listens| BOTH_MODES.map(|mode| (listens, mode)))
    {
        let runs = in_every_order(|places| {
            let pair = acquainted();
            let _listener =
                listens.then(|| TcpListener::bind(&pair.peer, Pair::peers_place()).expect("free"));
            let mut poll = Poll::new(&pair.ours);
            let (placed, (stream, heard)) = play(&pair, places, answering(&pair), || {
                let stream =
                    TcpStream::start_connect(&pair.ours, Pair::peers_place()).expect("a socket");
                point();
                poll.register(&stream, SOCKET, Interest::WRITABLE, mode)
                    .expect("new");
                point();
                let heard = told(&mut poll, &[SOCKET]);
                (stream, heard)
            });
            assert_eq!(heard, [SOCKET], "{places:?}, {mode:?}");
            let failed = stream.take_error().map(|error| error.kind());
            let refused = (!listens).then_some(ErrorKind::ConnectionRefused);
            assert_eq!(failed, refused, "{places:?}, {mode:?}");
            placed
        });
        assert!(runs > 10, "{runs} runs");
    }
}
