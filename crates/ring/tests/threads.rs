//! Both streams of one socket across two threads, hashed at both ends, while chunks run
//! short and the magazine is refilled.
#![cfg(not(loom))]

mod common;

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::thread;

use common::{Random, assert_full, byte_at, memory, naive_sum};
use ring::byte_ring::{RxReader, RxWriter, TxReader, TxWriter};
use ring::chunk::{ChunkPool, Magazine, MagazineFeed, magazine};
use ring::memory::Memory;
use ring::prefetch::Ahead;
use ring::raw::{RawSlice, RawSliceMut};
use ring::socket_block::{Requests, SocketBlock};

const TOTAL: u32 = if cfg!(miri) { 3000 } else { 40 << 20 };

fn size(random: &mut Random) -> u32 {
    match random.below(if cfg!(miri) { 3 } else { 8 }) {
        0 => 1 + random.below(4),
        1 | 2 => 1 + random.below(300),
        _ => 1 + random.below(10_000),
    }
}

/// The stack's end: it echoes what it receives, sometimes with a gap held out of order.
struct Stack {
    pool: ChunkPool,
    feed: MagazineFeed,
    rx: RxWriter,
    tx: TxReader,
    random: Random,
    hash_in: DefaultHasher,
    received: u32,
    delivered: u32,
    /// Bytes taken from the send stream and not yet delivered to the receive stream.
    pending: Vec<u8>,
}

impl Stack {
    fn turn(&mut self, block: &SocketBlock) -> bool {
        let _ = block.take_requests();
        let moved = self.take(block) | self.deliver(block);
        self.rx.reclaim(&mut self.pool, block);
        self.tx.reclaim(&mut self.pool, block);
        self.feed.refill(&mut self.pool);
        moved
    }

    /// Sends some bytes, sends some of them again, acknowledges some.
    fn take(&mut self, block: &SocketBlock) -> bool {
        let memory = self.pool.memory().clone();
        if self.pending.len() > 30_000 {
            return false;
        }
        let n = self.tx.buffered(block).min(size(&mut self.random));
        if n == 0 {
            return false;
        }
        let mut frame = vec![0; n as usize];
        let sum = self
            .tx
            .copy_out(&memory, block, 0, RawSliceMut::from(&mut frame[..]));
        assert_eq!(sum, naive_sum(&frame));
        let back = self.random.below(n);
        let mut again = vec![0; (n - back) as usize];
        self.tx
            .copy_out(&memory, block, back, RawSliceMut::from(&mut again[..]));
        assert!(frame.ends_with(&again));
        self.hash_in.write(&frame);
        self.pending.extend(frame);
        self.tx.acknowledge(&mut self.pool, block, n);
        self.received += n;
        true
    }

    /// Stores the second half before the first, then publishes both.
    fn deliver(&mut self, block: &SocketBlock) -> bool {
        let n = (size(&mut self.random) as usize).min(self.pending.len());
        if n == 0 || self.rx.unread(block) > 30_000 {
            return false;
        }
        let (first, second) = self.pending[..n].split_at(n / 2);
        let mut in_order = 0;
        let late = self.rx.write_at(
            &mut self.pool,
            block,
            first.len() as u32,
            RawSlice::from(second),
        );
        let src = RawSlice::from(first);
        let (stored, sum) = self
            .rx
            .write_at_sum(&mut self.pool, block, 0, src, Ahead::NOTHING);
        assert_eq!(sum, naive_sum(&first[..stored as usize]));
        in_order += stored;
        if stored as usize == first.len() {
            in_order += late;
        }
        self.rx.publish(block, in_order);
        self.rx.discard_unpublished();
        self.pending.drain(..in_order as usize);
        self.delivered += in_order;
        in_order != 0
    }
}

/// The application's end: writes the pattern and reads it back.
struct Application {
    magazine: Magazine,
    rx: RxReader,
    tx: TxWriter,
    random: Random,
    hash_out: DefaultHasher,
    hash_back: DefaultHasher,
    written: u32,
    read: u32,
}

impl Application {
    fn turn(&mut self, memory: &Memory, block: &SocketBlock) -> bool {
        let n = size(&mut self.random).min(TOTAL - self.written);
        let bytes: Vec<u8> = (0..n).map(|i| byte_at(self.written + i)).collect();
        let written = self.tx.write(memory, block, &mut self.magazine, &bytes);
        self.hash_out.write(&bytes[..written]);
        self.written += written as u32;
        let mut back = vec![0; size(&mut self.random) as usize];
        let read = self.rx.read(memory, block, &mut back);
        self.hash_back.write(&back[..read]);
        self.read += read as u32;
        if written != 0 {
            let _ = block.request(Requests::WROTE);
        }
        written + read != 0
    }
}

#[test]
fn echoed_bytes_come_back_whole() {
    let (memory, pool) = memory(64, 24);
    memory.block(0).unwrap().open(50_000);
    let (feed, magazine) = magazine(8, 4);
    let mut stack = Stack {
        pool,
        feed,
        rx: RxWriter::new(),
        tx: TxReader::new(),
        random: Random(11),
        hash_in: DefaultHasher::new(),
        received: 0,
        delivered: 0,
        pending: Vec::new(),
    };
    let mut application = Application {
        magazine,
        rx: RxReader::new(),
        tx: TxWriter::new(),
        random: Random(12),
        hash_out: DefaultHasher::new(),
        hash_back: DefaultHasher::new(),
        written: 0,
        read: 0,
    };
    let theirs = memory.clone();
    let thread = thread::spawn(move || {
        let block = theirs.block(0).unwrap();
        while application.read < TOTAL {
            if !application.turn(&theirs, block) {
                thread::yield_now();
            }
        }
        application
    });
    let block = memory.block(0).unwrap();
    while stack.delivered < TOTAL {
        if !stack.turn(block) {
            thread::yield_now();
        }
    }
    let application = thread.join().expect("application");
    stack.turn(block);
    let sent = application.hash_out.finish();
    assert_eq!(stack.hash_in.finish(), sent);
    assert_eq!(application.hash_back.finish(), sent);
    let mut pool = stack.pool;
    stack.feed.reclaim(application.magazine, &mut pool);
    assert_full(&pool);
}
