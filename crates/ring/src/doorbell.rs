//! The bell that wakes a sleeping stack, at no cost while the stack is awake.
//!
//! The sleeper raises the flag, executes a full fence, looks once more at everything that could
//! have arrived, and sleeps. The ringer publishes, executes a full fence, and makes the system call
//! only if the flag is up, which it takes down. Whichever fence comes second sees the other side's
//! store. So either the sleeper finds the work, or the ringer finds the sleeper.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::fence;
use crate::sync::{AtomicU32, Ordering};

/// The flag of one sleeper: the protocol without the system calls.
pub struct SleepFlag(AtomicU32);

const AWAKE: u32 = 0;
const SLEEPING: u32 = 1;

impl Default for SleepFlag {
    fn default() -> Self {
        Self::new()
    }
}

impl SleepFlag {
    /// The flag of a sleeper that is awake.
    pub fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// The sleeper is about to sleep. It must look for work once more after this.
    #[inline]
    pub fn announce(&self) {
        self.0.store(SLEEPING, Ordering::Relaxed);
        fence::full();
    }

    /// The sleeper is awake. True if a ringer has taken the flag down (its system call may still be
    /// on its way).
    #[inline]
    pub fn retract(&self) -> bool {
        self.0.swap(AWAKE, Ordering::AcqRel) == AWAKE
    }

    /// One sleep by the rule: announces it, looks once more, and calls `sleep` with the result of
    /// `look`. `None` from `look` means that there is work, so no sleep follows. `retract` ends the
    /// announcement.
    fn sleep_after<P, R>(
        announce: impl FnOnce(),
        look: impl FnOnce() -> Option<P>,
        sleep: impl FnOnce(P) -> R,
        retract: impl FnOnce(),
    ) -> Option<R> {
        announce();
        let slept = look().map(sleep);
        retract();
        slept
    }

    /// Announces a sleep, looks once more, and sleeps unless `look` returns `None`. That means that
    /// there is work, which a ringer may have published before it could see the announcement.
    pub fn sleep_unless<P, R>(
        &self,
        look: impl FnOnce() -> Option<P>,
        sleep: impl FnOnce(P) -> R,
    ) -> Option<R> {
        let retract = || {
            self.retract();
        };
        Self::sleep_after(|| self.announce(), look, sleep, retract)
    }

    /// True if the ringer, which has published something, must make the system call. Of several
    /// ringers, one gets true.
    #[inline]
    pub fn must_wake(&self) -> bool {
        fence::full();
        self.0.load(Ordering::Relaxed) == SLEEPING
            && self.0.swap(AWAKE, Ordering::AcqRel) == SLEEPING
    }
}

/// Wakes a stack that sleeps in its drivers' wait: an eventfd among the
/// descriptors it waits for. Clones are handles on the same bell.
#[derive(Clone)]
pub struct StackBell {
    inner: Arc<Eventful>,
}

struct Eventful {
    flag: SleepFlag,
    fd: OwnedFd,
    owed: Owed,
    /// The stack has announced a sleep and not cancelled it yet. Written by the stack alone.
    announced: AtomicU32,
}

fn new_eventfd() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Makes the descriptor readable. The call fails only if the counter is full, and then the
/// descriptor is readable already.
fn signal(fd: &OwnedFd) {
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Makes the descriptor unreadable again; returns the number of signals that it held.
fn drain(fd: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(fd, &mut count) {
        Ok(8) => u64::from_ne_bytes(count),
        _ => 0,
    }
}

/// Signals that ringers still owe the sleeper. A ringer that took the flag down may be late with
/// its signal, which would then keep the descriptor readable and the sleeper from sleeping.
#[derive(Default)]
struct Owed(AtomicU32);

impl Owed {
    /// Takes the signals that have come. The sleeper is awake; `rung`: a ringer took the flag down.
    #[inline]
    fn collect(&self, rung: bool, drain: impl FnOnce() -> u64) {
        let rung = u32::from(rung);
        if self.0.load(Ordering::Relaxed) + rung == 0 {
            return;
        }
        let got = drain();
        // `got` may exceed the count read above, if `insist` was called meanwhile: it raises `owed`
        // first, so this subtraction sees it.
        let left = |owed: u32| Some(u64::from(owed + rung).saturating_sub(got) as u32);
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }
}

impl StackBell {
    /// A bell whose stack is awake. The error is that of `eventfd`.
    pub fn new() -> Result<Self, Errno> {
        let inner = Eventful {
            flag: SleepFlag::new(),
            fd: new_eventfd()?,
            owed: Owed::default(),
            announced: AtomicU32::new(0),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Wakes the stack if it sleeps. The caller has published work. True if that took a system
    /// call.
    #[inline]
    pub fn ring(&self) -> bool {
        let must_wake = self.inner.flag.must_wake();
        if must_wake {
            signal(&self.inner.fd);
        }
        must_wake
    }

    /// Like [`ring`](Self::ring), but also heard by a stack that is about to sleep and looks at its
    /// queues only. For work that is not in a queue.
    pub fn insist(&self) {
        if !self.inner.flag.must_wake() {
            self.inner.owed.0.fetch_add(1, Ordering::Relaxed);
        }
        signal(&self.inner.fd);
    }

    /// The stack is about to sleep on [`fd`](Self::fd). It must look at its queues once more before
    /// that, and call [`cancel_sleep`](Self::cancel_sleep) afterwards, whether it slept or not.
    #[inline]
    pub fn prepare_sleep(&self) {
        // A sleep may be announced on behalf of another thread, and announced again before it is
        // cancelled. A ring in between must be collected, or its signal keeps the descriptor
        // readable.
        self.cancel_sleep();
        self.inner.announced.store(1, Ordering::Relaxed);
        self.inner.flag.announce();
    }

    /// The stack is awake. Nothing happens if no sleep was announced.
    #[inline]
    pub fn cancel_sleep(&self) {
        if self.inner.announced.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.inner.announced.store(0, Ordering::Relaxed);
        let rung = self.inner.flag.retract();
        self.inner.owed.collect(rung, || drain(&self.inner.fd));
    }

    /// Like [`SleepFlag::sleep_unless`], where `sleep` waits on [`fd`](Self::fd).
    pub fn sleep_unless<P, R>(
        &self,
        look: impl FnOnce() -> Option<P>,
        sleep: impl FnOnce(P) -> R,
    ) -> Option<R> {
        SleepFlag::sleep_after(|| self.prepare_sleep(), look, sleep, || self.cancel_sleep())
    }

    /// The descriptor to wait on; readable once the bell has been rung.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.inner.fd.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
