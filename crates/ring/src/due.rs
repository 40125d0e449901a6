//! A time that one thread waits for and that other threads may bring forward to now.
//!
//! A stack looks at it once per turn: one load answers both whether the time has come and whether
//! somebody asks. The value owns no queue. A thread that asks publishes its request first, in a
//! queue of its own.

use crate::sync::{AtomicU64, Ordering};

/// A time in ns, and the wish to have it now.
pub struct Due(AtomicU64);

/// The time that never comes.
const NEVER_NS: u64 = u64::MAX;

impl Default for Due {
    fn default() -> Self {
        Self::never()
    }
}

impl Due {
    /// A time that comes only when somebody [asks](Self::ask).
    pub fn never() -> Self {
        Self(AtomicU64::new(NEVER_NS))
    }

    /// True if the time has come or somebody asks.
    #[inline(always)]
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.0.load(Ordering::Relaxed)
    }

    /// True if somebody asks and the time was not rearmed since.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Brings the time forward to now. What the caller published before is visible to the thread
    /// that [rearms](Self::rearm) afterwards.
    pub fn ask(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Sets the next time. The caller looks for requests after this: an earlier request is visible
    /// then, and a later one makes the time due again. 0 counts as asked.
    pub fn rearm(&self, next_ns: u64) {
        self.0.swap(next_ns, Ordering::AcqRel);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn time_that_never_comes_is_due_once_somebody_asks() {
        let due = Due::never();
        assert!(!due.is_due(u64::MAX - 1));
        due.ask();
        assert!(due.is_due(0) && due.is_asked());
        due.rearm(100);
        assert!(!due.is_due(99) && due.is_due(100) && !due.is_asked());
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::sync::Arc;

    #[test]
    fn request_made_before_the_time_is_set_anew_is_seen_or_makes_it_due() {
        loom::model(|| {
            let shared = Arc::new((Due::never(), AtomicU64::new(0)));
            let asker = shared.clone();
            let thread = loom::thread::spawn(move || {
                asker.1.store(1, Ordering::Relaxed);
                asker.0.ask();
            });
            shared.0.rearm(7);
            let seen = shared.1.load(Ordering::Relaxed) == 1;
            thread.join().unwrap();
            assert!(seen || shared.0.is_asked());
        });
    }
}
