//! The CPU that a thread ran on last, for other threads to compare with their own.
//!
//! A thread that polls and never sleeps keeps a helper thread from the CPU that both share, until
//! the scheduler takes the CPU away after milliseconds. The poller asks [`LastCpu::is_ours`] when
//! it has found nothing, and yields if so. The answer is a hint: the scheduler may move either
//! thread at any time.

use rustix::thread::sched_getcpu;

use crate::published::Published32;

/// The CPU of one thread, written by that thread when it runs out of work.
#[derive(Debug)]
pub struct LastCpu(Published32);

/// No CPU has this number: the thread has not said yet.
const UNKNOWN: u32 = u32::MAX;

impl Default for LastCpu {
    fn default() -> Self {
        Self(Published32::new(UNKNOWN))
    }
}

impl LastCpu {
    /// The calling thread is the one that this is about.
    #[inline]
    pub fn note(&self) {
        let own = own();
        // The line stays with those who read it while the thread stays where it is.
        if self.0.load() != own {
            self.0.store(own);
        }
    }

    /// The thread ran last on the CPU that the calling thread runs on now.
    #[inline]
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.0.load() == own()
    }
}

fn own() -> u32 {
    u32::try_from(sched_getcpu()).unwrap_or(UNKNOWN - 1)
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn helper_that_has_said_nothing_shares_no_cpu() {
        assert!(!LastCpu::default().is_ours());
    }

    #[test]
    fn helper_that_runs_on_our_cpu_shares_it() {
        let last = LastCpu::default();
        // The scheduler may move this thread between the two calls, but not every time.
        let shared = (0..1_000).filter(|_| {
            last.note();
            last.is_ours()
        });
        assert!(shared.count() > 0);
    }
}
