//! Writers that do nothing but write: their bytes leave nevertheless.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use millstream::{Config, Context, Crank, Limits, Runtime, TcpListener, TcpStream};

/// More bytes than a writer writes between two turns.
const PIECES_BYTES: usize = 160 * 1024;
/// Number of looks, since the watchdog may be turning the stack.
const LOOKS: usize = 20;

fn open(link: &str, address: &str) -> (Context, Runtime) {
    open_as(link, address, Crank::Inline, Limits::default())
}

fn open_as(link: &str, address: &str, crank: Crank, limits: Limits) -> (Context, Runtime) {
    open_with(link, address, crank, limits, |_| ())
}

fn open_with(
    link: &str,
    address: &str,
    crank: Crank,
    limits: Limits,
    change: fn(&mut Config),
) -> (Context, Runtime) {
    let mut config = Config::new(format!("loopback:{link}").parse().unwrap());
    config.crank = crank;
    config.limits = limits;
    config.linger_ns = 0;
    config.addresses.push(address.parse().unwrap());
    config.tcp.send_buffer.bytes_default = 1 << 20;
    change(&mut config);
    let runtime = Runtime::new(config).unwrap();
    (runtime.context(0).unwrap(), runtime)
}

fn connected(here: &Context, there: &Context) -> (TcpStream, TcpStream) {
    let address = "10.9.0.2:80".parse().unwrap();
    let listener = TcpListener::bind(there, address).unwrap();
    listener.set_nonblocking(true);
    let client = TcpStream::start_connect(here, address).unwrap();
    client.set_nonblocking(true);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        assert!(Instant::now() < deadline, "no connection");
        here.turn().unwrap();
        there.turn().unwrap();
        if let Ok((server, _)) = listener.accept() {
            server.set_nonblocking(true);
            here.turn_until_idle().unwrap();
            return (client, server);
        }
    }
}

/// A context with `chunks` chunks of each size and connections that have written nothing yet, to a
/// peer that the watchdog turns every few milliseconds.
struct Crowd {
    writers: Vec<TcpStream>,
    readers: Vec<TcpStream>,
    contexts: [Context; 2],
    _runtimes: [Runtime; 2],
}

impl Crowd {
    fn new(link: &str, crank: Crank, count: usize, chunks: [usize; 2]) -> Self {
        Self::to(link, crank, count, chunks, |_| ())
    }

    /// Like `new`, to a peer with other settings.
    fn to(
        link: &str,
        crank: Crank,
        count: usize,
        chunks: [usize; 2],
        peers: fn(&mut Config),
    ) -> Self {
        let [small_chunks, large_chunks] = chunks;
        let limits = Limits {
            small_chunks,
            large_chunks,
            ..Limits::for_connections(1_024)
        };
        let (here, one) = open_as(link, "10.9.0.1/24", crank, limits);
        let limits = Limits::default();
        let (there, other) = open_with(link, "10.9.0.2/24", Crank::Inline, limits, peers);
        let (writers, readers) = (0..count).map(|_| connected(&here, &there)).unzip();
        Self {
            writers,
            readers,
            contexts: [here, there],
            _runtimes: [one, other],
        }
    }

    /// Writes `bytes` bytes on each connection in turn; returns the number of writes that were cut
    /// short.
    fn cut_short(&mut self, bytes: usize) -> usize {
        let bytes = vec![b'c'; bytes];
        let written = self.writers.iter_mut().map(|writer| writer.write(&bytes));
        written
            .filter(|written| match written {
                Ok(count) => *count < bytes.len(),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    true
                }
            })
            .count()
    }

    /// Number of segments that the writers' stack has sent, without retransmissions.
    fn segments_out(&self) -> u64 {
        let report = self.contexts[0].report().unwrap();
        report.tcp.segments_out - report.tcp.segments_retransmitted
    }

    /// Reads `count` bytes at a reader.
    fn came(&mut self, reader: usize, count: usize) -> Vec<u8> {
        let (mut bytes, mut came) = (vec![0; count + 1], 0);
        let deadline = Instant::now() + Duration::from_secs(60);
        while came < count {
            assert!(Instant::now() < deadline, "{came} of {count}");
            for context in &self.contexts {
                context.turn().unwrap();
            }
            came += read(&mut self.readers[reader], &mut bytes[came..]);
        }
        bytes.truncate(came);
        bytes
    }
}

fn read(stream: &mut TcpStream, bytes: &mut [u8]) -> usize {
    match stream.read(bytes) {
        Ok(count) => count,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
            0
        }
    }
}

