//! The accessors for foreign rings: words and descriptors, and a ring across two threads, compared
//! with what was put in.
#![cfg(not(loom))]

use std::thread;

use ring::driver;

#[test]
fn driver_words_and_descriptors() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(C)]
    struct Descriptor {
        address: u64,
        len: u32,
        options: u32,
    }
    let mut ring = (0u32, [0u64; 2], 0u16, 0u64);
    let descriptor = Descriptor {
        address: 4096,
        len: 60,
        options: 1,
    };
    let (producer, slot) = (&raw mut ring.0, (&raw mut ring.1).cast::<Descriptor>());
    let (index, wide) = (&raw mut ring.2, &raw mut ring.3);
    // SAFETY: all four are our own aligned words, accessed only here.
    unsafe {
        driver::write_once(slot, descriptor);
        driver::store_release_u32(producer, 1);
        assert_eq!(driver::load_acquire_u32(producer), 1);
        assert_eq!(driver::read_once(slot), descriptor);
        driver::store_relaxed_u16(index, 65535);
        assert_eq!(driver::load_acquire_u16(index), 65535);
        driver::store_release_u64(wide, 1 << 40);
        assert_eq!(driver::load_relaxed_u64(wide), 1 << 40);
    }
    driver::fence_full();
}

#[test]
fn driver_ring_across_threads_matches_the_oracle() {
    #[derive(Clone, Copy)]
    struct Shared(*mut u32);
    // SAFETY: the test accesses the words by the accessors' rules alone.
    unsafe impl Send for Shared {}
    const SLOTS: u32 = 8;
    let total = if cfg!(miri) { 60 } else { 100_000 };
    // Word 0: producer, word 16: consumer, from 32: slots.
    let mut words = vec![0u32; 32 + SLOTS as usize];
    let shared = Shared(words.as_mut_ptr());
    let producer = thread::spawn(move || {
        let Shared(base) = { shared };
        for n in 0..total {
            // SAFETY: within the vector; the slot is ours until the cursor is stored.
            unsafe {
                while n - driver::load_acquire_u32(base.add(16)) == SLOTS {
                    thread::yield_now();
                }
                driver::write_once(base.add(32 + (n % SLOTS) as usize), n * 3);
                driver::store_release_u32(base, n + 1);
            }
        }
    });
    for n in 0..total {
        // SAFETY: within the vector; the slot is ours until the cursor is stored.
        unsafe {
            while driver::load_acquire_u32(shared.0) == n {
                thread::yield_now();
            }
            assert_eq!(
                driver::read_once(shared.0.add(32 + (n % SLOTS) as usize)),
                n * 3
            );
            driver::store_release_u32(shared.0.add(16), n + 1);
        }
    }
    producer.join().expect("producer");
    drop(words);
}
