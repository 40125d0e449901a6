//! The one switch between the machine's atomics and loom's models of them.
//!
//! Every module whose protocol loom explores takes its atomics, cells and `Arc` from here.
//! [`published`](crate::published) and [`driver`](crate::driver) do not, because they carry no
//! protocol of their own.

#[cfg(not(loom))]
pub(crate) use plain::*;

#[cfg(loom)]
pub(crate) use modelled::*;

#[cfg(not(loom))]
mod plain {
    pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
    pub(crate) use std::sync::Arc;

    /// `core`'s cell behind loom's interface, so that one source serves both.
    pub(crate) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        #[inline(always)]
        pub(crate) const fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(crate) fn with<R>(&self, access: impl FnOnce(*const T) -> R) -> R {
            access(self.0.get())
        }

        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, access: impl FnOnce(*mut T) -> R) -> R {
            access(self.0.get())
        }
    }
}

#[cfg(loom)]
mod modelled {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
}

/// Keeps two words that different threads write in different cache lines.
///
/// 128 bytes rather than 64: x86 prefetches lines in pairs.
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);
