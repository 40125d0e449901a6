//! Signals of the threads that the library starts for itself.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// All signals blocked in this thread, until the value is dropped.
///
/// A thread inherits the mask of the thread that starts it. The threads of the library must take no
/// signal of the program's: a thread of the program may wait for the signal in `sigsuspend` or
/// `sigwait`, and the kernel gives a signal of the process to any thread that does not block it.
#[derive(Debug)]
pub struct BlockedSignals {
    before: MaybeUninit<libc::sigset_t>,
    /// The mask is the thread's.
    _thread: PhantomData<*mut ()>,
}

impl BlockedSignals {
    /// Blocks all signals.
    #[must_use]
    pub fn new() -> Self {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the first call fills `all`, the second reads it and fills `before`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        }
        Self {
            before,
            _thread: PhantomData,
        }
    }
}

impl Default for BlockedSignals {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        let before = self.before.as_ptr();
        // SAFETY: `new` filled the mask; the call fails only for a bad `how`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
    }
}
