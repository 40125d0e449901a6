//! Many connections of one server on a virtual clock. None starves although their buffers do not
//! fit, and waits report the events of many in parts.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use millstream::{
    Clock, Config, Context, Crank, Events, Interest, Limits, Mode, Poll, Runtime, TcpListener,
    TcpStream, Token, VirtualClock,
};

const TURN_NS: u64 = 50_000;
/// Largest number of bytes that one stream moves in one visit.
const VISIT_BYTES_MAX: usize = 1 << 20;

struct World {
    clock: VirtualClock,
    contexts: [Context; 2],
    _runtimes: [Runtime; 2],
}

impl World {
    fn new(name: &str, mtu: usize, large_chunks: usize) -> Self {
        let clock = VirtualClock::new(1_000_000_000);
        let open = |address: &str| {
            let mut config = Config::new(format!("loopback:{name},mtu={mtu}").parse().unwrap());
            config.crank = Crank::Inline;
            config.addresses.push(address.parse().unwrap());
            config.limits = Limits {
                large_chunks,
                ..Limits::for_connections(1_024)
            };
            config.seed = Some([1, 2, 3, 4]);
            config.clock = Clock::Virtual(clock.clone());
            config.linger_ns = 0;
            Runtime::new(config).unwrap()
        };
        let runtimes = [open("10.9.0.1/24"), open("10.9.0.2/24")];
        let contexts = [runtimes[0].context(0), runtimes[1].context(0)].map(Result::unwrap);
        Self {
            clock,
            contexts,
            _runtimes: runtimes,
        }
    }

    /// Opens `count` connections: the server's ends and the client's.
    fn connections(&self, count: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
        let [here, there] = &self.contexts;
        let address: SocketAddr = "10.9.0.1:80".parse().unwrap();
        let listener = TcpListener::bind(here, address).unwrap();
        listener.set_nonblocking(true);
        let (mut servers, mut clients) = (Vec::new(), Vec::new());
        while servers.len() < count {
            if clients.len() == servers.len() {
                let client = TcpStream::start_connect(there, address).unwrap();
                client.set_nonblocking(true);
                clients.push(client);
            }
            there.turn().unwrap();
            here.turn().unwrap();
            self.clock.advance_ns(TURN_NS);
            if let Ok((server, _)) = listener.accept() {
                server.set_nonblocking(true);
                servers.push(server);
            }
        }
        (servers, clients)
    }
}

/// The streams of one end, with the bytes that each moved.
struct End {
    poll: Poll,
    streams: Vec<TcpStream>,
    moved: Vec<usize>,
    buffer: Vec<u8>,
    visit_bytes_max: usize,
}

impl End {
    fn new(context: &Context, streams: Vec<TcpStream>, interest: Interest, mode: Mode) -> Self {
        let mut poll = Poll::new(context);
        for (token, stream) in streams.iter().enumerate() {
            poll.register(stream, Token(token), interest, mode).unwrap();
        }
        Self {
            poll,
            moved: vec![0; streams.len()],
            streams,
            buffer: vec![7; 65_536],
            visit_bytes_max: VISIT_BYTES_MAX,
        }
    }

