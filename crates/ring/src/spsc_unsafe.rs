//! A bounded queue from one thread to one other: jobs, events, free chunks.
//!
//! ```text
//!   slots   [ . . x x x x . . ]      positions are u32 and wrap
//!                 ^head   ^tail      head: Consumer writes, tail: Producer writes
//! ```
//!
//! Each end keeps a copy of the other end's cursor, and reads the cursor again only when the copy
//! says full (or empty). So in the steady state an end touches the other's cache line once per
//! batch. [`queue`] makes the two ends; they may live on one thread (inline crank) or on two.

use core::mem::MaybeUninit;

use crate::limits::QUEUE_SLOTS_MAX;
use crate::sync::{Arc, AtomicU32, CachePadded, Ordering, UnsafeCell, fence};

struct Shared<T> {
    tail: CachePadded<AtomicU32>,
    head: CachePadded<AtomicU32>,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

// SAFETY: a slot is written by the only producer before the tail is published with Release, and
// read by the only consumer after it has acquired that tail (and the other way round for reuse),
// so values of `T: Send` are handed from thread to thread and never shared.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: the queue owns the values in it, and they are `Send`.
unsafe impl<T: Send> Send for Shared<T> {}

/// The end that puts items in.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: u32,
    head_seen: u32,
}

/// The end that takes items out.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    head: u32,
    tail_seen: u32,
}

/// A queue of `capacity` slots, rounded up to a power of two (at least 1, at
/// most [`QUEUE_SLOTS_MAX`]).
pub fn queue<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    let capacity = capacity
        .clamp(1, QUEUE_SLOTS_MAX as usize)
        .next_power_of_two();
    let shared = Arc::new(Shared {
        tail: CachePadded(AtomicU32::new(0)),
        head: CachePadded(AtomicU32::new(0)),
        slots: (0..capacity)
            .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
            .collect(),
    });
    let producer = Producer {
        shared: shared.clone(),
        tail: 0,
        head_seen: 0,
    };
    let consumer = Consumer {
        shared,
        head: 0,
        tail_seen: 0,
    };
    (producer, consumer)
}

impl<T> Shared<T> {
    #[inline(always)]
    fn slot(&self, position: u32) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }
}

impl<T: Send> Producer<T> {
    /// Puts `item` in and publishes it; returns it when the queue is full.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.room() == 0 {
            return Err(item);
        }
        self.fill(item);
        self.publish();
        Ok(())
    }

    /// Puts in as many of `items` as there is room for and publishes them together; returns how
    /// many. Items without room stay in the iterator.
    #[inline]
    pub fn push_batch(&mut self, items: &mut impl Iterator<Item = T>) -> usize {
        let begin = self.tail;
        'full: loop {
            let room = self.room();
            if room == 0 {
                break;
            }
            for _ in 0..room {
                let Some(item) = items.next() else {
                    break 'full;
                };
                self.fill(item);
            }
        }
        if self.tail != begin {
            self.publish();
        }
        self.tail.wrapping_sub(begin) as usize
    }

    /// Free slots, by the consumer's current cursor.
    #[inline]
    pub fn free(&mut self) -> usize {
        self.head_seen = self.shared.head.0.load(Ordering::Acquire);
        self.room() as usize
    }

    /// Items that the consumer has not taken yet.
    #[inline]
    pub fn len(&self) -> usize {
        let head = self.shared.head.0.load(Ordering::Relaxed);
        self.tail.wrapping_sub(head) as usize
    }

    /// True if the consumer has taken everything.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of slots.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// The position of the next item pushed, for a later call of
    /// [`is_consumed`](Self::is_consumed).
    #[inline]
    pub fn position(&self) -> u32 {
        self.tail
    }

    /// True if the item that was pushed at `position` has been taken. What the consumer did before
    /// it released its cursor is then visible. Valid while fewer than 2^31 items have been pushed
    /// since.
    #[inline]
    pub fn is_consumed(&self, position: u32) -> bool {
        let head = self.shared.head.0.load(Ordering::Acquire);
        (head.wrapping_sub(position) as i32) > 0
    }

    /// True if the consumer no longer exists.
    pub fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Free slots by the cursor seen last. Reads the cursor again only when that says none.
    #[inline(always)]
    fn room(&mut self) -> u32 {
        let capacity = self.shared.slots.len() as u32;
        let used = self.tail.wrapping_sub(self.head_seen);
        if used < capacity {
            return capacity - used;
        }
        self.head_seen = self.shared.head.0.load(Ordering::Acquire);
        capacity - self.tail.wrapping_sub(self.head_seen)
    }

    #[inline(always)]
    fn fill(&mut self, item: T) {
        self.shared.slot(self.tail).with_mut(|slot| {
            // SAFETY: `room` has found this slot free: the consumer's released head has passed
            // its last occupant, and only we write beyond the tail.
            unsafe { (*slot).write(item) };
        });
        self.tail = self.tail.wrapping_add(1);
    }

    #[inline(always)]
    fn publish(&mut self) {
        self.shared.tail.0.store(self.tail, Ordering::Release);
    }
}

