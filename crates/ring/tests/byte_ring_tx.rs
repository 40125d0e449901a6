//! The send stream against an oracle: random interleavings of the
//! application's and the stack's operations on one thread.
#![cfg(not(loom))]

mod common;

use std::io::IoSlice;

use common::{Random, assert_full, bytes_at, memory, naive_sum};
use proptest::prelude::*;
use ring::byte_ring::{TxReader, TxWriter};
use ring::chunk::{
    ChunkClass, ChunkPool, LARGE_DATA_BYTES, Magazine, MagazineFeed, SMALL_DATA_BYTES, magazine,
};
use ring::memory::Memory;
use ring::raw::RawSliceMut;

#[derive(Clone, Copy, Debug)]
enum Op {
    Write(u32),
    WriteVectored(u32, u32),
    Refill,
    /// Sends this many bytes in sequence.
    Send(u32),
    /// Sends again from this offset past una.
    Retransmit(u32, u32),
    Acknowledge(u32),
    Reclaim,
    Limit(u32),
}

/// Both ends and, beside them, the three positions.
struct World {
    memory: Memory,
    pool: ChunkPool,
    feed: MagazineFeed,
    magazine: Magazine,
    writer: TxWriter,
    reader: TxReader,
    una: u32,
    nxt: u32,
    tail: u32,
    limit: u32,
}

impl World {
    fn new(small: u32, large: u32) -> Self {
        let (memory, pool) = memory(small, large);
        memory.block(0).unwrap().open(20_000);
        let (feed, magazine) = magazine(4, 2);
        Self {
            memory,
            pool,
            feed,
            magazine,
            writer: TxWriter::new(),
            reader: TxReader::new(),
            una: 0,
            nxt: 0,
            tail: 0,
            limit: 20_000,
        }
    }

    fn apply(&mut self, op: Op) {
        let memory = self.memory.clone();
        let block = memory.block(0).unwrap();
        match op {
            Op::Write(n) => {
                let bytes = bytes_at(self.tail, n);
                let magazine = &mut self.magazine;
                let written = self.writer.write(&memory, block, magazine, &bytes);
                self.expect_written(written as u32, n);
            }
            Op::WriteVectored(n, m) => {
                let bytes = bytes_at(self.tail, n + m);
                let (a, b) = bytes.split_at(n as usize);
                let slices = [IoSlice::new(a), IoSlice::new(&[]), IoSlice::new(b)];
                let magazine = &mut self.magazine;
                let written = self
                    .writer
                    .write_vectored(&memory, block, magazine, &slices);
                self.expect_written(written as u32, n + m);
            }
            Op::Refill => {
                self.feed.refill(&mut self.pool);
            }
            Op::Send(n) => {
                let n = n.min(self.tail - self.nxt);
                self.expect_sent(self.nxt - self.una, n);
                self.nxt += n;
            }
            Op::Retransmit(offset, n) => {
                let sent = self.nxt - self.una;
                let offset = offset.min(sent);
                self.expect_sent(offset, n.min(sent - offset));
            }
            Op::Acknowledge(n) => {
                let n = n.min(self.nxt - self.una);
                self.reader.acknowledge(&mut self.pool, block, n);
                self.una += n;
                if self.una == self.tail {
                    self.assert_no_chunks();
                }
            }
            Op::Reclaim => self.reader.reclaim(&mut self.pool, block),
            Op::Limit(n) => {
                block.set_tx_limit(n);
                self.limit = n;
            }
        }
        let waiting = self.tail - self.una;
        assert_eq!(self.reader.buffered(block), waiting);
        assert_eq!(self.writer.waiting(block), waiting);
        assert_eq!(self.writer.space(block), self.limit.saturating_sub(waiting));
    }

    fn expect_written(&mut self, written: u32, asked: u32) {
        let space = self.limit.saturating_sub(self.tail - self.una);
        assert!(written <= asked.min(space));
        if written < asked.min(space) {
            assert!(self.magazine.is_empty(), "wrote fewer with chunks left");
        }
        self.tail += written;
    }

    fn expect_sent(&mut self, offset: u32, n: u32) {
        let block = self.memory.block(0).unwrap();
        let mut frame = vec![0; n as usize];
        let dst = RawSliceMut::from(&mut frame[..]);
        let sum = self.reader.copy_out(&self.memory, block, offset, dst);
        let expected = bytes_at(self.una + offset, n);
        assert_eq!(frame, expected);
        assert_eq!(sum, naive_sum(&expected));
    }

    /// Asserts that every chunk is in the pool or in the magazine.
    fn assert_no_chunks(&self) {
        for class in [ChunkClass::Small, ChunkClass::Large] {
            let free = self.pool.free(class) + self.feed.len(class) as u32;
            assert_eq!(free, self.pool.total(class), "{class:?} chunks held");
        }
    }

