//! The receive stream against an oracle: random interleavings of the stack's
//! and the application's operations on one thread.
#![cfg(not(loom))]

mod common;

use std::collections::VecDeque;

use common::{Random, assert_full, byte_at, bytes_at, memory, naive_sum};
use proptest::prelude::*;
use ring::byte_ring::{RxReader, RxWriter};
use ring::chunk::{ChunkClass, ChunkPool, LARGE_DATA_BYTES, SMALL_DATA_BYTES};
use ring::memory::Memory;
use ring::prefetch::Ahead;
use ring::raw::RawSlice;
use ring::socket_block::SocketState;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Stores this many bytes at this offset past the tail, with or without the sum.
    Store(u32, u32, bool),
    /// Publishes up to this many of the stored bytes that are in order.
    Publish(u32),
    Discard,
    /// Forgets the bytes stored this far past the tail and further, and their chunks.
    Truncate(u32),
    Reclaim,
    Read(u32),
    Peek(u32, u32),
    Skip(u32),
    /// Borrows the bytes of the front while the stack stores this many more, then skips them.
    Lend(u32),
}

/// Both ends and, beside them, the bytes that they should hold.
struct World {
    memory: Memory,
    pool: ChunkPool,
    writer: RxWriter,
    reader: RxReader,
    /// Bytes published and unread.
    unread: VecDeque<u8>,
    /// For each byte past the tail, whether it has been stored.
    stored: VecDeque<bool>,
    tail: u32,
    head: u32,
}

impl World {
    fn new(small: u32, large: u32) -> Self {
        let (memory, pool) = memory(small, large);
        memory.block(0).unwrap().open(1 << 20);
        Self {
            memory,
            pool,
            writer: RxWriter::new(),
            reader: RxReader::new(),
            unread: VecDeque::new(),
            stored: VecDeque::new(),
            tail: 0,
            head: 0,
        }
    }

    fn apply(&mut self, op: Op) {
        let memory = self.memory.clone();
        let block = memory.block(0).unwrap();
        match op {
            Op::Store(offset, len, with_sum) => self.store(offset, len, with_sum),
            Op::Publish(n) => self.publish(n),
            Op::Discard => {
                self.writer.discard_unpublished();
                self.stored.clear();
            }
            Op::Truncate(offset) => {
                self.writer.truncate(&mut self.pool, offset);
                self.stored.truncate(offset as usize);
            }
            Op::Reclaim => {
                let unread = self.writer.reclaim(&mut self.pool, block);
                assert_eq!(unread as usize, self.unread.len());
                if unread == 0 && self.writer.held() == 0 {
                    assert_full(&self.pool);
                }
            }
            Op::Read(n) => {
                let mut dst = vec![0; n as usize];
                let read = self.reader.read(&memory, block, &mut dst);
                self.expect_read(&dst[..read], n as usize);
            }
            Op::Peek(offset, n) => {
                let mut dst = vec![0; n as usize];
                let seen = self.reader.peek_at(&memory, block, offset, &mut dst);
                let there = self.unread.len().saturating_sub(offset as usize);
                assert_eq!(seen, there.min(n as usize));
                let expected = self.unread.iter().skip(offset as usize);
                assert!(expected.take(seen).eq(&dst[..seen]));
            }
            Op::Lend(n) => self.lend(n),
            Op::Skip(n) => {
                let dropped = self.reader.discard(&memory, block, n);
                assert_eq!(dropped as usize, self.unread.len().min(n as usize));
                self.unread.drain(..dropped as usize);
                self.head = self.head.wrapping_add(dropped);
            }
        }
        assert_eq!(self.reader.readable(block) as usize, self.unread.len());
        assert_eq!(self.writer.unread(block) as usize, self.unread.len());
    }

    fn store(&mut self, offset: u32, len: u32, with_sum: bool) {
        let block = self.memory.block(0).unwrap();
        let bytes = bytes_at(self.tail.wrapping_add(offset), len);
        let src = RawSlice::from(&bytes[..]);
        let stored = if with_sum {
            let (stored, sum) =
                self.writer
                    .write_at_sum(&mut self.pool, block, offset, src, Ahead::NOTHING);
            assert_eq!(sum, naive_sum(&bytes[..stored as usize]));
            stored
        } else {
            self.writer.write_at(&mut self.pool, block, offset, src)
        };
        if stored < len {
            let free = self.pool.free(ChunkClass::Small) + self.pool.free(ChunkClass::Large);
            assert_eq!(free, 0, "stored fewer with chunks left");
        }
        let end = (offset + stored) as usize;
        if stored != 0 && self.stored.len() < end {
            self.stored.resize(end, false);
        }
        if stored != 0 {
            self.stored
                .range_mut(offset as usize..end)
                .for_each(|stored| *stored = true);
        }
        assert_eq!(self.writer.held() as usize, self.stored.len());
    }

