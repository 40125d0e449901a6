//! Every interleaving (up to a bound on preemptions) of the two ends of a byte
//! stream, with chunks of two and three bytes whose every byte loom watches.
#![cfg(loom)]

mod common;

use common::{assert_full, byte_at, bytes_at, memory, naive_sum};
use loom::model::Builder;
use loom::thread;

use ring::byte_ring::{RxReader, RxWriter, TxReader, TxWriter};
use ring::chunk::{ChunkClass, ChunkPool, MagazineFeed, magazine};
use ring::memory::Memory;
use ring::raw::{RawSlice, RawSliceMut};

fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 20_000;
    builder.check(body);
}

/// Reads until `total` bytes have come, `step` at a time.
fn read_all(memory: &Memory, total: u32, step: usize) {
    let block = memory.block(0).unwrap();
    let mut reader = RxReader::new();
    let mut head = 0;
    while head < total {
        let mut dst = vec![0; step];
        let read = reader.read(memory, block, &mut dst) as u32;
        assert_eq!(dst[..read as usize], bytes_at(head, read)[..]);
        head += read;
        if read == 0 {
            thread::yield_now();
        }
    }
}

/// Stores and publishes pieces of these lengths, freeing what has been read in between.
fn receive(pool: &mut ChunkPool, writer: &mut RxWriter, lengths: &[u32]) {
    let memory = pool.memory().clone();
    let block = memory.block(0).unwrap();
    let mut tail = 0;
    for len in lengths {
        let mut left = *len;
        while left != 0 {
            let bytes = bytes_at(tail, left);
            let stored = writer.write_at(pool, block, 0, RawSlice::from(&bytes[..]));
            writer.publish(block, stored);
            tail += stored;
            left -= stored;
            writer.reclaim(pool, block);
            if left != 0 {
                thread::yield_now();
            }
        }
    }
}

fn rx(preemptions: usize, chunks: (u32, u32), lengths: &'static [u32], step: usize) {
    model(preemptions, move || {
        let (memory, mut pool) = memory(chunks.0, chunks.1);
        let block = memory.block(0).unwrap();
        block.open(100);
        let theirs = memory.clone();
        let total = lengths.iter().sum();
        let application = thread::spawn(move || read_all(&theirs, total, step));
        let mut writer = RxWriter::new();
        receive(&mut pool, &mut writer, lengths);
        application.join().unwrap();
        assert_eq!(writer.reclaim(&mut pool, block), 0);
        assert_full(&pool);
    });
}

#[test]
fn rx_restarts_while_the_reader_reads() {
    rx(3, (2, 1), &[1, 1, 1], 1);
}

#[test]
fn rx_chunks_come_back_through_the_pool() {
    rx(2, (1, 1), &[2, 2, 2], 2);
}

#[test]
fn rx_reader_crosses_chunks() {
    rx(3, (2, 2), &[3, 4], 5);
}

#[test]
fn rx_out_of_order_bytes_stay_behind_the_tail() {
    model(3, || {
        let (memory, mut pool) = memory(3, 1);
        let block = memory.block(0).unwrap();
        block.open(100);
        let theirs = memory.clone();
        let application = thread::spawn(move || read_all(&theirs, 4, 4));
        let mut writer = RxWriter::new();
        let put = |writer: &mut RxWriter, pool: &mut ChunkPool, at: u32, offset, len| {
            let bytes = bytes_at(at, len);
            let src = RawSlice::from(&bytes[..]);
            assert_eq!(writer.write_at(pool, block, offset, src), len);
        };
        put(&mut writer, &mut pool, 0, 0, 1);
        writer.publish(block, 1);
        put(&mut writer, &mut pool, 3, 2, 1);
        writer.reclaim(&mut pool, block);
        put(&mut writer, &mut pool, 1, 0, 2);
        writer.publish(block, 3);
        application.join().unwrap();
        writer.reclaim(&mut pool, block);
        assert_full(&pool);
    });
}