    fn turn(&mut self, act: fn(&mut TcpStream, &mut [u8]) -> std::io::Result<usize>) {
        let mut events = Events::with_capacity(1_024);
        self.poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        for event in &events {
            let Token(token) = event.token();
            let mut moved = 0;
            while moved < self.visit_bytes_max {
                match act(&mut self.streams[token], &mut self.buffer) {
                    Ok(n) => moved += n,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
            self.moved[token] += moved;
        }
    }
}

/// Bytes of each of `flows` downloads in the last three quarters of `turns` turns.
fn downloads(name: &str, mtu: usize, large_chunks: usize, flows: usize, turns: usize) -> Vec<f64> {
    let mode = (Mode::Level, VISIT_BYTES_MAX);
    downloads_by(name, mtu, large_chunks, flows, turns, mode)
}

/// Like [`downloads`], with the mode of events, and the bytes that a visit moves at most.
fn downloads_by(
    name: &str,
    mtu: usize,
    large_chunks: usize,
    flows: usize,
    turns: usize,
    (mode, visit_bytes_max): (Mode, usize),
) -> Vec<f64> {
    let world = World::new(name, mtu, large_chunks);
    let (servers, clients) = world.connections(flows);
    let [here, there] = &world.contexts;
    let mut server = End::new(here, servers, Interest::WRITABLE, mode);
    server.visit_bytes_max = visit_bytes_max;
    let mut client = End::new(there, clients, Interest::READABLE, Mode::Level);
    for turn in 0..turns {
        if turn == turns / 4 {
            client.moved.fill(0);
        }
        server.turn(|stream, bytes| stream.write(bytes));
        client.turn(|stream, bytes| stream.read(bytes));
        world.clock.advance_ns(TURN_NS);
    }
    client.moved.iter().map(|&bytes| bytes as f64).collect()
}

/// The smallest download divided by the largest.
fn evenness(shares: &[f64]) -> f64 {
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    least / shares.iter().copied().fold(0.0, f64::max)
}

/// Jain's fairness index.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    sum * sum / (shares.len() as f64 * squares)
}

#[test]
fn writers_that_want_more_than_a_turns_chunks_all_get_some() {
    let evenness = evenness(&downloads("magazine", 9_000, 16_384, 24, 4_000));
    assert!(evenness > 0.75, "{evenness}");
}

#[test]
fn writers_that_want_more_than_all_chunks_share_them() {
    // A share is little more than what one visit sends.
    let evenness = evenness(&downloads("pool", 1_500, 1_024, 128, 6_000));
    assert!(evenness > 0.75, "{evenness}");
}

#[test]
fn writers_on_a_wire_that_is_always_full_have_equal_turns() {
    // Every turn ends with a full port, which must not change the order of the flows.
    let jain = jain(&downloads("turns", 1_500, 1_024, 512, 1_000));
    assert!(jain > 0.999, "{jain}");
}

#[test]
fn writers_with_large_send_buffers_have_equal_shares() {
    // The send buffers grow to a megabyte, and a wire of large frames empties them at once.
    let jain = jain(&downloads("large", 65_000, 65_536, 512, 1_000));
    assert!(jain > 0.999, "{jain}");
}

#[test]
fn edge_triggered_writers_that_leave_to_others_are_told_of_room() {
    let mode = (Mode::Edge, usize::MAX);
    let jain = jain(&downloads_by("edges", 65_000, 65_536, 512, 1_000, mode));
    assert!(jain > 0.999, "{jain}");
}

/// A server of documents, with the bytes that remain of each answer.
struct Documents {
    end: End,
    left: Vec<usize>,
}

impl Documents {
    /// Handles the events of one wait, at most `events_max`. A request is a byte, and the answer a
    /// document of `bytes` bytes.
    fn turn(&mut self, bytes: usize, events_max: usize) {
        let mut events = Events::with_capacity(events_max);
        let End {
            poll,
            streams,
            buffer,
            ..
        } = &mut self.end;
        poll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        for event in &events {
            let Token(token) = event.token();
            let (stream, left) = (&mut streams[token], &mut self.left[token]);
            let was_writing = *left > 0;
            if !was_writing && stream.read(&mut [0]).is_ok() {
                *left = bytes;
            }
            while *left > 0 {
                match stream.write(&buffer[..(*left).min(65_536)]) {
                    Ok(n) => *left -= n,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
            if was_writing != (*left > 0) {
                let interest = match *left {
                    0 => Interest::READABLE,
                    _ => Interest::WRITABLE,
                };
                poll.reregister(stream, Token(token), interest, Mode::Level)
                    .unwrap();
            }
        }
    }
}

/// The longest wait for a document, as a multiple of the mean, while all of `flows` clients ask
/// again at once. Windows grow first.
fn longest_wait(name: &str, flows: usize, bytes: usize) -> f64 {
    const TURNS: i32 = 1_400;
    const SETTLED: i32 = 700;
    let world = World::new(name, 9_000, 16_384);
    let (servers, clients) = world.connections(flows);
    let [here, there] = &world.contexts;
    let mut server = Documents {
        end: End::new(here, servers, Interest::READABLE, Mode::Level),
        left: vec![0; flows],
    };
    let mut client = End::new(there, clients, Interest::READABLE, Mode::Level);
    for stream in &mut client.streams {
        stream.write_all(b"?").unwrap();
    }
    let (mut asked_at, mut waits) = (vec![0; flows], Vec::new());
    for turn in 0..TURNS {
        server.turn(bytes, flows / 8);
        client.turn(|stream, bytes| stream.read(bytes));
        for (at, moved) in client.moved.iter_mut().enumerate() {
            if *moved >= bytes {
                assert_eq!(*moved, bytes);
                *moved = 0;
                if asked_at[at] >= SETTLED {
                    waits.push(f64::from(turn - asked_at[at]));
                }
                asked_at[at] = turn;
                client.streams[at].write_all(b"?").unwrap();
            }
        }
        world.clock.advance_ns(TURN_NS);
    }
    // Documents that the server has written completely are on their way.
    let open = (0..flows).filter(|&at| server.left[at] > 0);
    waits.extend(open.map(|at| f64::from(TURNS - asked_at[at])));
    let longest = waits.iter().copied().fold(0.0, f64::max);
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    longest / mean
}

#[test]
fn crowd_short_of_chunks_is_answered_in_turn() {
    let longest = longest_wait("answers", 512, 262_144);
    assert!(longest < 2.0, "{longest} mean waits");
}

/// The time at which the data arrives that waits report.
#[derive(Clone, Copy, PartialEq)]
enum Arrival {
    /// In a turn before the first wait.
    Before,
    /// In the turn of the first wait.
    Within,
}

/// Number of events that a wait reports which would sleep without events. On a virtual clock such a
/// wait fails with `WouldBlock`.
fn wait_that_may_sleep(poll: &mut Poll, events: &mut Events) -> usize {
    match poll.wait(events, Some(Duration::from_nanos(1))) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        waited => waited.unwrap(),
    }
}

/// Number of waits that it takes to report what `count` connections have received.
fn waits_for(name: &str, count: usize, arrival: Arrival) -> usize {
    let world = World::new(name, 1_500, 1_024);
    let (servers, mut clients) = world.connections(count);
    let [here, there] = &world.contexts;
    let mut poll = Poll::new(here);
    for (token, stream) in servers.iter().enumerate() {
        poll.register(stream, Token(token), Interest::READABLE, Mode::Edge)
            .unwrap();
    }
    let mut events = Events::with_capacity(1_024);
    while wait_that_may_sleep(&mut poll, &mut events) > 0 {}
    for client in &mut clients {
        client.write_all(b"!").unwrap();
    }
    for _ in 0..4 {
        there.turn().unwrap();
        if arrival == Arrival::Before {
            here.turn().unwrap();
        }
    }
    let (mut told, mut waits) = (Vec::new(), 0);
    while wait_that_may_sleep(&mut poll, &mut events) > 0 {
        told.extend(events.iter().map(|event| event.token().0));
        waits += 1;
    }
    told.sort_unstable();
    assert_eq!(told, (0..count).collect::<Vec<_>>());
    waits
}

#[test]
fn few_that_arrive_are_handed_over_in_parts_and_each_once() {
    let waits = waits_for("parts", 100, Arrival::Within);
    assert!((2..=8).contains(&waits), "{waits}");
}

#[test]
fn few_that_were_ready_before_are_handed_over_at_once() {
    assert_eq!(waits_for("few", 100, Arrival::Before), 1);
}

#[test]
fn many_ready_are_handed_over_at_once() {
    assert_eq!(waits_for("crowd", 400, Arrival::Before), 1);
}
