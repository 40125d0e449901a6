//! Common parts of the memif tests: paths, connected pairs, numbered frames.

#![allow(dead_code, reason = "each test file uses a part")]

use std::time::{Duration, Instant};

use packetio::memif::{Memif, MemifOptions, MemifPort, MemifRole};
use packetio::{Port, PortError};
use rustix::event::PollFd;
use rustix::time::Timespec;

/// A socket path for this process.
pub fn path(name: &str) -> String {
    format!(
        "{}/memif-{}-{name}.sock",
        std::env::temp_dir().display(),
        std::process::id()
    )
}

/// Default options of the tests.
pub fn options() -> MemifOptions {
    MemifOptions::default()
}

/// Calls `done` until it is true; false if that takes longer than `limit`.
pub fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while !done() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    true
}

/// Turns both ports until both are connected.
pub fn connect_both(a: &mut MemifPort, b: &mut MemifPort) {
    let connected = until(Duration::from_secs(30), || {
        for port in [&mut *a, &mut *b] {
            if !port.is_connected() {
                match port.receive() {
                    Ok(batch) => assert!(batch.is_empty()),
                    Err(error) => assert_eq!(error, PortError::Disconnected),
                }
            }
        }
        a.is_connected() && b.is_connected()
    });
    assert!(connected, "{} / {}", a.last_reason(), b.last_reason());
}

/// Turns a port until it is connected.
pub fn wait_connected(port: &mut MemifPort) {
    let connected = until(Duration::from_secs(20), || {
        if !port.is_connected() {
            assert!(port.receive().unwrap().is_empty());
        }
        port.is_connected()
    });
    assert!(connected, "{}", port.last_reason());
}

/// A connected server and client of one queue each, in this order.
pub fn connected_pair(
    name: &str,
    server: &MemifOptions,
    client: &MemifOptions,
) -> (MemifPort, MemifPort) {
    let path = path(name);
    let server = MemifOptions {
        path: path.clone(),
        role: MemifRole::Server,
        ..server.clone()
    };
    let client = MemifOptions {
        path,
        role: MemifRole::Client,
        ..client.clone()
    };
    let mut server = Memif::connect(&server).unwrap().remove(0);
    let mut client = Memif::connect(&client).unwrap().remove(0);
    connect_both(&mut server, &mut client);
    (server, client)
}

/// Sleeps on the port's descriptors, at most for `limit` or until its deadline. True: one is
/// readable.
pub fn poll(port: &MemifPort, limit: Duration) -> bool {
    let mut fds = Vec::new();
    port.poll_fds(false, &mut |fd, flags| {
        fds.push(PollFd::from_borrowed_fd(fd, flags))
    });
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    let limit_ns = limit.as_nanos() as u64;
    let limit_ns = port
        .deadline_ns()
        .map_or(limit_ns, |at| limit_ns.min(at.saturating_sub(now_ns)));
    let timeout = Timespec {
        tv_sec: (limit_ns / 1_000_000_000) as i64,
        tv_nsec: (limit_ns % 1_000_000_000) as i64,
    };
    rustix::event::poll(&mut fds, Some(&timeout)).unwrap() > 0
}

/// Sleeps once, as the stack does.
pub fn sleep_until_ready(port: &mut MemifPort, want_tx: bool) {
    if !port.prepare_wait(want_tx) {
        poll(port, Duration::from_secs(30));
    }
    port.finish_wait();
}

/// Writes frame `number` to the start of `bytes`; returns its length.
pub fn fill(bytes: &mut [u8], number: u64, length_max: usize) -> usize {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
    let length = 14 + (mixed as usize) % (length_max - 13);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..length].fill(mixed as u8);
    bytes[length - 1] = number as u8;
    length
}

/// FNV-1a hash over frames: their lengths, first and last bytes, and every 61st byte.
pub struct Fnv(pub u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds a frame to the hash.
    pub fn add(&mut self, frame: &[u8]) {
        let edge = frame.len().min(32);
        let parts = frame[..edge]
            .iter()
            .chain(frame[frame.len() - edge..].iter())
            .chain(frame.iter().step_by(61));
        for &byte in (frame.len() as u32).to_le_bytes().iter().chain(parts) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
