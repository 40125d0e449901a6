//! A thread that sleeps until another thread or a signal handler calls it.
//!
//! The sleeper announces how it sleeps and learns in the same atomic step whether it was called
//! already. The caller leaves its reason and learns in the same step whether the thread sleeps. So
//! either the sleeper sees the reason, or the caller sees the sleeper and wakes it: by the futex of
//! the word, or by an eventfd if the sleeper watches descriptors, too.

use crate::sync::{AtomicU32, Ordering};

/// Way in which a waiter sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// On the futex of its word.
    Futex = 1,
    /// In `ppoll`, with its eventfd among the descriptors.
    Poll = 2,
}

/// Reason for which a waiter is to wake up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Another thread calls it.
    Called = 4,
    /// A signal handler ran, after which calls fail with EINTR.
    Signal = 8,
    /// A signal handler ran, after which calls go on (`SA_RESTART`).
    Restart = 16,
}

/// The reasons that were left for a waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reasons(u32);

impl Reasons {
    /// True if this reason is among them.
    #[must_use]
    pub const fn has(self, reason: Reason) -> bool {
        self.0 & reason as u32 != 0
    }
}

const SLEEPS: u32 = Sleep::Futex as u32 | Sleep::Poll as u32;

/// The word of a waiter: the protocol without the system calls.
pub struct WaitWord(AtomicU32);

impl Default for WaitWord {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitWord {
    /// The word of a thread that is awake and that nobody has called.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The thread is about to sleep. False: it was called already, and must not sleep.
    /// [`retract`](Self::retract) follows in both cases.
    pub fn announce(&self, how: Sleep) -> bool {
        self.0.fetch_or(how as u32, Ordering::AcqRel) == 0
    }

    /// The thread is awake. Returns and clears the reasons that were left.
    pub fn retract(&self) -> Reasons {
        Reasons(self.0.swap(0, Ordering::AcqRel) & !SLEEPS)
    }

    /// Leaves a reason. Returns the way in which the thread sleeps, if the caller has to wake it.
    pub fn leave(&self, reason: Reason) -> Option<Sleep> {
        let before = self.0.fetch_or(reason as u32, Ordering::AcqRel);
        match before {
            before if before == Sleep::Futex as u32 => Some(Sleep::Futex),
            before if before == Sleep::Poll as u32 => Some(Sleep::Poll),
            // The thread is awake, or an earlier caller wakes it.
            _ => None,
        }
    }

    /// The word, for a futex wait as long as its value says that the thread sleeps there.
    pub fn word(&self) -> &AtomicU32 {
        &self.0
    }
}

#[cfg(not(loom))]
pub use system::Waiter;

#[cfg(not(loom))]
mod system {
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::sync::OnceLock;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::Errno;
    use rustix::thread::futex;

    use super::{Reason, Reasons, Sleep, WaitWord};

    /// Place where one thread sleeps: its word and, if needed, its eventfd.
    #[derive(Default)]
    pub struct Waiter {
        word: WaitWord,
        /// The eventfd, made when the thread first sleeps on descriptors.
        bell: OnceLock<OwnedFd>,
    }

    impl Waiter {
        /// The waiter of a thread that is awake.
        #[must_use]
        pub fn new() -> Self {
            Self::default()
        }

        /// Wakes the thread if it sleeps; if not, its next sleep ends at once. Safe in a signal
        /// handler.
        pub fn leave(&self, reason: Reason) {
            match self.word.leave(reason) {
                None => {}
                Some(Sleep::Futex) => {
                    // The call can only fail for a bad address.
                    let _ = futex::wake(self.word.word(), futex::Flags::PRIVATE, 1);
                }
                Some(Sleep::Poll) => {
                    if let Some(bell) = self.bell.get() {
                        // The call fails only if the counter is full, and then the eventfd is
                        // readable already.
                        let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
                    }
                }
            }
        }

        /// Forgets the reasons left so far, which belong to an earlier call.
        pub fn begin(&self) {
            self.word.retract();
        }

