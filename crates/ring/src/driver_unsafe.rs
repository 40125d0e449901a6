//! Accessors for rings whose layout others define: AF_XDP and memif.
//!
//! The peer is a kernel or another process that maps the same words, and it may be hostile. So a
//! cursor read here is a number to check. A descriptor is read once ([`read_once`]), and the copy
//! is checked. Used by `packetio` alone.

use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

macro_rules! accessors {
    ($word:ty, $atomic:ty, $load_acquire:ident, $load_relaxed:ident, $store_release:ident, $store_relaxed:ident) => {
        /// Loads the word with Acquire: what its writer stored before is visible afterwards.
        ///
        /// # Safety
        /// `word` must be valid for reads and aligned. As long as it is shared, no plain write of
        /// this process may access it.
        #[inline(always)]
        pub unsafe fn $load_acquire(word: *const $word) -> $word {
            // SAFETY: the caller vouches for validity and alignment; loads do not write.
            unsafe { <$atomic>::from_ptr(word.cast_mut()) }.load(Ordering::Acquire)
        }

        /// Loads the word without ordering: this side's own cursor, or flags.
        ///
        /// # Safety
        /// As for the load with Acquire.
        #[inline(always)]
        pub unsafe fn $load_relaxed(word: *const $word) -> $word {
            // SAFETY: the caller vouches for validity and alignment; loads do not write.
            unsafe { <$atomic>::from_ptr(word.cast_mut()) }.load(Ordering::Relaxed)
        }

        /// Stores the word with Release: what this side stored before is visible to a peer that
        /// acquires it.
        ///
        /// # Safety
        /// `word` must be valid for reads and writes and aligned. As long as it is shared, only
        /// atomics may access it.
        #[inline(always)]
        pub unsafe fn $store_release(word: *mut $word, value: $word) {
            // SAFETY: the caller vouches for validity and alignment.
            unsafe { <$atomic>::from_ptr(word) }.store(value, Ordering::Release);
        }

        /// Stores the word without ordering: flags.
        ///
        /// # Safety
        /// As for the store with Release.
        #[inline(always)]
        pub unsafe fn $store_relaxed(word: *mut $word, value: $word) {
            // SAFETY: the caller vouches for validity and alignment.
            unsafe { <$atomic>::from_ptr(word) }.store(value, Ordering::Relaxed);
        }
    };
}

accessors!(
    u16,
    AtomicU16,
    load_acquire_u16,
    load_relaxed_u16,
    store_release_u16,
    store_relaxed_u16
);
accessors!(
    u32,
    AtomicU32,
    load_acquire_u32,
    load_relaxed_u32,
    store_release_u32,
    store_relaxed_u32
);
accessors!(
    u64,
    AtomicU64,
    load_acquire_u64,
    load_relaxed_u64,
    store_release_u64,
    store_relaxed_u64
);

/// Copies a descriptor out exactly once, so that the checked value is the value used.
///
/// # Safety
/// `place` must be valid for reads and aligned, and any bytes must be a `T`.
#[inline(always)]
pub unsafe fn read_once<T: Copy>(place: *const T) -> T {
    // SAFETY: the caller vouches for validity, alignment and that every pattern is a value.
    unsafe { place.read_volatile() }
}

/// Writes a descriptor exactly once. A store of the cursor with Release then publishes it.
///
/// # Safety
/// `place` must be valid for writes and aligned.
#[inline(always)]
pub unsafe fn write_once<T: Copy>(place: *mut T, value: T) {
    // SAFETY: the caller vouches for validity and alignment.
    unsafe { place.write_volatile(value) };
}

/// A full fence, between publishing a cursor and reading the peer's "do not wake me" flag, or the
/// other way round.
#[inline(always)]
pub fn fence_full() {
    crate::fence::full();
}
