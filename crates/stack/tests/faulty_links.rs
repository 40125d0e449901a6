//! Two whole stacks with a faulty wire between them, in virtual time. Each application reads
//! exactly the bytes that the other wrote, although frames are lost, doubled, reordered or damaged.
//! Afterwards both stacks hold nothing.
//!
//! The applications act only on events, so a lost event shows as a connection that hangs. A failure
//! prints its seed; `MILLSTREAM_SEED` runs one seed, `MILLSTREAM_SEEDS` sets their number.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use common::{App, MILLIS, PORT, SECOND};
use packetio::fault::{Clock, Fault, FaultOptions, LineOptions, Ratio};
use packetio::loopback::{self, Loopback, LoopbackOptions};
use packetio::{Port, PortError, RxFrame};
use ring::published::Published64;
use ring::socket_block::{SocketId, SocketState};
use rustix::io::Errno;
use stack::{Stack, StackConfig, Usage};

const CONNECTIONS: usize = 3;
const BYTES: u64 = 40_000;
const SEEDS: u64 = 20;
const HOURS_MAX: u64 = 4;

/// A faulty port that uses the test's clock.
struct Timed {
    inner: Fault<Loopback>,
    clock: Arc<Published64>,
}

impl Timed {
    fn tick(&mut self) -> &mut Fault<Loopback> {
        self.inner.set_now_ns(self.clock.load());
        &mut self.inner
    }
}

impl Port for Timed {
    fn receive(&mut self) -> Result<&[RxFrame], PortError> {
        self.tick().receive()
    }

    fn send(&mut self, n: usize) -> Result<(), PortError> {
        self.tick().send(n)
    }

    fn prepare_wait(&mut self, want_tx: bool) -> bool {
        self.tick().prepare_wait(want_tx)
    }

    packetio::forward_port!(self => self.inner; capabilities release reserve reserved
        finish_wait poll_fds deadline_ns counters);
}

/// One application's side of a connection: it writes its stream, reads the other's, and closes when
/// both are complete.
#[derive(Default)]
struct Stream {
    written: u64,
    read: u64,
    hash: u64,
    shut: bool,
}

/// The byte at `position` of the stream sent by `side`.
fn byte_at(side: u64, position: u64) -> u8 {
    let word = (position / 8 + side * 0x1_0000_0001).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word >> (position % 8 * 8)) as u8
}

