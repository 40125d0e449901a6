//! The CPU that a thread last ran on, for other threads to compare with their own.
//!
//! A thread that polls and never sleeps keeps a helper thread off a CPU that both share, until the
//! scheduler intervenes after milliseconds. The poller calls [`LastCpu::is_ours`] when it has found
//! nothing, and yields if that is true. The answer is a hint: the scheduler may move either thread
//! at any time.

use rustix::thread::sched_getcpu;

use crate::published::Published32;

/// The CPU of one thread, written by that thread when it runs out of work.
#[derive(Debug)]
pub struct LastCpu(Published32);

/// Value of a thread that has not noted its CPU yet; no CPU has this number.
const UNKNOWN: u32 = u32::MAX;

impl Default for LastCpu {
    fn default() -> Self {
        Self(Published32::new(UNKNOWN))
    }
}

impl LastCpu {
    /// Notes the CPU of the calling thread, which this value describes.
    #[inline]
    pub fn note(&self) {
        let own = own();
        // Stores only changes, so that the cache line stays with the readers while the thread stays
        // on its CPU.
        if self.0.load() != own {
            self.0.store(own);
        }
    }

    /// True if the noted thread last ran on the CPU that the calling thread runs on now.
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
