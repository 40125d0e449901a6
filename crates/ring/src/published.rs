//! Words that one party writes and other parties read: counters, watchdog times.
//!
//! All accesses are relaxed: a reader sees some recent value of each word and no order between
//! words. Code that needs order uses the queues, bells and blocks of this crate. Writing costs a
//! plain load and store.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A 64-bit word with one writer.
#[derive(Default, Debug)]
#[repr(transparent)]
pub struct Published64(AtomicU64);

/// A 32-bit word with one writer.
#[derive(Default, Debug)]
#[repr(transparent)]
pub struct Published32(AtomicU32);

/// A flag that any thread may set and read. What was written before `raise` is visible to a thread
/// that sees the flag raised.
#[derive(Default, Debug)]
pub struct Flag(AtomicU32);

impl Published64 {
    /// A word with this value.
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// The value.
    #[inline]
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the value.
    #[inline]
    pub fn store(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds `more`. Only the one writer may call it, since it is a load and a store.
    #[inline]
    pub fn add(&self, more: u64) {
        self.store(self.load().wrapping_add(more));
    }

    /// Adds `more`, also while other threads add: a locked instruction, for cold places. Returns
    /// the old value.
    #[inline]
    pub fn add_shared(&self, more: u64) -> u64 {
        self.0.fetch_add(more, Ordering::Relaxed)
    }
}

impl Published32 {
    /// A word with this value.
    pub const fn new(value: u32) -> Self {
        Self(AtomicU32::new(value))
    }

    /// The value.
    #[inline]
    pub fn load(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the value.
    #[inline]
    pub fn store(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds `more`. Only the one writer may call it, since it is a load and a store.
    #[inline]
    pub fn add(&self, more: u32) {
        self.store(self.load().wrapping_add(more));
    }

    /// Adds `more`, also while other threads add: a locked instruction, for cold places. Returns
    /// the old value.
    #[inline]
    pub fn add_shared(&self, more: u32) -> u32 {
        self.0.fetch_add(more, Ordering::Relaxed)
    }
}

impl Flag {
    /// A flag that is down.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Raises the flag.
    #[inline]
    pub fn raise(&self) {
        self.0.store(1, Ordering::Release);
    }

    /// Lowers the flag.
    #[inline]
    pub fn lower(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Lowers the flag and returns whether it was up. Of several callers, one gets true.
    #[inline]
    pub fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0 && self.0.swap(0, Ordering::AcqRel) != 0
    }

    /// True if the flag is up.
    #[inline]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }
}

/// A full fence: stores before it are visible before loads after it are executed. For protocols
/// that store and then look (a want flag, then the cursor), once per turn.
#[inline]
pub fn fence_full() {
    crate::fence::full();
}