    /// Lent bytes stay unchanged by what the stack stores or frees meanwhile.
    fn lend(&mut self, n: u32) {
        let memory = self.memory.clone();
        let block = memory.block(0).unwrap();
        let Some(front) = self.reader.front(&memory, block) else {
            assert_eq!(self.unread.len(), 0);
            return;
        };
        let lent = memory.lend(front);
        assert!(!lent.is_empty() && lent.len() <= self.unread.len());
        self.store(0, n, false);
        self.publish(u32::MAX);
        self.writer.reclaim(&mut self.pool, block);
        let expected: Vec<u8> = self.unread.iter().take(lent.len()).copied().collect();
        assert_eq!(lent, expected);
        let skipped = lent.len() as u32;
        self.apply(Op::Skip(skipped));
    }

    fn publish(&mut self, n: u32) {
        let block = self.memory.block(0).unwrap();
        let in_order = self.stored.iter().take_while(|stored| **stored).count();
        let n = in_order.min(n as usize);
        self.writer.publish(block, n as u32);
        for _ in 0..n {
            self.stored.pop_front();
            self.unread.push_back(byte_at(self.tail));
            self.tail = self.tail.wrapping_add(1);
        }
    }

    fn expect_read(&mut self, read: &[u8], asked: usize) {
        assert_eq!(read.len(), self.unread.len().min(asked));
        let expected: Vec<u8> = self.unread.drain(..read.len()).collect();
        assert_eq!(read, expected);
        self.head = self.head.wrapping_add(read.len() as u32);
    }

    fn finish(mut self) {
        self.apply(Op::Discard);
        self.apply(Op::Read(1 << 20));
        self.apply(Op::Reclaim);
        assert_full(&self.pool);
    }
}

fn ops() -> impl Strategy<Value = Op> {
    let size = prop_oneof![4 => 0..70u32, 2 => 0..600u32, 1 => 0..9000u32];
    let offset = prop_oneof![4 => Just(0u32), 2 => 0..300u32, 1 => 0..9000u32];
    prop_oneof![
        4 => (offset.clone(), size.clone(), any::<bool>()).prop_map(|(o, n, s)| Op::Store(o, n, s)),
        4 => prop_oneof![2 => Just(u32::MAX), 1 => size.clone()].prop_map(Op::Publish),
        1 => Just(Op::Discard),
        2 => offset.clone().prop_map(Op::Truncate),
        3 => Just(Op::Reclaim),
        4 => prop_oneof![1 => Just(1u32 << 16), 2 => size.clone()].prop_map(Op::Read),
        1 => (offset, size.clone()).prop_map(|(o, n)| Op::Peek(o, n)),
        1 => size.clone().prop_map(Op::Skip),
        2 => size.prop_map(Op::Lend),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "slow; the seeded run below stands in")]
    fn any_interleaving_matches_the_oracle(ops in prop::collection::vec(ops(), 1..120)) {
        let mut world = World::new(12, 6);
        for op in ops {
            world.apply(op);
        }
        world.finish();
    }
}

#[test]
fn seeded_interleaving_matches_the_oracle() {
    let mut random = Random(0x6d69_6c6c);
    for _ in 0..if cfg!(miri) { 3 } else { 200 } {
        let mut world = World::new(6, 3);
        for _ in 0..if cfg!(miri) { 25 } else { 200 } {
            let large = if cfg!(miri) { 600 } else { 5000 };
            let size = if random.below(5) == 0 { large } else { 300 };
            let n = random.below(size);
            let op = match random.below(9) {
                0 | 1 => Op::Store(0, n, random.below(2) == 0),
                2 => Op::Store(random.below(600), n, random.below(2) == 0),
                3 | 4 => Op::Publish(u32::MAX),
                5 => Op::Reclaim,
                6 => Op::Read(n),
                _ => [
                    Op::Discard,
                    Op::Skip(n),
                    Op::Peek(n / 2, n),
                    Op::Truncate(n / 3),
                    Op::Lend(n),
                ][random.below(5) as usize],
            };
            world.apply(op);
        }
        world.finish();
    }
}

#[test]
fn drained_stream_holds_no_chunk_and_restarts() {
    let mut world = World::new(4, 1);
    let large = if cfg!(miri) { 300 } else { LARGE_DATA_BYTES };
    for n in [64, 1, SMALL_DATA_BYTES, 100, large, 64] {
        world.apply(Op::Store(0, n, true));
        world.apply(Op::Publish(n));
        world.apply(Op::Read(n));
        world.apply(Op::Reclaim);
        assert_full(&world.pool);
    }
}

