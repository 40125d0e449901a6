//! Points between the steps of a wake-up protocol: register, look, look again, sleep.
//!
//! In the test build, another thread's step can happen at each point in turn: a frame arrives, the
//! watchdog takes a turn, a kernel descriptor becomes ready. In any other build a point is empty.
//! The steps within one shared word are modelled with loom in `ring`.

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::{before_sleep, point};

/// Marks a place where another thread may act.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point() {}

/// Marks the last look before a sleep, with the stack locked by its owner.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn before_sleep() {}