/// Adds a byte to an FNV-1a hash.
fn mix(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

struct Side {
    number: u64,
    stack: Stack,
    app: App,
    listener: Option<SocketId>,
    remote: SocketAddr,
    streams: BTreeMap<(u32, u32), (SocketId, Stream)>,
    finished: usize,
    /// Number of connections to open again.
    retries: usize,
}

impl Side {
    fn new(number: u64, port: Box<dyn Port + Send>, seed: u64, now_ns: u64) -> Self {
        let last = number + 1;
        let tcp = tcp::Config {
            // A peer whose FIN is given up would wait for ever, as TCP allows. So no FIN is given
            // up here.
            orphan_retries_max: 15,
            ..tcp::Config::default()
        };
        let config = StackConfig {
            tcp,
            addresses: vec![
                format!("10.0.0.{last}/24").parse().unwrap(),
                format!("fd00::{last}/64").parse().unwrap(),
            ],
            seed: Some([seed, number, 3, 4]),
            ..common::config()
        };
        let (stack, side) = Stack::new(config, port, now_ns).unwrap();
        Self {
            number,
            stack,
            app: App::new(side),
            listener: None,
            remote: SocketAddr::new(common::STACK_V4, 0),
            streams: BTreeMap::new(),
            finished: 0,
            retries: 0,
        }
    }

    fn adopt(&mut self, id: SocketId) {
        self.streams
            .insert((id.index, id.generation), (id, Stream::default()));
    }

    fn connect(&mut self) {
        let id = self.app.connect(self.remote);
        self.adopt(id);
    }

    /// Handles the events of the application.
    fn act(&mut self) {
        let mut told: BTreeSet<(u32, u32)> = BTreeSet::new();
        for id in self.app.take_events() {
            told.insert((id.index, id.generation));
        }
        if let Some(listener) = self.listener {
            // One event of a listener may stand for several connections.
            while let Some(id) = self.app.accept(listener) {
                self.adopt(id);
                told.insert((id.index, id.generation));
            }
        }
        for key in told {
            let Some((id, mut stream)) = self.streams.remove(&key) else {
                continue;
            };
            if self.app.errno(id) == Some(Errno::HOSTUNREACH) {
                // All three ARP requests were lost, which can happen only before the connection
                // opens.
                assert!(!self.app.has(id, SocketState::CONNECTED));
                self.app.close(id);
                self.retries += 1;
            } else if self.attend(id, &mut stream) {
                self.streams.insert(key, (id, stream));
            }
        }
    }

    /// Handles one connection. False: it is complete.
    fn attend(&mut self, id: SocketId, stream: &mut Stream) -> bool {
        assert_eq!(self.app.errno(id), None, "the connection failed");
        if !self.app.has(id, SocketState::CONNECTED) {
            return true;
        }
        let ends = self.app.has(id, SocketState::EOF);
        for byte in self.app.read(id) {
            stream.hash = mix(stream.hash, byte);
            stream.read += 1;
        }
        while stream.written < BYTES {
            let end = (stream.written + 5_000).min(BYTES);
            let bytes: Vec<u8> = (stream.written..end)
                .map(|position| byte_at(self.number, position))
                .collect();
            let n = self.app.write(id, &bytes);
            stream.written += n as u64;
            if n < bytes.len() {
                break;
            }
        }
        if stream.written == BYTES && !std::mem::replace(&mut stream.shut, true) {
            self.app.shutdown(id);
        }
        if !ends || !stream.shut {
            return true;
        }
        let other = 1 - self.number;
        let wanted = (0..BYTES).fold(0, |hash, position| mix(hash, byte_at(other, position)));
        assert_eq!(
            (stream.read, stream.hash),
            (BYTES, wanted),
            "another stream"
        );
        self.app.close(id);
        self.finished += 1;
        false
    }
}

struct Pair {
    sides: [Side; 2],
    clock: Arc<Published64>,
    now_ns: u64,
}

impl Pair {
    fn new(seed: u64, line: LineOptions) -> Self {
        let now_ns = 1_000 * SECOND;
        let clock = Arc::new(Published64::new(now_ns));
        let wire = LoopbackOptions {
            // Every fifth seed has so few slots that the stack often finds no room.
            slots: if seed.is_multiple_of(5) { 3 } else { 256 },
            ..LoopbackOptions::default()
        };
        let (a, b) = loopback::pair(&wire).unwrap();
        let options = FaultOptions {
            seed,
            rx: line,
            tx: line,
            slots: Some(512),
        };
        let faulty = Timed {
            inner: Fault::with_clock(a, &options, Clock::Manual(now_ns)),
            clock: clock.clone(),
        };
        let sides = [
            Side::new(0, Box::new(faulty), seed, now_ns),
            Side::new(1, Box::new(b), seed, now_ns),
        ];
        Self {
            sides,
            clock,
            now_ns,
        }
    }

    /// Runs turns of both stacks until nothing moves.
    fn settle(&mut self) {
        self.clock.store(self.now_ns);
        for _ in 0..10_000 {
            let mut busy = false;
            for side in &mut self.sides {
                busy |= side.stack.turn(self.now_ns).busy;
                side.act();
            }
            if !busy {
                return;
            }
        }
        panic!("the stacks find no rest");
    }

    /// Advances to the time of the next event. False: there is none.
    fn step(&mut self) -> bool {
        self.settle();
        let client = &mut self.sides[0];
        if client.retries > 0 {
            // A failed neighbour is not requested again at once.
            self.now_ns += 2 * SECOND;
            (0..std::mem::take(&mut client.retries)).for_each(|_| client.connect());
            return true;
        }
        let due = self
            .sides
            .iter()
            .filter_map(|side| side.stack.next_timer_ns());
        let Some(due_ns) = due.min() else {
            return false;
        };
        self.now_ns = due_ns.max(self.now_ns + 1);
        true
    }

    fn run(&mut self, v6: bool) {
        let to = if v6 { "[fd00::2]" } else { "10.0.0.2" };
        let remote: SocketAddr = format!("{to}:{PORT}").parse().unwrap();
        let server = &mut self.sides[1];
        server.listener = Some(server.app.listen(remote, 8));
        self.settle();
        let client = &mut self.sides[0];
        client.remote = remote;
        (0..CONNECTIONS).for_each(|_| client.connect());
        let end_ns = self.now_ns + HOURS_MAX * 3_600 * SECOND;
        while self.sides.iter().any(|side| side.finished < CONNECTIONS) {
            let left: Vec<usize> = self.sides.iter().map(|side| side.finished).collect();
            assert!(self.step(), "nothing is due, and only {left:?} are through");
            assert!(self.now_ns < end_ns, "only {left:?} are through in time");
        }
        for side in &mut self.sides {
            side.app.abort_all();
            side.listener = None;
        }
        loop {
            self.settle();
            let usage: Vec<Usage> = self.sides.iter().map(|side| side.stack.usage()).collect();
            if usage.iter().all(|usage| *usage == Usage::default()) {
                return;
            }
            assert!(self.step(), "nothing is due, and this is held: {usage:?}");
            assert!(self.now_ns < end_ns, "held for ever: {usage:?}");
        }
    }
}

/// Prints the seed if the test panics.
struct Seed(u64, &'static str);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {} fails with seed {}", self.1, self.0);
        }
    }
}

