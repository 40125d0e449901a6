//! The bell that wakes a sleeping stack, at no cost while the stack is awake.
//!
//! The rule: the sleeper: raise the flag, full fence, look
//! once more at everything that could have arrived, sleep. The ringer: publish,
//! full fence, and only if the flag is up (taking it down) make the system call.
//! Whichever fence comes second sees the other's store, so either the sleeper
//! finds the work or the ringer finds the sleeper.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::fence;
use crate::sync::{AtomicU32, Ordering};

/// The flag of one sleeper; the protocol without the system calls.
pub struct SleepFlag(AtomicU32);

const AWAKE: u32 = 0;
const SLEEPING: u32 = 1;

impl Default for SleepFlag {
    fn default() -> Self {
        Self::new()
    }
}

impl SleepFlag {
    /// A sleeper who is awake.
    pub fn new() -> Self {
        Self(AtomicU32::new(AWAKE))
    }

    /// The sleeper is about to sleep. It must look for work once more after this.
    #[inline]
    pub fn announce(&self) {
        self.0.store(SLEEPING, Ordering::Relaxed);
        fence::full();
    }

    /// The sleeper is awake. True if a ringer has rung (its call may still be on its way).
    #[inline]
    pub fn retract(&self) -> bool {
        self.0.swap(AWAKE, Ordering::AcqRel) == AWAKE
    }

    /// One sleep by the rule: announces it, looks once more, and calls `sleep` with what `look`
    /// made, unless that is `None`: there is something to do. `retract` ends the announcement.
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

    /// Announces a sleep, looks once more, and sleeps unless `look` says `None`: there is something
    /// to do, which a ringer published before it could see the announcement.
    pub fn doze<P, R>(
        &self,
        look: impl FnOnce() -> Option<P>,
        sleep: impl FnOnce(P) -> R,
    ) -> Option<R> {
        let retract = || {
            self.retract();
        };
        Self::sleep_after(|| self.announce(), look, sleep, retract)
    }

    /// The ringer has published something: must it make the call? Of several
    /// ringers one is told so.
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
    /// The sleeper's own: it has announced a sleep and not cancelled it yet.
    announced: AtomicU32,
}

fn new_eventfd() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// Makes the descriptor readable. It cannot fail but for a full counter, which
/// is readable already.
fn signal(fd: &OwnedFd) {
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Makes the descriptor unreadable again; how many signals it held.
fn drain(fd: &OwnedFd) -> u64 {
    let mut count = [0; 8];
    match rustix::io::read(fd, &mut count) {
        Ok(8) => u64::from_ne_bytes(count),
        _ => 0,
    }
}

/// Signals that ringers owe the sleeper: one that took the flag down may be late with its
/// signal, which would then keep the descriptor readable and the sleeper from sleeping.
#[derive(Default)]
struct Owed(AtomicU32);

impl Owed {
    /// The sleeper is awake; `rung`: a ringer took the flag down.
    #[inline]
    fn collect(&self, rung: bool, drain: impl FnOnce() -> u64) {
        let rung = u32::from(rung);
        if self.0.load(Ordering::Relaxed) + rung == 0 {
            return;
        }
        let got = drain();
        // More than was owed a moment ago, if somebody insisted meanwhile, who has said so before.
        let left = |owed: u32| Some(u64::from(owed + rung).saturating_sub(got) as u32);
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }
}

impl StackBell {
    /// A bell whose stack is awake; the error is the kernel's on `eventfd`.
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

    /// After publishing work: wakes the stack if it sleeps. True if that took a
    /// system call.
    #[inline]
    pub fn ring(&self) -> bool {
        let must_wake = self.inner.flag.must_wake();
        if must_wake {
            signal(&self.inner.fd);
        }
        must_wake
    }

    /// Like [`ring`](Self::ring), but also to be heard by a stack that is about to sleep and looks
    /// at its queues only: for what is not in a queue.
    pub fn insist(&self) {
        if !self.inner.flag.must_wake() {
            self.inner.owed.0.fetch_add(1, Ordering::Relaxed);
        }
        signal(&self.inner.fd);
    }

    /// The stack is about to sleep on [`fd`](Self::fd); it must look at its
    /// queues once more before it does, and call [`cancel_sleep`](Self::cancel_sleep)
    /// after, whether it slept or not.
    #[inline]
    pub fn prepare_sleep(&self) {
        // A sleep may be announced for someone else to sleep, and the next before that one is
        // cancelled: a ring in between must not be forgotten, or its signal stays.
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

    /// Like [`SleepFlag::doze`]; `sleep` sleeps on [`fd`](Self::fd).
    pub fn doze<P, R>(
        &self,
        look: impl FnOnce() -> Option<P>,
        sleep: impl FnOnce(P) -> R,
    ) -> Option<R> {
        SleepFlag::sleep_after(|| self.prepare_sleep(), look, sleep, || self.cancel_sleep())
    }

    /// Readable once the bell has been rung.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.inner.fd.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