#[test]
fn urgent_position_that_was_read_past_is_forgotten() {
    let mut world = World::new(4, 1);
    let memory = world.memory.clone();
    let block = memory.block(0).unwrap();
    world.apply(Op::Store(0, 60, true));
    world.apply(Op::Publish(60));
    block.set_urgent_end(50);
    for (reads, is_ahead) in [(49, true), (1, false), (10, false)] {
        world.apply(Op::Read(reads));
        block.forget_urgent_read();
        assert_eq!(block.state().contains(SocketState::URGENT), is_ahead);
    }
    world.finish();
}

#[test]
fn drained_reader_keeps_the_chain_while_bytes_are_held_out_of_order() {
    let mut world = World::new(4, 1);
    world.apply(Op::Store(0, 64, false));
    world.apply(Op::Publish(64));
    world.apply(Op::Store(100, 50, false));
    world.apply(Op::Read(64));
    world.apply(Op::Reclaim);
    assert_eq!(world.writer.held(), 150);
    world.apply(Op::Store(0, 100, false));
    world.apply(Op::Publish(150));
    world.apply(Op::Read(150));
    world.finish();
}

#[test]
fn reader_at_the_end_of_a_full_chunk_finds_the_next() {
    let mut world = World::new(4, 1);
    let n = SMALL_DATA_BYTES;
    world.apply(Op::Store(0, n, false));
    world.apply(Op::Publish(n));
    world.apply(Op::Store(0, 10, false));
    world.apply(Op::Read(n));
    // Ten bytes are held out of order, so the full chunk stays until the reader has left it.
    world.apply(Op::Reclaim);
    assert_eq!(world.pool.free(ChunkClass::Small), 2);
    world.apply(Op::Publish(10));
    world.apply(Op::Read(3));
    world.apply(Op::Reclaim);
    assert_eq!(world.pool.free(ChunkClass::Small), 3);
    world.finish();
}

#[test]
fn bad_checksum_leaves_nothing_behind() {
    let mut world = World::new(4, 1);
    for _ in 0..3 {
        world.apply(Op::Store(0, 1000, true));
        world.apply(Op::Discard);
        world.apply(Op::Reclaim);
        assert_full(&world.pool);
    }
    world.apply(Op::Store(0, 10, true));
    world.apply(Op::Publish(10));
    world.apply(Op::Read(10));
    world.finish();
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn exhausted_pool_stores_a_prefix() {
    let mut world = World::new(1, 1);
    world.apply(Op::Store(0, 10_000, true));
    let stored = SMALL_DATA_BYTES + LARGE_DATA_BYTES;
    assert_eq!(world.writer.held(), stored);
    world.apply(Op::Publish(u32::MAX));
    world.apply(Op::Store(0, 1, true));
    assert_eq!(world.writer.held(), 0);
    world.apply(Op::Read(u32::from(u16::MAX)));
    world.finish();
}

#[test]
#[cfg_attr(miri, ignore = "four gibibytes")]
fn positions_wrap_at_four_gibibytes() {
    let (memory, mut pool) = memory(4, 64);
    let block = memory.block(0).unwrap();
    block.open(1);
    let (mut writer, mut reader) = (RxWriter::new(), RxReader::new());
    let step = 50 * LARGE_DATA_BYTES - 1;
    let bytes = vec![7u8; step as usize];
    let mut total = 0u64;
    while total < (1 << 32) + u64::from(step) {
        let stored = writer.write_at(&mut pool, block, 0, RawSlice::from(&bytes[..]));
        assert_eq!(stored, step);
        writer.publish(block, stored);
        // One byte stays unread, so that the chain never restarts and continues across the wrap.
        let unread = u32::from(total != 0);
        assert_eq!(
            reader.discard(&memory, block, step - 1 + unread),
            step - 1 + unread
        );
        assert_eq!(writer.reclaim(&mut pool, block), 1);
        assert!(pool.free(ChunkClass::Large) >= 62);
        total += u64::from(step);
    }
    let mut rest = [0; 2];
    assert_eq!(reader.read(&memory, block, &mut rest), 1);
    assert_eq!(rest, [7, 0]);
    writer.reclaim(&mut pool, block);
    assert_full(&pool);
}

#[test]
fn reach_is_bounded() {
    let (memory, mut pool) = memory(4, 4);
    let block = memory.block(0).unwrap();
    block.open(1);
    let mut writer = RxWriter::new();
    let src = RawSlice::from(&[1u8, 2, 3][..]);
    assert_eq!(writer.write_at(&mut pool, block, u32::MAX - 1, src), 0);
    assert_eq!(writer.write_at(&mut pool, block, 1 << 20, src), 0);
    assert_eq!(
        writer.write_at(&mut pool, block, 0, RawSlice::from(&[][..])),
        0
    );
    writer.reclaim(&mut pool, block);
    assert_full(&pool);
}