    fn finish(mut self) {
        self.apply(Op::Send(u32::MAX));
        self.apply(Op::Acknowledge(u32::MAX));
        self.assert_no_chunks();
        self.feed.reclaim(self.magazine, &mut self.pool);
        assert_full(&self.pool);
    }
}

fn ops() -> impl Strategy<Value = Op> {
    let size = prop_oneof![4 => 0..70u32, 2 => 0..1500u32, 1 => 0..9000u32];
    prop_oneof![
        6 => size.clone().prop_map(Op::Write),
        1 => (size.clone(), size.clone()).prop_map(|(n, m)| Op::WriteVectored(n, m)),
        3 => Just(Op::Refill),
        6 => prop_oneof![1 => Just(20_000u32), 2 => size.clone()].prop_map(Op::Send),
        2 => (size.clone(), size.clone()).prop_map(|(o, n)| Op::Retransmit(o, n)),
        5 => prop_oneof![1 => Just(u32::MAX), 2 => size.clone()].prop_map(Op::Acknowledge),
        1 => Just(Op::Reclaim),
        1 => prop_oneof![1 => Just(0u32), 3 => 1..20_000u32].prop_map(Op::Limit),
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
    let mut random = Random(0x7374_7265);
    for _ in 0..if cfg!(miri) { 3 } else { 200 } {
        let mut world = World::new(8, 4);
        for _ in 0..if cfg!(miri) { 25 } else { 200 } {
            let large = if cfg!(miri) { 600 } else { 5000 };
            let size = if random.below(5) == 0 { large } else { 300 };
            let n = random.below(size);
            let op = match random.below(8) {
                0 | 1 => Op::Write(n),
                2 => Op::WriteVectored(n, 33),
                3 => Op::Refill,
                4 => Op::Send(n * 2),
                5 => Op::Retransmit(n, 100),
                6 => Op::Acknowledge(n),
                _ => Op::Acknowledge(u32::MAX),
            };
            world.apply(op);
        }
        world.finish();
    }
}

#[test]
fn acknowledged_stream_holds_no_chunk_and_restarts() {
    let mut world = World::new(8, 4);
    let (large, larger) = if cfg!(miri) {
        (300, 10)
    } else {
        (LARGE_DATA_BYTES, 9000)
    };
    for n in [64, 1, SMALL_DATA_BYTES, 100, large, larger, 64] {
        world.apply(Op::Refill);
        world.apply(Op::Write(n));
        world.apply(Op::Send(n));
        world.apply(Op::Acknowledge(n));
        world.assert_no_chunks();
    }
    world.finish();
}

#[test]
fn small_writes_share_a_chunk() {
    let mut world = World::new(8, 4);
    world.apply(Op::Refill);
    for _ in 0..3 {
        world.apply(Op::Write(64));
    }
    let held = 4 - world.feed.len(ChunkClass::Small);
    assert_eq!((held, world.feed.len(ChunkClass::Large)), (1, 2));
    world.finish();
}

#[test]
#[cfg_attr(miri, ignore = "slow")]
fn empty_magazine_writes_nothing_and_goes_on_when_refilled() {
    let mut world = World::new(8, 4);
    world.apply(Op::Write(10));
    assert_eq!(world.tail, 0);
    world.apply(Op::Refill);
    world.apply(Op::Write(20_000));
    assert_eq!(world.tail, 2 * LARGE_DATA_BYTES + 4 * SMALL_DATA_BYTES);
    world.apply(Op::Write(10));
    world.apply(Op::Refill);
    world.apply(Op::Write(10));
    assert_eq!(world.tail, 2 * LARGE_DATA_BYTES + 4 * SMALL_DATA_BYTES + 10);
    world.finish();
}

#[test]
fn failed_connection_frees_by_acknowledging_everything() {
    let mut world = World::new(8, 4);
    let memory = world.memory.clone();
    let block = memory.block(0).unwrap();
    world.apply(Op::Refill);
    world.apply(Op::Write(5000));
    block.set_tx_limit(0);
    let buffered = world.reader.buffered(block);
    world.reader.acknowledge(&mut world.pool, block, buffered);
    world.assert_no_chunks();
}

#[test]
fn closed_socket_releases_all() {
    let mut world = World::new(8, 4);
    let memory = world.memory.clone();
    let block = memory.block(0).unwrap();
    world.apply(Op::Refill);
    world.apply(Op::Write(5000));
    world.apply(Op::Send(1000));
    world.apply(Op::Acknowledge(700));
    world.reader.release_all(&mut world.pool, block);
    world.assert_no_chunks();
}
