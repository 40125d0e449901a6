//! The switch that turns all shortcuts of a stack off: frames go through the general parsers and
//! the general builder, and effects take the general path.
//!
//! With the feature `twin`, tests switch the stacks of their thread and compare both ways. Without
//! the feature the answer is a constant, so the guards cost nothing. Decision 0063 says what the
//! shortcuts gain.

#[cfg(feature = "twin")]
use std::cell::Cell;

#[cfg(feature = "twin")]
use crate::flows::Flows;

#[cfg(feature = "twin")]
thread_local! {
    static TAKEN: Cell<bool> = const { Cell::new(true) };
}

/// Turns the shortcuts of all stacks of this thread on or off, including those of future
/// connections.
#[cfg(feature = "twin")]
pub fn set_shortcuts(on: bool) {
    TAKEN.set(on);
}

/// True if shortcuts are taken.
#[cfg(feature = "twin")]
pub(crate) fn are_taken() -> bool {
    TAKEN.get()
}

/// True if shortcuts are taken.
#[cfg(not(feature = "twin"))]
#[inline(always)]
pub(crate) const fn are_taken() -> bool {
    true
}

/// Tells a new connection whether it takes its own shortcuts.
#[cfg(feature = "twin")]
pub(crate) fn tell(flows: &mut Flows, socket: u32) {
    if let Some(conn) = flows.slot(socket).conn.as_mut() {
        conn.set_shortcuts(are_taken());
    }
}