impl<T: Send> Consumer<T> {
    /// Takes the oldest item.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.ready() == 0 {
            return None;
        }
        let item = self.take();
        self.publish();
        Some(item)
    }

    /// The oldest item, which stays in the queue.
    #[inline]
    pub fn peek(&mut self) -> Option<&T> {
        if self.ready() == 0 {
            return None;
        }
        self.shared.slot(self.head).with(|slot| {
            // SAFETY: `ready` has found this slot filled and acquired the tail that says so. The
            // producer leaves it alone until our head has passed it, and nothing moves that while
            // the reference borrows this end.
            Some(unsafe { (*slot).assume_init_ref() })
        })
    }

    /// The position of the item that is taken next, as [`Producer::position`] returned it.
    #[inline]
    pub fn position(&self) -> u32 {
        self.head
    }

    /// Takes up to `max` items, oldest first, hands each to `each`, and frees their slots together
    /// at the end. Returns how many. If `each` panics, the items already handed to it count as
    /// taken.
    #[inline]
    pub fn pop_batch(&mut self, max: usize, mut each: impl FnMut(T)) -> usize {
        let count = self.ready().min(max.min(u32::MAX as usize) as u32);
        if count == 0 {
            return 0;
        }
        let batch = Batch { consumer: self };
        for _ in 0..count {
            each(batch.consumer.take());
        }
        count as usize
    }

    /// Items that can be taken, by the producer's current cursor.
    #[inline]
    pub fn len(&mut self) -> usize {
        self.tail_seen = self.shared.tail.0.load(Ordering::Acquire);
        self.tail_seen.wrapping_sub(self.head) as usize
    }

    /// True if there is nothing to take.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.ready() == 0
    }

    /// Number of slots.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.shared.slots.len()
    }

    /// True if the producer no longer exists. All items that it put in are visible from now on and
    /// can still be taken.
    pub fn is_abandoned(&self) -> bool {
        let is_alone = Arc::strong_count(&self.shared) == 1;
        if is_alone {
            // The count is read relaxed; the fence makes the items that the producer put in before
            // it went visible to later looks.
            fence(Ordering::Acquire);
        }
        is_alone
    }

    /// Items ready by the cursor seen last. Reads the cursor again only when that says none.
    #[inline(always)]
    fn ready(&mut self) -> u32 {
        let seen = self.tail_seen.wrapping_sub(self.head);
        if seen != 0 {
            return seen;
        }
        self.tail_seen = self.shared.tail.0.load(Ordering::Acquire);
        self.tail_seen.wrapping_sub(self.head)
    }

    #[inline(always)]
    fn take(&mut self) -> T {
        let item = self.shared.slot(self.head).with(|slot| {
            // SAFETY: `ready` has found this slot filled and acquired the tail that says so; the
            // head moves past it below, so it is read out once.
            unsafe { (*slot).assume_init_read() }
        });
        self.head = self.head.wrapping_add(1);
        item
    }

    #[inline(always)]
    fn publish(&mut self) {
        self.shared.head.0.store(self.head, Ordering::Release);
    }
}

/// Publishes the head when the batch ends, also if `each` panics.
struct Batch<'a, T: Send> {
    consumer: &'a mut Consumer<T>,
}

impl<T: Send> Drop for Batch<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.consumer.publish();
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let tail = self.tail.0.load(Ordering::Acquire);
        let mut head = self.head.0.load(Ordering::Acquire);
        while head != tail {
            self.slot(head).with_mut(|slot| {
                // SAFETY: both ends are gone; what lies between the cursors was never taken.
                unsafe { (*slot).assume_init_drop() }
            });
            head = head.wrapping_add(1);
        }
    }
}