/// The stack's side of a send stream: sends and acknowledges until `total` bytes have passed.
fn transmit(
    pool: &mut ChunkPool,
    feed: &mut MagazineFeed,
    reader: &mut TxReader,
    total: u32,
    acknowledge_max: u32,
) {
    let memory = pool.memory().clone();
    let block = memory.block(0).unwrap();
    let mut una = 0;
    while una < total {
        let buffered = reader.buffered(block);
        if buffered == 0 {
            thread::yield_now();
            continue;
        }
        let mut frame = vec![0; buffered as usize];
        let sum = reader.copy_out(&memory, block, 0, RawSliceMut::from(&mut frame[..]));
        let expected = bytes_at(una, buffered);
        assert_eq!(frame, expected);
        assert_eq!(sum, naive_sum(&expected));
        let n = buffered.min(acknowledge_max);
        reader.acknowledge(pool, block, n);
        una += n;
        feed.refill(pool);
    }
}

fn tx(
    preemptions: usize,
    chunks: (u32, u32),
    stock: (usize, usize),
    lengths: &'static [u32],
    acknowledge_max: u32,
) {
    model(preemptions, move || {
        let (memory, mut pool) = memory(chunks.0, chunks.1);
        let block = memory.block(0).unwrap();
        block.open(100);
        let (mut feed, mut magazine) = magazine(stock.0, stock.1);
        feed.refill(&mut pool);
        let theirs = memory.clone();
        let application = thread::spawn(move || {
            let block = theirs.block(0).unwrap();
            let mut writer = TxWriter::new();
            let mut tail = 0u32;
            for len in lengths {
                let end = tail + len;
                while tail < end {
                    let bytes: Vec<u8> = (tail..end).map(byte_at).collect();
                    let written = writer.write(&theirs, block, &mut magazine, &bytes);
                    tail += written as u32;
                    if written == 0 {
                        thread::yield_now();
                    }
                }
            }
            magazine
        });
        let mut reader = TxReader::new();
        let total = lengths.iter().sum();
        transmit(&mut pool, &mut feed, &mut reader, total, acknowledge_max);
        let magazine = application.join().unwrap();
        // The writer's job makes the stack reclaim the chunks that the writer's last words leave
        // behind.
        reader.reclaim(&mut pool, block);
        feed.reclaim(magazine, &mut pool);
        assert_full(&pool);
    });
}

#[test]
fn tx_open_chunk_is_appended_to_or_freed() {
    tx(2, (4, 1), (4, 1), &[1, 1, 1], u32::MAX);
}

#[test]
fn tx_partial_acknowledgements_close_a_chunk() {
    tx(2, (4, 1), (4, 1), &[1, 2, 1], 1);
}

#[test]
fn tx_chunks_come_back_through_the_magazine() {
    tx(2, (1, 1), (1, 1), &[3, 2], u32::MAX);
}

#[test]
fn tx_writer_crosses_chunks() {
    tx(3, (2, 2), (2, 2), &[4, 3], 2);
}

#[test]
fn tx_failed_connection_is_freed_under_the_writer() {
    model(3, || {
        let (memory, mut pool) = memory(4, 1);
        let block = memory.block(0).unwrap();
        block.open(100);
        let (mut feed, mut magazine) = magazine(4, 1);
        feed.refill(&mut pool);
        let theirs = memory.clone();
        let application = thread::spawn(move || {
            let block = theirs.block(0).unwrap();
            let mut writer = TxWriter::new();
            for n in 0..3 {
                writer.write(&theirs, block, &mut magazine, &[n]);
            }
            magazine
        });
        let mut reader = TxReader::new();
        block.set_tx_limit(0);
        let buffered = reader.buffered(block);
        reader.acknowledge(&mut pool, block, buffered);
        let magazine = application.join().unwrap();
        reader.release_all(&mut pool, block);
        feed.reclaim(magazine, &mut pool);
        for class in [ChunkClass::Small, ChunkClass::Large] {
            assert_eq!(pool.free(class), pool.total(class));
        }
    });
}