fn all_seeds(name: &'static str, line: LineOptions) {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let seeds = match number("MILLSTREAM_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("MILLSTREAM_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let guard = Seed(seed, name);
        Pair::new(seed, line).run(seed % 4 == 0);
        drop(guard);
    }
}

fn line(loss_percent: u32) -> LineOptions {
    LineOptions {
        loss: Ratio::from_ppm(loss_percent * 10_000),
        delay_ns: 5 * MILLIS,
        jitter_ns: 2 * MILLIS,
        ..LineOptions::default()
    }
}

fn bad(loss_percent: u32) -> LineOptions {
    LineOptions {
        duplicate: Ratio::from_ppm(20_000),
        reorder: Ratio::from_ppm(50_000),
        corrupt: Ratio::from_ppm(10_000),
        ..line(loss_percent)
    }
}

#[test]
fn perfect_wire() {
    all_seeds("perfect_wire", LineOptions::default());
}

#[test]
fn no_loss_but_all_else() {
    all_seeds("no_loss_but_all_else", bad(0));
}

#[test]
fn one_percent_lost() {
    all_seeds("one_percent_lost", line(1));
}

#[test]
fn one_percent_lost_and_all_else() {
    all_seeds("one_percent_lost_and_all_else", bad(1));
}

#[test]
fn five_percent_lost_and_all_else() {
    all_seeds("five_percent_lost_and_all_else", bad(5));
}

#[test]
fn twenty_percent_lost() {
    all_seeds("twenty_percent_lost", line(20));
}

#[test]
fn twenty_percent_lost_and_all_else() {
    all_seeds("twenty_percent_lost_and_all_else", bad(20));
}

#[test]
fn narrow_wire_with_a_short_queue() {
    let narrow = LineOptions {
        rate_bits: 2_000_000,
        limit_bytes: 8_000,
        ..bad(1)
    };
    all_seeds("narrow_wire_with_a_short_queue", narrow);
}
