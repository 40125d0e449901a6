//! Points between the steps of a wake-up protocol: register, look, look again, sleep.
//!
//! The test build lets another thread's step happen at each of them in turn: a frame arrives, the
//! watchdog takes a turn, the kernel's descriptor becomes ready. In any other build a point is
//! nothing. The steps within one shared word are modelled with loom in `ring`.

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::{before_sleep, point};

/// Another thread may act here.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point() {}

/// The owner of the stack has looked for the last time and is about to sleep with the stack locked.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn before_sleep() {}
