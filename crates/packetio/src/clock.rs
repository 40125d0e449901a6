//! Where a runtime takes the time from: the kernel, or whoever holds the handle of a virtual clock.
//!
//! One virtual clock may serve any number of stacks and wires of a process; it goes only forwards,
//! and only when its holder says so. With it, hours of timers pass in milliseconds and every run is
//! the same run. [`ip_wire`](crate::ip_wire) stamps packets with it, `millstream` turns its stacks
//! by it.

use std::sync::Arc;

use ring::published::Published64;

use crate::wait::{monotonic_ns, realtime_ns};

/// A source of time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`.
    #[default]
    System,
    /// The time to which its holder has advanced it.
    Virtual(VirtualClock),
}

impl Clock {
    /// Now, in ns.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        match self {
            Self::System => monotonic_ns(),
            Self::Virtual(clock) => clock.now_ns(),
        }
    }

    /// A time by this clock as one since 1970 (UTC), in ns. A virtual clock's own times are taken
    /// for such.
    #[must_use]
    pub fn wall_ns(&self, at_ns: u64) -> u64 {
        match self {
            Self::System => realtime_ns()
                .wrapping_add(at_ns)
                .wrapping_sub(monotonic_ns()),
            Self::Virtual(_) => at_ns,
        }
    }

    /// Time passes only when somebody advances it: nothing may sleep.
    #[must_use]
    pub const fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual(_))
    }
}

/// A clock that stands until it is advanced. Clones show the same time; one holder at a time
/// advances it.
///
/// ```
/// let clock = packetio::VirtualClock::new(1_000);
/// clock.advance_to_ns(5_000);
/// clock.advance_to_ns(2_000); // never back
/// assert_eq!(clock.now_ns(), 5_000);
/// ```
#[derive(Clone, Debug)]
pub struct VirtualClock(Arc<Published64>);

impl VirtualClock {
    /// A clock that shows `now_ns`.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self(Arc::new(Published64::new(now_ns)))
    }

    /// The time that it shows, in ns.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.0.load()
    }

    /// Shows `now_ns` from here on; an earlier time than it shows already changes nothing.
    pub fn advance_to_ns(&self, now_ns: u64) {
        self.0.store(self.now_ns().max(now_ns));
    }

    /// Lets `ns` pass.
    pub fn advance_ns(&self, ns: u64) {
        self.advance_to_ns(self.now_ns().saturating_add(ns));
    }
}
