//! A stack that its application and the watchdog turn, one at a time, and how the two know of each
//! other.

use std::sync::OnceLock;

use ring::doorbell::StackBell;
use ring::published::{Flag, Published64, fence_full};
use ring::trylock::TryLock;
use stack::Stack;

/// An inline stack, which its owner turns, and the watchdog while the owner is away.
pub(crate) struct SharedStack {
    pub stack: TryLock<Stack>,
    pub watch: Watch,
}

/// The watchdog's view of the owner.
pub(crate) struct Watch {
    /// The owner runs its own code.
    away: Flag,
    /// Turns that the owner took.
    turns: Published64,
    /// Number of times that a watcher of the stack was told to sleep on copies of its descriptors.
    arms: Published64,
    /// Wakes the watchdog; none on a virtual clock.
    bell: OnceLock<StackBell>,
}

impl Watch {
    pub fn new() -> Self {
        Self {
            away: Flag::new(),
            turns: Published64::new(0),
            arms: Published64::new(0),
            bell: OnceLock::new(),
        }
    }

    /// A watchdog looks after the stack from now on.
    pub fn guard(&self, bell: StackBell) {
        // A stack has one watchdog.
        let _ = self.bell.set(bell);
    }

    pub fn enter(&self) {
        self.away.lower();
    }

    /// Publishes that the owner is away, and then wakes the watchdog if it sleeps for good.
    pub fn leave(&self) {
        self.away.raise();
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    pub fn turned(&self) {
        self.turns.add(1);
    }

    /// The stack was armed, by a caller that holds it; the number of this time.
    pub fn armed(&self) -> u64 {
        self.arms.add_shared(1) + 1
    }

    /// The stack was armed this time last: it is this watcher's to disarm.
    pub fn is_last_armed(&self, number: u64) -> bool {
        self.arms.load() == number
    }

    /// The owner is away, and how many turns it took.
    pub fn look(&self) -> (bool, u64) {
        fence_full();
        let turns = self.turns.load();
        (self.away.is_raised(), turns)
    }
}
