//! Cost of the crate's hot paths on this machine, with both ends on one thread.
//!
//! `cargo run --release -p ring --example ring_bench`

use std::hint::black_box;
use std::time::Instant;

use ring::byte_ring::{RxReader, RxWriter, TxReader, TxWriter};
use ring::checksum;
use ring::chunk::{self, magazine};
use ring::huge_pages::PageSource;
use ring::memory::ContextLimits;
use ring::prefetch::Ahead;
use ring::raw::{RawSlice, RawSliceMut};
use ring::spsc;
use ring::trylock::TryLock;

/// Prints the best of five runs, in nanoseconds per repetition.
fn measure(name: &str, bytes: usize, repetitions: u32, mut body: impl FnMut()) {
    let mut best_ns = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for _ in 0..repetitions {
            body();
        }
        let ns = start.elapsed().as_nanos() as f64 / f64::from(repetitions);
        best_ns = best_ns.min(ns);
    }
    if bytes == 0 {
        println!("{name:44} {best_ns:9.1} ns");
    } else {
        let rate = bytes as f64 / best_ns;
        println!("{name:44} {best_ns:9.1} ns  {rate:6.1} GB/s");
    }
}

fn copies() {
    for len in [64, 536, 1448, 4080, 65_536] {
        let source = vec![0x5a; len];
        let mut target = vec![0; len];
        measure(&format!("memcpy {len}"), len, 200_000, || {
            black_box(&mut target).copy_from_slice(black_box(&source));
        });
        measure(&format!("sum {len}"), len, 200_000, || {
            black_box(checksum::sum(black_box(&source)));
        });
        for (name, copy_and_sum) in checksum::forms() {
            measure(&format!("copy_and_sum {len}, {name}"), len, 200_000, || {
                let dst = RawSliceMut::from(&mut target[..]);
                black_box(copy_and_sum(dst, RawSlice::from(black_box(&source[..]))));
            });
        }
    }
}

fn streams() {
    let (memory, mut pool) =
        chunk::create_memory(&ContextLimits::default(), &mut PageSource::default())
            .expect("memory file");
    let Some(block) = memory.block(0) else { return };
    block.open(1 << 20);
    let (mut feed, mut stock) = magazine(64, 64);
    feed.refill(&mut pool);
    let (mut rx_in, mut rx_out) = (RxWriter::new(), RxReader::new());
    let (mut tx_in, mut tx_out) = (TxWriter::new(), TxReader::new());
    for len in [64u32, 1448, 16_384] {
        let bytes = vec![0x5a; len as usize];
        let mut back = vec![0; len as usize];
        let name = format!("receive stream, {len}: store+sum, read, free");
        measure(&name, len as usize, 200_000, || {
            let src = RawSlice::from(&bytes[..]);
            black_box(rx_in.write_at_sum(&mut pool, block, 0, src, Ahead::NOTHING));
            rx_in.publish(block, len);
            rx_out.read(&memory, block, &mut back);
            rx_in.reclaim(&mut pool, block);
        });
        let name = format!("send stream, {len}: write, copy+sum, ack");
        measure(&name, len as usize, 200_000, || {
            tx_in.write(&memory, block, &mut stock, &bytes);
            let dst = RawSliceMut::from(&mut back[..]);
            black_box(tx_out.copy_out(&memory, block, 0, dst));
            tx_out.acknowledge(&mut pool, block, len);
            feed.refill(&mut pool);
        });
    }
}

fn queues() {
    let (mut producer, mut consumer) = spsc::queue::<u64>(256);
    measure("queue, push and pop", 0, 5_000_000, || {
        let _ = producer.push(black_box(1));
        black_box(consumer.pop());
    });
    measure("queue, batch of 32, per batch", 0, 500_000, || {
        producer.push_batch(&mut (0..32));
        consumer.pop_batch(32, |item| {
            black_box(item);
        });
    });
    let lock = TryLock::new(0u64);
    measure("crank, take and let go", 0, 5_000_000, || {
        if let Some(mut turns) = lock.try_lock() {
            *turns += 1;
        }
    });
}

fn main() {
    println!("checksum form: {}", checksum::form());
    copies();
    streams();
    queues();
}
