//! Parts that the tests share: a seeded generator, stream contents, naive checksums.

#![allow(dead_code)]

use ring::chunk::{self, ChunkClass, ChunkPool};
use ring::huge_pages::PageSource;
use ring::memory::{ContextLimits, Memory};

/// xorshift64*; the seed lets a failure be replayed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number in `0..bound`, uniform enough for tests.
    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }
}

/// The byte that belongs at a stream position, so that a misplaced byte shows as a wrong one.
pub fn byte_at(position: u32) -> u8 {
    let x = position.wrapping_mul(0x9e37_79b1);
    (x >> 24) as u8 ^ (x >> 11) as u8
}

/// The bytes that belong at `start..start + len`.
pub fn bytes_at(start: u32, len: u32) -> Vec<u8> {
    (0..len).map(|i| byte_at(start.wrapping_add(i))).collect()
}

/// RFC 1071 word by word, folded, not complemented.
pub fn naive_sum(bytes: &[u8]) -> u32 {
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u64::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u32
}

/// A memory file with this many chunks.
pub fn memory(small_chunks: u32, large_chunks: u32) -> (Memory, ChunkPool) {
    let limits = ContextLimits {
        sockets_max: 4,
        small_chunks,
        large_chunks,
    };
    chunk::create_memory(&limits, &mut PageSource::default()).expect("a memory file")
}

/// Asserts that all chunks are back in the pool.
pub fn assert_full(pool: &ChunkPool) {
    for class in [ChunkClass::Small, ChunkClass::Large] {
        assert_eq!(
            pool.free(class),
            pool.total(class),
            "{class:?} chunks leaked"
        );
    }
}
