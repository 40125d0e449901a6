//! A stack that its application and the watchdog turn, one at a time, and the state by which each
//! knows of the other.

use std::sync::OnceLock;

use ring::doorbell::StackBell;
use ring::published::{Flag, Published64, fence_full};
use ring::trylock::TryLock;
use stack::Stack;

/// A stack under a try-lock. Its owner turns it, or the watchdog while the owner is away.
pub(crate) struct SharedStack {
    pub stack: TryLock<Stack>,
    pub watch: Watch,
}

/// The owner's state as the watchdog sees it.
pub(crate) struct Watch {
    /// The owner is outside the library's calls.
    away: Flag,
    /// Turns that the owner took.
    turns: Published64,
    /// Number of times that a thread armed the stack to sleep on copies of its descriptors.
    arms: Published64,
    /// Wakes the watchdog; empty on a virtual clock.
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

    /// Gives the stack its watchdog.
    pub fn guard(&self, bell: StackBell) {
        // A second call has no effect: a stack has one watchdog.
        let _ = self.bell.set(bell);
    }

    pub fn enter(&self) {
        self.away.lower();
    }

    /// Publishes that the owner is away, then wakes the watchdog if it sleeps without a timeout.
    pub fn leave(&self) {
        self.away.raise();
        if let Some(bell) = self.bell.get() {
            bell.ring();
        }
    }

    pub fn turned(&self) {
        self.turns.add(1);
    }

    /// Counts an arming of the stack, by a caller that holds the lock; returns its number.
    pub fn armed(&self) -> u64 {
        self.arms.add_shared(1) + 1
    }

    /// True if arming `number` was the last one, so that its watcher has to disarm.
    pub fn is_last_armed(&self, number: u64) -> bool {
        self.arms.load() == number
    }

    /// Whether the owner is away, and the number of turns that it took.
    pub fn owner_away_and_turns(&self) -> (bool, u64) {
        fence_full();
        let turns = self.turns.load();
        (self.away.is_raised(), turns)
    }
}
