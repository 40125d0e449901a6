//! The frame store keeps frames whole and in order.

use std::collections::VecDeque;

use super::*;
use crate::buffer_unsafe::{RxBatch, carve};

/// Appends a frame of `len` bytes with the value `fill`.
fn push(store: &mut FrameStore, fill: u8, len: usize) -> bool {
    let mut batch = RxBatch::new(1);
    let mut buf = carve(1, len.max(1)).remove(0);
    buf.space()[..len].fill(fill);
    buf.set_len(len);
    batch.push(buf);
    store.push(&batch.frames()[0])
}

fn lend(store: &mut FrameStore) -> Vec<(u8, usize)> {
    let frames = store.lend();
    frames
        .iter()
        .map(|frame| {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(0, &mut bytes);
            assert!(bytes.iter().all(|byte| *byte == bytes[0]));
            (bytes[0], bytes.len())
        })
        .collect()
}

#[test]
fn frames_come_out_in_order_a_batch_at_a_time() {
    let mut store = FrameStore::new(4096, 2).expect("memory");
    assert!(store.is_empty());
    for fill in 1..=5 {
        assert!(push(&mut store, fill, 60 + usize::from(fill)));
    }
    assert_eq!(lend(&mut store), [(1, 61), (2, 62)]);
    assert_eq!(lend(&mut store), [(3, 63), (4, 64)]);
    assert_eq!(lend(&mut store), [(5, 65)]);
    assert!(store.is_empty());
    assert_eq!(lend(&mut store), []);
}

#[test]
fn full_store_refuses_and_has_room_again_after_release() {
    let mut store = FrameStore::new(4096, 4).expect("memory");
    let held = (0..).take_while(|_| push(&mut store, 7, 1000)).count();
    assert_eq!(held, 4);
    assert_eq!(lend(&mut store).len(), 4);
    assert!(!push(&mut store, 8, 1000), "the frames are still lent");
    store.release();
    assert!(push(&mut store, 8, 1000));
    assert_eq!(lend(&mut store), [(8, 1000)]);
}

#[test]
fn emptied_store_begins_at_its_start_again() {
    let mut store = FrameStore::new(1 << 20, 8).expect("memory");
    for _ in 0..10_000 {
        assert!(push(&mut store, 3, 100));
        assert_eq!(lend(&mut store), [(3, 100)]);
        store.release();
    }
    assert!(store.touched <= 128, "{}", store.touched);
}

#[test]
fn memory_that_a_crowd_took_is_given_back_and_still_works() {
    let mut store = FrameStore::new(1 << 20, 4096).expect("memory");
    while push(&mut store, 3, 1500) {}
    store.give_back();
    assert!(store.touched > 1 << 19, "frames are in it");
    lend(&mut store);
    store.release();
    store.give_back();
    assert_eq!(store.touched, XDP_STORE_BYTES_KEPT);
    while push(&mut store, 4, 1500) {}
    assert!(lend(&mut store).iter().all(|frame| *frame == (4, 1500)));
}

#[test]
fn store_agrees_with_a_queue_over_frames_of_all_lengths() {
    let mut store = FrameStore::new(8192, 5).expect("memory");
    let mut model = VecDeque::new();
    let mut word = 1u32;
    for step in 0..200_000 {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if word >> 31 == 0 {
            let (fill, len) = (step as u8, 1 + (word >> 16) as usize % 1600);
            if push(&mut store, fill, len) {
                model.push_back((fill, len));
            } else {
                let used: usize = model.iter().map(|(_, len)| len + 15).sum();
                assert!(
                    used + len + 1700 > 8192 / 2,
                    "refused with {used} bytes held"
                );
            }
        } else {
            let lent = lend(&mut store);
            store.release();
            let expected: Vec<_> = model.drain(..lent.len()).collect();
            assert_eq!(lent, expected);
            assert_eq!(store.is_empty(), model.is_empty());
        }
    }
}