#[test]
fn writer_who_never_polls_has_what_it_wrote_leave() {
    let (here, _one) = open("writers", "10.9.0.1/24");
    let (there, _other) = open("writers", "10.9.0.2/24");
    let (mut client, mut server) = connected(&here, &there);
    let mut bytes = vec![b'w'; 32 * 1024];
    for piece in [32 * 1024, 1024] {
        for _ in 0..PIECES_BYTES / piece {
            assert_eq!(client.write(&bytes[..piece]).unwrap(), piece);
        }
        let mut came = 0;
        for _ in 0..LOOKS {
            there.turn().unwrap();
            came += read(&mut server, &mut bytes);
        }
        assert!(came > 0, "nothing has left of pieces of {piece} bytes");
        let deadline = Instant::now() + Duration::from_secs(60);
        while came < PIECES_BYTES {
            assert!(Instant::now() < deadline, "{came} bytes came");
            here.turn().unwrap();
            there.turn().unwrap();
            came += read(&mut server, &mut bytes);
        }
    }
}

#[test]
fn short_writes_on_empty_buffers_are_taken_whole_though_the_stock_is_smaller() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        let link = format!("empty-{crank:?}");
        // At most a quarter of the chunks is in stock.
        let mut crowd = Crowd::new(&link, crank, 300, [1_024, 16]);
        assert_eq!(crowd.cut_short(200), 0, "{crank:?}");
        let mut crowd = Crowd::new(&format!("{link}-large"), crank, 60, [16, 512]);
        assert_eq!(crowd.cut_short(16 * 1024 - 1), 0, "{crank:?}");
    }
}

#[test]
fn short_write_that_takes_the_last_of_the_stock_leaves_in_one_segment() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        let mut crowd = Crowd::new(&format!("one-{crank:?}"), crank, 300, [2_048, 16]);
        let before = crowd.segments_out();
        // Each write takes five small chunks.
        assert_eq!(crowd.cut_short(1_000), 0, "{crank:?}");
        for reader in 0..300 {
            assert_eq!(crowd.came(reader, 1_000).len(), 1_000);
        }
        assert_eq!(crowd.segments_out() - before, 300, "{crank:?}");
    }
}

#[test]
fn slices_that_take_the_last_of_the_stock_arrive_once_and_in_order() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        // A segment that was sent as part of more, which does not come, waits for 200 ms in every
        // round. A busy machine delays some rounds, but not all.
        let mut took = (0..50).map(|round| slices_arrive(crank, round));
        let is_sent_at_once = took.any(|took| took < Duration::from_millis(190));
        assert!(is_sent_at_once, "{crank:?}");
    }
}

/// Writes slices on 40 connections; returns the time until the last one has arrived.
fn slices_arrive(crank: Crank, round: u32) -> Duration {
    let link = format!("slices-{crank:?}-{round}");
    let mut crowd = Crowd::new(&link, crank, 40, [256, 16]);
    let bytes: Vec<u8> = (0..1_200u32).map(|at| (at * 7 / 3) as u8).collect();
    // The stock cuts the slices at their ends and within them.
    let slices = [0..240, 240..240, 240..480, 480..1_200, 1_200..1_200];
    let slices = slices.map(|part| std::io::IoSlice::new(&bytes[part]));
    for writer in &mut crowd.writers {
        assert_eq!(writer.write_vectored(&slices).unwrap(), bytes.len());
    }
    let begin = Instant::now();
    for reader in 0..40 {
        assert!(crowd.came(reader, bytes.len()) == bytes, "{crank:?}");
    }
    begin.elapsed()
}

#[test]
fn connecting_socket_refuses_a_write_at_once() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        let limits = Limits::default();
        let (here, _runtime) = open_as(&format!("nobody-{crank:?}"), "10.9.0.1/24", crank, limits);
        let mut client = TcpStream::start_connect(&here, "10.9.0.2:80".parse().unwrap()).unwrap();
        client.set_nonblocking(true);
        // With a wait of 5 ms each, these calls would take 50 seconds.
        let begin = Instant::now();
        for _ in 0..10_000 {
            let refused = client.write(b"early").unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        }
        let took = begin.elapsed();
        assert!(took.as_secs() < 40, "{took:?}");
    }
}

#[test]
fn writers_without_a_chunk_left_are_not_kept_waiting_each() {
    for crank in [Crank::Inline, Crank::Dedicated] {
        // The peer's windows take a part of each write, so the chunks of the remainder stay in use.
        let link = format!("dry-{crank:?}");
        let mut crowd = Crowd::to(&link, crank, 400, [64, 16], |config| {
            config.tcp.recv_buffer.bytes_default = 4_096;
            config.tcp.recv_buffer_moderate = false;
        });
        let begin = Instant::now();
        let cut_short = crowd.cut_short(16 * 1024);
        // All chunks together hold the remainders of six writes.
        assert!(cut_short >= 390, "{crank:?}: {cut_short} of 400");
        // If every writer waited for 100 ms, all of them would take 39 seconds.
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(30), "{crank:?}: {took:?}");
    }
}
