//! Signals of the threads that the library starts for itself.

use std::mem::MaybeUninit;

/// The thread's mask of blocked signals from before, which the drop restores.
struct Before(MaybeUninit<libc::sigset_t>);

impl Drop for Before {
    fn drop(&mut self) {
        // SAFETY: the mask was filled when the value was made; the call fails only for a bad `how`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, self.0.as_ptr(), std::ptr::null_mut()) };
    }
}

/// Calls `start` with all signals blocked in this thread.
///
/// A thread inherits the mask of the thread that starts it. The threads of the library must take no
/// signal of the program's: a thread of the program may wait for the signal in `sigsuspend` or
/// `sigwait`, and the kernel gives a signal of the process to any thread that does not block it.
pub fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: the first call fills `all`, the second reads it and fills `before`.
    let _before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        Before(before)
    };
    start()
}
