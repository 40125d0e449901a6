//! The crank: a lock that is only ever tried, one compare-and-swap per turn.
//!
//! The thread that owns a context takes the lock to turn the stack; the watchdog takes it when the
//! owner stays away. A thread that fails to take it goes on with other work: the holder is turning
//! the stack.

use core::ops::{Deref, DerefMut};

use crate::sync::{AtomicBool, Ordering, UnsafeCell};

/// A value that one thread at a time may hold.
pub struct TryLock<T> {
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

/// Access to the locked value; dropping it releases the lock.
pub struct Guard<'a, T> {
    lock: &'a TryLock<T>,
    /// Makes the guard neither `Send` nor `Sync`: it stays with the thread that took the lock.
    held: core::marker::PhantomData<*mut T>,
}

// SAFETY: the flag lets one guard exist at a time, so the value moves from thread to thread, which
// `T: Send` allows, and is never shared.
unsafe impl<T: Send> Sync for TryLock<T> {}
// SAFETY: as for any owner of a `T`.
unsafe impl<T: Send> Send for TryLock<T> {}

impl<T> TryLock<T> {
    /// A lock that nobody holds.
    pub fn new(value: T) -> Self {
        Self {
            taken: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock; `None` at once if another thread holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        Some(Guard {
            lock: self,
            held: core::marker::PhantomData,
        })
    }

    /// True if a thread holds the lock at this moment; a hint.
    #[inline]
    pub fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed)
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while the guard lives the flag is set and nobody else reaches the value.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.taken.store(false, Ordering::Release);
    }
}