        /// Sleeps for at most `timeout`. `Err(INTR)`: a signal handler ran meanwhile.
        pub fn sleep(&self, timeout: Duration) -> (Result<(), Errno>, Reasons) {
            let mut slept = Ok(());
            if self.word.announce(Sleep::Futex) {
                let timeout = rustix::fs::Timespec {
                    tv_sec: timeout.as_secs() as i64,
                    tv_nsec: timeout.subsec_nanos().into(),
                };
                let asleep = Sleep::Futex as u32;
                let flags = futex::Flags::PRIVATE;
                let waited = futex::wait(self.word.word(), flags, asleep, Some(&timeout));
                slept = match waited {
                    Err(Errno::INTR) => Err(Errno::INTR),
                    // Called before the sleep began, or timed out.
                    _ => Ok(()),
                };
            }
            (slept, self.word.retract())
        }

        /// Sleeps by calling `sleep`, which must watch the descriptor that it is given.
        ///
        /// # Errors
        /// Errors of `eventfd`; `sleep` was not called then.
        pub fn sleep_in<R>(
            &self,
            sleep: impl FnOnce(BorrowedFd<'_>) -> R,
        ) -> Result<(Option<R>, Reasons), Errno> {
            if self.bell.get().is_none() {
                let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
                // Only this thread makes the eventfd, so it cannot be set already.
                let _ = self.bell.set(bell);
            }
            let Some(bell) = self.bell.get() else {
                return Err(Errno::NOMEM);
            };
            let slept = self.word.announce(Sleep::Poll).then(|| sleep(bell.as_fd()));
            let reasons = self.word.retract();
            if slept.is_some() && reasons != Reasons::default() {
                // A signal that comes after this read ends one more sleep early.
                let _ = rustix::io::read(bell, &mut [0; 8]);
            }
            Ok((slept, reasons))
        }
    }

    #[cfg(test)]
    mod tests {
        use std::sync::Arc;

        use super::*;

        const LONG: Duration = Duration::from_secs(60);

        #[test]
        fn called_before_its_sleep_does_not_sleep() {
            let waiter = Waiter::new();
            waiter.leave(Reason::Called);
            let (slept, reasons) = waiter.sleep(LONG);
            assert_eq!(slept, Ok(()));
            assert!(reasons.has(Reason::Called) && !reasons.has(Reason::Signal));
            waiter.leave(Reason::Restart);
            let (slept, reasons) = waiter.sleep_in(|_| ()).expect("an eventfd");
            assert_eq!(slept, None);
            assert!(reasons.has(Reason::Restart));
        }

        #[test]
        fn asleep_on_its_word_is_woken() {
            let waiter = Arc::new(Waiter::new());
            let sleeper = waiter.clone();
            let thread = std::thread::spawn(move || sleeper.sleep(LONG).1);
            std::thread::sleep(Duration::from_millis(5));
            waiter.leave(Reason::Called);
            assert!(thread.join().expect("woken").has(Reason::Called));
        }

        #[test]
        fn asleep_on_descriptors_is_woken() {
            let waiter = Arc::new(Waiter::new());
            let sleeper = waiter.clone();
            let thread = std::thread::spawn(move || {
                let watch = |bell: BorrowedFd<'_>| {
                    use rustix::event::{PollFd, PollFlags, poll};
                    let mut fds = [PollFd::from_borrowed_fd(bell, PollFlags::IN)];
                    poll(&mut fds, None)
                };
                sleeper.sleep_in(watch).expect("an eventfd").1
            });
            std::thread::sleep(Duration::from_millis(5));
            waiter.leave(Reason::Called);
            assert!(thread.join().expect("woken").has(Reason::Called));
        }

        #[test]
        fn reasons_of_an_earlier_call_are_forgotten() {
            let waiter = Waiter::new();
            waiter.leave(Reason::Signal);
            waiter.begin();
            let (_, reasons) = waiter.sleep(Duration::from_millis(1));
            assert_eq!(reasons, Reasons::default());
        }
    }
}
