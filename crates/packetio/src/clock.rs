//! The source of a runtime's time: the kernel, or a virtual clock.
//!
//! One virtual clock may serve all stacks and wires of a process. It moves only forwards, and only
//! when its holder advances it. With it, hours pass in milliseconds and every run is identical.
//! [`ip_wire`](crate::ip_wire) stamps packets with it; `millstream` turns its stacks by it.

use std::sync::Arc;

use ring::published::Published64;

use crate::wait::{monotonic_ns, realtime_ns};

/// A source of time.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`.
    #[default]
    System,
    /// A virtual clock, which shows the time to which its holder has advanced it.
    Virtual(VirtualClock),
}

impl Clock {
    /// The present time, ns.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        match self {
            Self::System => monotonic_ns(),
            Self::Virtual(clock) => clock.now_ns(),
        }
    }

    /// Converts a time of this clock to ns since 1970 (UTC). The times of a virtual clock count as
    /// such already.
    #[must_use]
    pub fn wall_ns(&self, at_ns: u64) -> u64 {
        match self {
            Self::System => realtime_ns()
                .wrapping_add(at_ns)
                .wrapping_sub(monotonic_ns()),
            Self::Virtual(_) => at_ns,
        }
    }

    /// True if time passes only when a holder advances it, so that no thread may sleep.
    #[must_use]
    pub const fn is_virtual(&self) -> bool {
        matches!(self, Self::Virtual(_))
    }
}

/// A clock that moves only when it is advanced. Clones show the same time; only one holder at a
/// time may advance it.
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
    /// Makes a clock that shows `now_ns`.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self(Arc::new(Published64::new(now_ns)))
    }

    /// The time that the clock shows, ns.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.0.load()
    }

    /// Advances the clock to `now_ns`; an earlier time changes nothing.
    pub fn advance_to_ns(&self, now_ns: u64) {
        self.0.store(self.now_ns().max(now_ns));
    }

    /// Advances the clock by `ns`.
    pub fn advance_ns(&self, ns: u64) {
        self.advance_to_ns(self.now_ns().saturating_add(ns));
    }
}
