//! Byte streams that show whether they arrived intact: byte `i` of a stream is a function of its
//! seed and `i`.

#![allow(dead_code)] // each test file uses its part

use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// A pseudo-random stream.
pub struct Bytes {
    state: u64,
    word: [u8; 8],
    used: usize,
}

impl Bytes {
    pub fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            word: [0; 8],
            used: 8,
        }
    }

    pub fn fill(&mut self, out: &mut [u8]) {
        for byte in out {
            if self.used == 8 {
                // xorshift64*
                self.state ^= self.state >> 12;
                self.state ^= self.state << 25;
                self.state ^= self.state >> 27;
                self.word = self.state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
                self.used = 0;
            }
            *byte = self.word[self.used];
            self.used += 1;
        }
    }
}

/// The first `len` bytes of the stream of `seed`.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Bytes::new(seed).fill(&mut bytes);
    bytes
}

/// The hash of the first `len` bytes of the stream of `seed`.
pub fn hash(len: usize, seed: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut bytes = Bytes::new(seed);
    each_piece(len, |piece| {
        bytes.fill(piece);
        hasher.write(piece);
    });
    hasher.finish()
}

/// Writes the first `len` bytes of the stream of `seed`.
pub fn send(to: &mut (impl Write + ?Sized), len: usize, seed: u64) {
    let mut bytes = Bytes::new(seed);
    let begin = Instant::now();
    let mut sent = 0;
    each_piece(len, |piece| {
        bytes.fill(piece);
        to.write_all(piece)
            .unwrap_or_else(|e| panic!("write after {sent} of {len}: {e}"));
        sent += piece.len();
    });
    slow("send", len, begin);
}

/// Reads the first `len` bytes of the stream of `seed`, and compares them one by one and by their
/// hash.
pub fn receive(from: &mut (impl Read + ?Sized), len: usize, seed: u64) {
    receive_slowly(from, len, seed, |_| {});
}

/// Like [`receive`], and calls a function after each read with the number of bytes read so far.
pub fn receive_slowly(
    from: &mut (impl Read + ?Sized),
    len: usize,
    seed: u64,
    mut after: impl FnMut(usize),
) {
    let begin = Instant::now();
    let mut bytes = Bytes::new(seed);
    let mut hasher = DefaultHasher::new();
    let mut got = vec![0; PIECE];
    let mut want = vec![0; PIECE];
    let mut at = 0;
    while at < len {
        let room = PIECE.min(len - at);
        let n = read(from, &mut got[..room])
            .unwrap_or_else(|e| panic!("read after {at} of {len}: {e}"));
        assert!(n > 0, "the stream ended after {at} of {len} bytes");
        bytes.fill(&mut want[..n]);
        if let Some(i) = (0..n).find(|&i| got[i] != want[i]) {
            panic!("byte {} of {len} is {}, not {}", at + i, got[i], want[i]);
        }
        hasher.write(&got[..n]);
        at += n;
        after(at);
    }
    // `DefaultHasher` does not depend on how a stream is cut.
    assert_eq!(hasher.finish(), hash(len, seed));
    slow("receive", len, begin);
}

/// Checks that the next read returns the end of the stream.
pub fn expect_end(from: &mut (impl Read + ?Sized)) {
    let mut byte = [0];
    let n = read(from, &mut byte).expect("the end");
    assert_eq!(n, 0, "more than was sent");
}

/// Reads once. A kernel socket with a timeout returns `EINTR` to a reader that was stopped and goes
/// on (`SIGCONT`).
pub fn read(from: &mut (impl Read + ?Sized), bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

const PIECE: usize = 60_000;

fn each_piece(len: usize, mut f: impl FnMut(&mut [u8])) {
    let mut buffer = vec![0; PIECE];
    let mut left = len;
    while left > 0 {
        let n = left.min(PIECE);
        f(&mut buffer[..n]);
        left -= n;
    }
}

/// Prints a line for a transfer that took long.
fn slow(what: &str, len: usize, begin: Instant) {
    let took = begin.elapsed();
    if took > Duration::from_secs(2) {
        println!("  {what} of {len} bytes took {took:.1?}");
    }
}
