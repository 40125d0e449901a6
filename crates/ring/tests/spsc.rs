//! The queue: compared with a `VecDeque`, across threads, and the items it drops.
#![cfg(not(loom))]

mod common;

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use common::Random;
use ring::spsc::queue;

#[test]
fn any_interleaving_matches_the_oracle() {
    let mut random = Random(3);
    for capacity in [1, 2, 3, 8, 64] {
        let (mut producer, mut consumer) = queue::<Box<u32>>(capacity);
        let capacity = producer.capacity();
        let mut oracle = VecDeque::new();
        let mut next = 0;
        for _ in 0..if cfg!(miri) { 150 } else { 5000 } {
            match random.below(4) {
                0 => match producer.push(Box::new(next)) {
                    Ok(()) => {
                        oracle.push_back(next);
                        next += 1;
                    }
                    Err(item) => assert_eq!((*item, oracle.len()), (next, capacity)),
                },
                1 => {
                    let n = random.below(6);
                    let mut items = (next..next + n).map(Box::new);
                    let pushed = producer.push_batch(&mut items) as u32;
                    assert_eq!(pushed as usize, (capacity - oracle.len()).min(n as usize));
                    assert_eq!(items.next(), (pushed < n).then(|| Box::new(next + pushed)));
                    oracle.extend(next..next + pushed);
                    next += pushed;
                }
                2 => assert_eq!(consumer.pop().map(|item| *item), oracle.pop_front()),
                _ => {
                    let max = random.below(6) as usize;
                    let mut got = Vec::new();
                    let count = consumer.pop_batch(max, |item| got.push(*item));
                    assert_eq!(count, got.len());
                    assert!(count <= max);
                    assert!(count > 0 || max == 0 || oracle.is_empty());
                    assert!(oracle.drain(..count).eq(got));
                }
            }
            assert_eq!(consumer.peek().map(|item| **item), oracle.front().copied());
            let between = producer.position().wrapping_sub(consumer.position());
            assert_eq!(between as usize, oracle.len());
            assert_eq!(producer.len(), oracle.len());
            assert_eq!(producer.free(), capacity - oracle.len());
            assert_eq!(consumer.len(), oracle.len());
            assert_eq!(consumer.is_empty(), oracle.is_empty());
        }
    }
}

#[test]
fn everything_arrives_in_order_across_threads() {
    const TOTAL: u64 = if cfg!(miri) { 200 } else { 2_000_000 };
    let (mut producer, mut consumer) = queue::<u64>(if cfg!(miri) { 4 } else { 256 });
    let feeder = thread::spawn(move || {
        let mut random = Random(4);
        let mut items = (0..TOTAL).peekable();
        while items.peek().is_some() {
            let pushed = if random.below(2) == 0 {
                producer.push_batch(&mut items.by_ref().take(0)) // an empty batch is none
                    + producer.push_batch(&mut items)
            } else {
                let item = items.next().expect("peeked");
                let mut item = Err(item);
                while let Err(again) = item {
                    item = producer.push(again);
                    thread::yield_now();
                }
                1
            };
            if pushed == 0 {
                thread::yield_now();
            }
        }
    });
    let mut expected = 0;
    while expected < TOTAL {
        let count = consumer.pop_batch(50, |item| {
            assert_eq!(item, expected);
            expected += 1;
        });
        if count == 0 {
            thread::yield_now();
        }
    }
    feeder.join().expect("feeder");
    assert!(consumer.is_abandoned() && consumer.pop().is_none());
}

#[test]
fn positions_tell_what_has_been_consumed() {
    let (mut producer, mut consumer) = queue::<u8>(4);
    let first = producer.position();
    producer.push(1).unwrap();
    let second = producer.position();
    producer.push(2).unwrap();
    assert!(!producer.is_consumed(first));
    consumer.pop();
    assert!(producer.is_consumed(first) && !producer.is_consumed(second));
    consumer.pop();
    assert!(producer.is_consumed(second) && !producer.is_consumed(producer.position()));
}

#[test]
fn items_left_behind_are_dropped_once() {
    let alive = Arc::new(());
    let (mut producer, mut consumer) = queue(8);
    for _ in 0..6 {
        producer.push(alive.clone()).unwrap();
    }
    consumer.pop();
    consumer.pop_batch(2, drop);
    assert_eq!(Arc::strong_count(&alive), 4);
    drop(consumer);
    assert!(producer.is_abandoned());
    assert_eq!(Arc::strong_count(&alive), 4);
    drop(producer);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn panic_in_a_batch_takes_each_item_once() {
    struct Counted(Arc<std::sync::atomic::AtomicU32>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let drops = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let (mut producer, mut consumer) = queue(8);
    for _ in 0..5 {
        assert!(producer.push(Counted(drops.clone())).is_ok());
    }
    let seen = Rc::new(Cell::new(0));
    let counter = seen.clone();
    let result = catch_unwind(AssertUnwindSafe(|| {
        consumer.pop_batch(5, |_item| {
            counter.set(counter.get() + 1);
            assert!(counter.get() < 3, "third item");
        })
    }));
    assert!(result.is_err());
    assert_eq!((seen.get(), consumer.len()), (3, 2));
    drop((producer, consumer));
    assert_eq!(drops.load(std::sync::atomic::Ordering::Relaxed), 5);
}
