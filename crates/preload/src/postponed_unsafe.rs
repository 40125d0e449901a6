//! Signals of this thread that are postponed until the lock is free.

use std::cell::Cell;

use libc::{c_int, sigset_t};

use crate::limits::SIGNALS_MAX;

thread_local! {
    /// Signals that are postponed, and blocked, until the lock is free.
    static WAITING: Cell<u64> = const { Cell::new(0) };
}

/// Notes that a signal is queued again and blocked.
pub fn add(signal: c_int) {
    WAITING.set(WAITING.get() | bit(signal));
}

/// Delivers postponed signals once the lock is free.
#[inline]
pub fn lock_is_free() {
    // A thread that ends has no thread-local storage any more, and no postponed signals.
    if WAITING.try_with(Cell::get).unwrap_or(0) != 0 {
        let_come();
    }
}

#[cold]
fn let_come() {
    unblock(WAITING.replace(0));
}

/// Unblocks a set of signals in this thread.
pub fn unblock(signals: u64) {
    // SAFETY: all zeros is an empty set, and the calls read it.
    unsafe {
        let mut set: sigset_t = std::mem::zeroed();
        for signal in (1..=SIGNALS_MAX as c_int).filter(|&signal| signals & bit(signal) != 0) {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

/// A signal's bit in a set.
pub const fn bit(signal: c_int) -> u64 {
    1 << (signal as u32 - 1)
}
